"""transform_with_state: plans an operator, and runs its tasks."""
