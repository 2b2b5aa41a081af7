"""Helpers without knowledge of models or benchmarks: files, locks, signals, hashes, environment, text."""
