"""Progress of operators: of a query on request, and of all queries as metrics."""
