"""Figures of experiments, from records and manifests alone: `python -m kvbench.figures +experiment=NAME`."""
