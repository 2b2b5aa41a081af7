"""Checks of a folder of records that somebody else may have made: each figure is recomputed where that is possible."""
