"""Metrics: functions of strings, in [0, 1]."""
