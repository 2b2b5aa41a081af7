"""The experiments of the papers, their published values and errata, and which records belong to them."""
