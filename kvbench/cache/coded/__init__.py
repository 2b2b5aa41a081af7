"""Keys and values as codes that are read a block of tokens at a time: block formats, float8, rotated and rounded."""
