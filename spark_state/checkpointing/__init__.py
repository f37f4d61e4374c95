"""What to restore, whom to refuse, when to snapshot: decisions without clock, thread or I/O."""
