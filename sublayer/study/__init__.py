"""Fair comparison: arms, their matching, their runs, and the verdicts on their differences."""
