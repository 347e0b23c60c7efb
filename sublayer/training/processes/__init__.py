"""The processes that train together: what each computes of a step, and how they agree."""
