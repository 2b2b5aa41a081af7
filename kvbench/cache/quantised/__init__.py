"""Keys and values in groups with a scale and a minimum; the newest rows are unchanged."""
