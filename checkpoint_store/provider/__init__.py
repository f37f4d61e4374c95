"""What the state store provider wrote, read without Spark."""
