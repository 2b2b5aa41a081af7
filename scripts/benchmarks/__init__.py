"""Measurements of time, rounding and sample sizes: their results are in results/benchmarks, speed and gpu."""
