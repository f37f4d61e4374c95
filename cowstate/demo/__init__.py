"""The flights job: an application on top of the engine, run by `cowstate demo`."""
