"""The benchmarks behind docs/benchmarks.md; `python -m bench` runs them."""
