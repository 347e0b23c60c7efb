"""The runs of a comparison, in turn or several at a time, each trained, scored and kept."""
