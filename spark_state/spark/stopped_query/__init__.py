"""What commands share that change the checkpoint of a stopped query, and can undo it."""
