"""Plans an operator for transform_with_state, and runs its tasks."""
