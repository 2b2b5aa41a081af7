"""Comparisons with papers, released code and official benchmarks."""
