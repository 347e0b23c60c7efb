"""Texts of a few words, and their translations."""

from collections.abc import Sequence
from pathlib import Path


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write lines, each with its end."""
    path.write_text("".join(f"{line}\n" for line in lines))


def write_pair(folder: Path, sources: Sequence[str], targets: Sequence[str]) -> None:
    """Write a text and its translation as ``a.en`` and ``a.de``."""
    write_lines(folder / "a.en", sources)
    write_lines(folder / "a.de", targets)


def sentences(words: Sequence[str], n: int, longest: int) -> list[str]:
    """Build sentences of one word up to a length, the same for any seven words."""
    found = []
    for i in range(n):
        length = 1 + i % longest
        first = i // 7
        sentence = []
        for j in range(1, 1 + length):
            place = (first + i * j) % 7
            sentence.append(words[place])
        found.append(" ".join(sentence))
    return found
