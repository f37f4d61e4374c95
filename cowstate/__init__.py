"""The command line, and the demo: applications on top of engine, tables and stores."""
