"""The table of an experiment: scores from records beside the published values of its paper."""
