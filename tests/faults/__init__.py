"""Seeded faults: drawn over the syntax of the package, applied and hunted by the tests."""
