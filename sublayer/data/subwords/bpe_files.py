"""Merges as subword-nmt and fastBPE write them, with the dictionary that fairseq counts."""

from pathlib import Path

from sublayer.data.subwords.bpe_encoding import END
from sublayer.data.subwords.bpe_training import Merges
from sublayer.data.subwords.library_files import read_file
from sublayer.data.subwords.word_bpe import APART, CODES, WordBpeTokenizer
from sublayer.data.tokenizers.base import NotUtf8, decode_utf8
from sublayer.errors import DataError

_HEADER = "#version:"
_INNER = "@@"
"""The mark of subword-nmt after a piece that does not end its word."""

Merge = tuple[str, str]


def read_codes(
    codes: Path, dictionary: Path | None = None, *, kind: type[WordBpeTokenizer] = WordBpeTokenizer
) -> WordBpeTokenizer:
    """Read the merges of subword-nmt (0.1, 0.2) or fastBPE, of which each is a line.

    With fairseq's ``dictionary`` ids are its own, and what the merges make beside it is unknown.
    Without one they are, after the special ids, the characters of the merges, each also with an end
    of word, and what the merges make. ``kind`` is what divides a text into words.

    Raises DataError where a file cannot be read, with its line where one is not what it should be.
    """
    version, merges = _read_merges(codes)
    pieces = (
        _vocabulary(version, merges) if dictionary is None else _read_dictionary(dictionary, kind)
    )
    return kind(Merges(tuple(pieces), tuple(merges)), version)


def find_dictionary(folder: Path) -> Path | None:
    """Find fairseq's dictionary in a folder; None without one.

    It is ``dict.txt``, or ``dict.LANGUAGE.txt`` of both languages. Raises DataError where two
    differ.
    """
    dictionaries = sorted({*folder.glob("dict.txt"), *folder.glob("dict.*.txt")})
    if not dictionaries:
        return None
    first, *others = dictionaries
    for other in others:
        if read_file(other) != read_file(first):
            raise DataError(
                f"{first} and {other.name} differ, "
                "and a translator has one vocabulary of both languages: "
                "give codes beside a joined dictionary, or beside none"
            )
    return first


def _read_merges(path: Path) -> tuple[str, list[Merge]]:
    lines = _lines(path)
    first = lines[0] if lines else ""
    version = APART
    n_header_lines = 0
    has_counts = False
    if first.startswith(_HEADER):
        n_header_lines = 1
        version = first.removeprefix(_HEADER).strip()
        if version not in CODES:
            raise DataError(
                f"{path}, line 1: codes of version {version!r}; only {' and '.join(CODES)} are read"
            )
    elif len(first.split(" ")) == 3:
        # fastBPE counts each merge, and has no header.
        has_counts = True
        version = CODES[-1]
    merges: dict[Merge, None] = {}
    for number, line in enumerate(lines[n_header_lines:], n_header_lines + 1):
        merge = _parse_merge(line, has_counts)
        if merge is None:
            what = "two pieces and a count" if has_counts else "two pieces"
            raise DataError(
                f"{path}, line {number}: {line!r} is not a merge, "
                f"which is {what} divided by a space"
            )
        merges.setdefault(merge)
    if not any(right.endswith(END) for _, right in merges):
        raise DataError(
            f"{path} has no merge with an end of word, {END}: "
            "it is empty, or not of subword-nmt or fastBPE "
            "(GPT-2's merges.txt is read by the name of its folder)"
        )
    return version, list(merges)


def _parse_merge(line: str, has_count: bool) -> Merge | None:
    parts = line.strip("\r ").split(" ")
    if has_count:
        count = parts.pop()
        if not count.isdecimal():
            return None
    if len(parts) != 2 or not all(parts):
        return None
    left, right = parts
    return left, right


def _vocabulary(version: str, merges: list[Merge]) -> list[str]:
    """List the characters of merges, each also with an end of word, and what merges make."""
    characters: set[str] = set()
    for merge in merges:
        for piece in merge:
            characters.update(piece.removesuffix(END))
    singles = sorted(characters)
    ends = [character + END for character in singles]
    merged = [left + right for left, right in merges]
    pieces = [*singles, *ends, *merged]
    if version == APART:
        # The end of a word may stay apart: what is before it ends the word all the same.
        pieces += [piece.removesuffix(END) + END for piece in merged]
    return list(dict.fromkeys(pieces))


def _read_dictionary(path: Path, kind: type[WordBpeTokenizer]) -> list[str]:
    pieces: dict[str, int] = {}
    for number, line in enumerate(_lines(path), 1):
        name, _, count = line.rstrip("\r ").rpartition(" ")
        if not name or not count.isdecimal():
            raise DataError(f"{path}, line {number}: {line!r} is not a piece and its count")
        piece = name + END
        if name.endswith(_INNER) and name != _INNER:
            piece = name.removesuffix(_INNER)
        if piece in pieces or name in kind.specials:
            raise DataError(f"{path}, line {number}: {name!r} is there already")
        pieces[piece] = number
    return list(pieces)


def _lines(path: Path) -> list[str]:
    try:
        text = decode_utf8(read_file(path))
    except NotUtf8 as error:
        raise DataError(f"{path}, {error}") from None
    if not text.strip():
        return []
    return text.rstrip("\n").split("\n")
