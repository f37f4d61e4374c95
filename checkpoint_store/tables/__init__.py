"""Tables: versions, their files, and how they are read."""
