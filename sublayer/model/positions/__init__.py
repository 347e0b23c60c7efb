"""Position schemes, one class a file; a row each in ``sublayer.config.architecture.positions``."""
