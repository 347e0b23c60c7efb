"""Training objectives: each contains the model and owns the heads that only training needs."""
