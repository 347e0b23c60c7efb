"""``sublayer fields``: every field that a recipe may set."""
EXAMPLE = "sublayer fields model"
def command() -> None:
    """x"""
