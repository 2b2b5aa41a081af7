"""Keys and values in groups with a scale and a zero point, the newest rows unchanged, in layers alike or ragged."""
