"""A run's results as one HTML page that needs nothing else: no server, no network, no other file."""
