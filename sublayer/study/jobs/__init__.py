"""Runs of a comparison, in turn or in parallel, each trained, scored and kept."""
