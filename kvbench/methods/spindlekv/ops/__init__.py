"""Operators of SpindleKV's codebook: covers, references, attention."""
