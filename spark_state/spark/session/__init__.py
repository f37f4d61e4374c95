"""A Spark session: its configuration, its plans, its workers, and its server of Spark Connect."""
