"""KVCompose: scores of a second reading, and composite tokens."""
