"""Text that was wrapped for a terminal, as one line again."""


def unwrapped(text):
    return " ".join(text.split())
