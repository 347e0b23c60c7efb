"""Measures of a trained model: likelihood of text, scores of translations, and their statistics."""
