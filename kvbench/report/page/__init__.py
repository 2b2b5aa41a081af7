"""The HTML page of runs: one file that needs no server, no network and no other file."""
