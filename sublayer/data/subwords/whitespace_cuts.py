"""Cuts of a text before whitespace, where GPT-2's and BERT's patterns end a word."""

from collections.abc import Iterator

_BATCH_CHARACTERS = 64 << 10
_SEARCHED_BYTES = 64 << 10


def before_whitespace(text: bytes, near: int) -> int:
    """Return a late position up to ``near`` where whitespace follows other text; 0 without one.

    GPT-2's pattern never joins a character to whitespace after it, and looks no further ahead than
    at whitespace. Up to byte 9 of ``one two three`` that is 7. Ends of lines are preferred, and the
    last 64 KiB alone are searched. The text has a byte after ``near``, or ends there.
    """
    start = max(0, near - _SEARCHED_BYTES)
    window = text[start : near + 1].decode("utf-8", "surrogateescape")
    position = _last_break(window, len(window))
    if not position:
        return 0
    before = window[:position].encode("utf-8", "surrogateescape")
    return start + len(before)


def _last_break(text: str, near: int) -> int:
    # Python calls more characters whitespace than the pattern does: what is not is not for either.
    for mark in ("\n", " "):
        position = text.rfind(mark, 1, near + 1)
        while position > 0 and text[position - 1].isspace():
            position = text.rfind(mark, 1, position)
        if position > 0:
            return position
    return 0


def batches(text: str, size: int = _BATCH_CHARACTERS) -> Iterator[str]:
    """Cut a text into parts of bounded size, each before whitespace; the last as long as it is.

    A text of at most ``size`` characters is one part; an empty one has none.
    """
    start = 0
    while len(text) - start > size:
        # One character more shows what follows the cut.
        window = text[start : start + size + 1]
        n_characters = _last_break(window, size)
        if not n_characters:
            break
        yield window[:n_characters]
        start += n_characters
    if start < len(text):
        yield text[start:]
