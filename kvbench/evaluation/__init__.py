"""Evaluation: samples × settings to records."""
