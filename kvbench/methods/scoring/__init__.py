"""Scoring: how important each prompt token is. Scorings of several methods; a method's score stands in its file."""
