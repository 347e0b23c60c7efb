"""The body of a Project Gutenberg file: what stands between its header and its licence."""

import re

from sublayer.data.text.files import Text

BOM = b"\xef\xbb\xbf"

_HEADER_BYTES = 64 << 10
_LICENCE_BYTES = 64 << 10
_CLOSING_BYTES = 2048
_CREDITS_BYTES = 1024
"""More than the words take by which such a paragraph is known."""
_START = re.compile(
    rb"^[ \t]*\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG[^*]{0,400}\*\*\*[^\n]*(?:\n|\Z)"
    rb"|^[ \t]*\*+END[* ]{1,2}THE SMALL PRINT![^\n]*(?:\n[^\n]*\*END\*[^\n]*)?(?:\n|\Z)",
    re.MULTILINE | re.IGNORECASE,
)
_END = re.compile(
    rb"^[ \t]*\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG", re.MULTILINE | re.IGNORECASE
)
_CLOSING = re.compile(
    rb"^[ \t]*(?:\*+ *)?(?:This is the )?end of (?:the |this )?project gutenberg"
    rb"(?:'s|\xe2\x80\x99s)?(?: |$)",
    re.MULTILINE | re.IGNORECASE,
)
_CREDITS = re.compile(
    rb"\s*(?:(?:Produced|Prepared|Transcribed|Scanned|Updated) by|E-?text prepared by"
    rb"|This e-?(?:text|book) was (?:produced|prepared|created|transcribed))\b"
    rb"(?:[^\n]*\S[^\n]*(?:\n|\Z))+",
    re.IGNORECASE,
)


def body_range(text: Text) -> tuple[int, int]:
    """Return where the body of a Project Gutenberg file starts and stops, in bytes.

    Of any other text, that is all but a byte-order mark. Its header and licence are left out where
    both are marked: ``*** START OF THE PROJECT GUTENBERG EBOOK ... ***`` and ``*** END OF ...``, in
    their older wordings too: ``***START``, the end of the small print, and a line that begins with
    "End of Project Gutenberg's". With the header goes the paragraph after it that names who made
    the file.
    """
    first = len(BOM) if text[: len(BOM)] == BOM else 0
    start = None
    # Of small print and a start, whichever comes last is where the header ends.
    for match in _START.finditer(text[:_HEADER_BYTES], first):
        start = match.end()
    if start is None:
        return first, len(text)
    stop = _stop(text, start)
    if stop is None:
        return first, len(text)
    return start + _n_credits(text, start, stop), stop


def _stop(text: Text, start: int) -> int | None:
    least = max(start, len(text) - _LICENCE_BYTES)
    # One byte more shows whether a line begins there.
    window = max(0, least - 1)
    tail = text[window:]
    ends = [match.start() for match in _END.finditer(tail, least - window)]
    if not ends:
        closings = [match.start() for match in _CLOSING.finditer(tail, least - window)]
        return window + closings[-1] if closings else None
    # The title is often closed once more, in words, right before the mark.
    last = ends[-1]
    closing = _CLOSING.search(tail, max(start - window, last - _CLOSING_BYTES), last)
    if closing:
        return window + closing.start()
    return window + last


def _n_credits(text: Text, start: int, stop: int) -> int:
    """Count the bytes of the paragraph that names who made the file, where one stands there."""
    size = _HEADER_BYTES
    while True:
        window = text[start : min(start + size, stop)]
        match = _CREDITS.match(window)
        end = match.end() if match else 0
        # What is blank up to there, or does not end there, may go on behind it.
        is_open = end == len(window) if match else len(window.lstrip()) < _CREDITS_BYTES
        if start + size >= stop or not is_open:
            return end
        size *= 2
