"""KVzip: scores of a repetition of the context, and whole heads."""
