"""Costs of arms, and the matching of their budgets."""
