"""Allocation: how many tokens each layer keeps. Those of one method stand in its file."""
