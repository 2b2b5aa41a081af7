"""Scoring: how important each prompt token is. What several methods share; a method's score stands in its file."""
