"""How good a trained model is: likelihood of text under it."""
