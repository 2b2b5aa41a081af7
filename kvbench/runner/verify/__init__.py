"""Checks of folders of records of unknown origin; figures are recomputed where possible."""
