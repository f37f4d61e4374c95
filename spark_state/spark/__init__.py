"""Where the engine meets Spark: the operator's plan, its configuration, and its tasks."""
