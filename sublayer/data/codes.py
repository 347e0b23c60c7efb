"""Merges as subword-nmt and fastBPE write them, with the dictionary that fairseq counts."""

from pathlib import Path

from sublayer.data.library_files import read_file
from sublayer.data.merges import Merges
from sublayer.data.merging import END
from sublayer.data.vocabulary import NotUtf8, decode_utf8
from sublayer.data.word_bpe import APART, CODES, WordBpeTokenizer
from sublayer.errors import DataError

_HEADER = "#version:"
_INNER = "@@"
"""What subword-nmt writes after a piece that does not end its word."""

Merge = tuple[str, str]


def read_codes(codes: Path, dictionary: Path | None = None) -> WordBpeTokenizer:
    """Read the merges of subword-nmt (0.1, 0.2) or fastBPE, of which each is a line.

    With fairseq's ``dictionary`` ids are its own, and what the merges make beside it is unknown. Without one they are,
    after the special ids, the characters of the merges, each also with an end of word, and what the merges make.
    Raises DataError where a file cannot be read, or a line is not what it should be.
    """
    version, merges = _read_merges(codes)
    pieces = _made(version, merges) if dictionary is None else _read_dictionary(dictionary)
    return WordBpeTokenizer(Merges(tuple(pieces), tuple(merges)), version)


def find_dictionary(folder: Path) -> Path | None:
    """Find fairseq's dictionary in a folder: ``dict.txt``, or ``dict.LANGUAGE.txt`` of both languages; None without.

    Raises DataError where two differ.
    """
    found = sorted({*folder.glob("dict.txt"), *folder.glob("dict.*.txt")})
    for other in found[1:]:
        if read_file(other) != read_file(found[0]):
            raise DataError(
                f"{found[0]} and {other.name} differ, and a translator has one vocabulary of both languages: "
                "give codes beside a joined dictionary, or beside none"
            )
    return found[0] if found else None


def _read_merges(path: Path) -> tuple[str, list[Merge]]:
    lines, first, version = _lines(path), 1, APART
    if lines and lines[0].startswith(_HEADER):
        version, first = lines.pop(0).removeprefix(_HEADER).strip(), 2
        if version not in CODES:
            raise DataError(f"{path}, line 1: codes of version {version!r}; only {' and '.join(CODES)} are read")
    elif lines and len(lines[0].split(" ")) == 3:
        version = CODES[-1]
    width = 3 if first == 1 and version != APART else 2  # fastBPE counts each merge, and has no header
    merges: dict[Merge, None] = {}
    for number, line in enumerate(lines, first):
        parts = line.strip("\r ").split(" ")
        if len(parts) != width or not all(parts) or (width == 3 and not parts[2].isdecimal()):
            what = "two pieces and a count" if width == 3 else "two pieces"
            raise DataError(f"{path}, line {number}: {line!r} is not a merge, which is {what} divided by a space")
        merges.setdefault((parts[0], parts[1]))
    if not any(right.endswith(END) for _, right in merges):
        raise DataError(
            f"{path} has no merge with an end of word, {END}: it is empty, or not of subword-nmt or fastBPE (GPT-2's "
            "merges.txt is read by the name of its folder)"
        )
    return version, list(merges)


def _made(version: str, merges: list[Merge]) -> list[str]:
    characters = sorted({character for merge in merges for part in merge for character in part.removesuffix(END)})
    made = [left + right for left, right in merges]
    # Where the end of a word stands apart, it may stay so: what is before it ends the word all the same.
    ended = [piece.removesuffix(END) + END for piece in made] if version == APART else []
    return list(dict.fromkeys([*characters, *(character + END for character in characters), *made, *ended]))


def _read_dictionary(path: Path) -> list[str]:
    pieces: dict[str, int] = {}
    for number, line in enumerate(_lines(path), 1):
        name, _, count = line.rstrip("\r ").rpartition(" ")
        if not name or not count.isdecimal():
            raise DataError(f"{path}, line {number}: {line!r} is not a piece and its count")
        piece = name.removesuffix(_INNER)
        piece = piece if piece and piece != name else name + END
        if piece in pieces or name in WordBpeTokenizer.specials:
            raise DataError(f"{path}, line {number}: {name!r} is there already")
        pieces[piece] = number
    return list(pieces)


def _lines(path: Path) -> list[str]:
    try:
        text = decode_utf8(read_file(path))
    except NotUtf8 as error:
        raise DataError(f"{path}, {error}") from None
    return text.rstrip("\n").split("\n") if text.strip() else []
