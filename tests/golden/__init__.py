"""Results that stay: every preset on a tiny model and every file of metrics on fixed cases, with their versions.

`python -m tests.golden` writes tests/data/golden anew. It refuses results that changed without a new version.
"""
