"""The modules that models are composed of."""
