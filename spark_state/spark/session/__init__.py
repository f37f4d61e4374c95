"""A Spark session: its configuration, its plans, its workers, and its Spark Connect server."""
