"""Makers of the other results that the repository keeps."""
