"""Figures: every plot, as PNG and PDF, from records alone."""
