"""What a model is trained to do: a table for each kind of objective, without tensors."""
