"""Kernels written by hand where they are faster, and the choice between them and PyTorch's."""
