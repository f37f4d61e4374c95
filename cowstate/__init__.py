"""The command line and the demo: applications on top of the engine, the tables and the stores."""
