"""H2O: heavy hitters by the attention of all queries."""
