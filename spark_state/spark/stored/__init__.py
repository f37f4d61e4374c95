"""Shows the stored state of a query's operators in Spark's state readers and in Spark's
progress."""
