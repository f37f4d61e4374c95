"""Plans operators in Spark, reads their configuration, and runs their tasks."""
