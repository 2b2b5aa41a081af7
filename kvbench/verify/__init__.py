"""Checks of a folder of records that somebody else may have made: what it says is recomputed, or found to be wrong."""
