"""The papers' experiments, published values and errata, and the records that belong to an experiment."""
