"""Estimates of the memory, traffic and time of a training, from the config alone."""
