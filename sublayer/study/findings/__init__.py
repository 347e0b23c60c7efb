"""Findings in the runs of a comparison, beside the values that decide."""
