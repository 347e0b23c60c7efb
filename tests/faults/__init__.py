"""Seeded faults: drawn over the syntax of the package, applied one at a time, hunted by the tests."""
