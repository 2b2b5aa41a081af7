"""One page and table of any number of packs and runs: models × benchmarks × bytes, with ranks and their origin."""
