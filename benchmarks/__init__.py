"""The comparison with other durable engines: `benchmarks/run.py` writes docs/benchmarks.md."""
