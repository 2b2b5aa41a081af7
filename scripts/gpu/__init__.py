"""The parts of scripts/gpu_check.py, each a stage with its share of the time."""
