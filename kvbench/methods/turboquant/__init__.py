"""TurboQuant: vectors rotated at random, then rounded."""
