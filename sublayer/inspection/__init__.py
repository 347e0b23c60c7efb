"""Measurements inside a model, on a sample of a text, as numbers and plots."""
