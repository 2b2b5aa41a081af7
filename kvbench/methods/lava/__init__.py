"""LAVa: scores of value vectors, budgets of heads and of layers."""
