"""Tables of experiments, from records and manifests alone: `python -m kvbench.tables +experiment=NAME`."""
