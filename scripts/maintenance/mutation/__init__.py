"""How many faults the tests find: places of kvbench changed at random, and the tests that cover each."""
