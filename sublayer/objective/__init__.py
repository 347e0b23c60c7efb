"""What a model is trained to do: each objective contains the model and owns the heads that only training needs."""
