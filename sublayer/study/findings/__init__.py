"""What is read off the runs of a comparison, beside the values that decide."""
