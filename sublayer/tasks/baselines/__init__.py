"""What a score is held against: the majority's, and that of a linear model of words."""
