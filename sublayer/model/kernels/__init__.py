"""Kernels written by hand where that is faster, and the choice of them."""
