"""Steps shared by the commands that edit a stopped query's checkpoint: apply, undo, report."""
