"""Allocation: how many tokens each layer keeps. An allocation of one method stands in that method's file."""
