"""Makers of generated files and of what a release needs."""
