"""Code to run a PySpark StatefulProcessor over Arrow batches, without a JVM."""
