"""What happens inside a model: measured on a sample of a text, as numbers and as plots."""
