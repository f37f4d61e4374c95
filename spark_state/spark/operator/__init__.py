"""transform_with_state: the plan, its tasks, and the epochs of the query that runs it."""
