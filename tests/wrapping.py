"""Text that was wrapped for a terminal, as one line again."""


def unwrapped(text: str) -> str:
    """Join lines, and replace any blanks between words by one."""
    return " ".join(text.split())
