"""The stored state of the operators of a query, as Spark's readers and its progress show it."""
