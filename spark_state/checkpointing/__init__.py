"""Decisions on restore, fencing, snapshots and time. Pure: no clock, thread or I/O."""
