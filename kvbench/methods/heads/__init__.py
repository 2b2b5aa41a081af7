"""Budgets of heads: how many tokens each head of a layer keeps. Those of one method stand in its file."""
