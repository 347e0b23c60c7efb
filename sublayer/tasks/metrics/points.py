"""Values of metrics as they are published: in points, 82.0 for 0.82."""


def points(value: float) -> str:
    """Format a value, a correlation too, in points."""
    return f"{100 * value:z.1f}"


def signed_points(difference: float) -> str:
    """Format a difference of values in points, with its sign."""
    return f"{100 * difference:+z.1f}"
