"""Check texts of settings and command lines for what files and other programs do not take."""

from sublayer.config.limits import LONGEST_TEXT


def text_problem(text: str) -> str | None:
    """Return what is wrong with a text as such; None for an ordinary one."""
    if len(text) > LONGEST_TEXT:
        return f"has {len(text):,} characters: give at most {LONGEST_TEXT:,}"
    if "\0" in text:
        return "has a null character, which no text or path has: leave it out"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "is not UTF-8: write it, or rename the file, in characters that are"
    return None
