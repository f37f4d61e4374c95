"""Count and sum of each key: cowstate beside engines other than Spark."""
