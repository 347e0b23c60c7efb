"""Estimates of parameters, operations and memory, from the config alone."""
