"""Predictions as the publishers of tasks take them, complete and checked."""
