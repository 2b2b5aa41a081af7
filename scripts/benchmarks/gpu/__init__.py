"""The parts of scripts/benchmarks/gpu_check.py, each a stage with its share of the time."""
