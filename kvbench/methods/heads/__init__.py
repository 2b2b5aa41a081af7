"""Budgets of heads: how many tokens each head of a layer keeps. Budgets of one method stand in that method's file."""
