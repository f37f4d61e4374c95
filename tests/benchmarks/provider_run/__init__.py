"""One run of `tests/benchmarks/provider.py`, in a process of its own."""
