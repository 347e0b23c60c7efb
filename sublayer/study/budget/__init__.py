"""The costs of arms, and how their budgets are matched."""
