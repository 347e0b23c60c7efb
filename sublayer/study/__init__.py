"""Fair comparison: arms, their matching, their runs, and what the differences say."""
