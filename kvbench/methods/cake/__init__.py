"""CAKE: attention and its variance, and budgets of layers by preference."""
