"""Texts that the tests prepare, and what came of them."""

from itertools import pairwise
from pathlib import Path

from sublayer.data.split import Split

TEXT = b"".join(
    b"line %d of a text that is long enough to be divided\n" % number for number in range(200)
)


def raw(split: Split) -> bytes:
    return split.tokenizer.decode(split.ids)


def stored(cache: Path) -> set[str]:
    return {path.name for path in (cache / "tokens").iterdir()}


MARK = "*** {} OF THE PROJECT GUTENBERG EBOOK A ***\n"
BOOK = f"\ufeffLegal.\n{MARK.format('START')}{{}}\n{MARK.format('END')}Legal.\n"


def book(n: int) -> bytes:
    paragraphs = (
        f"Sentence {i} of\n{n} came. It  was short! “Was it?” he asked.\n" for i in range(60)
    )
    return BOOK.format("\n".join(paragraphs)).encode()


def sentences_of_split(split: Split) -> list[str]:
    assert split.sentence_starts is not None
    bounds = [*split.sentence_starts.tolist(), len(split.ids)]
    return [
        split.tokenizer.decode(split.ids[start:stop]).decode() for start, stop in pairwise(bounds)
    ]
