"""Tables: versions, the files of versions, commits and reads."""
