"""TOVA: the attention of the last query."""
