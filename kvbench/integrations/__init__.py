"""Other programs that work with kvbench. Their packages are optional."""
