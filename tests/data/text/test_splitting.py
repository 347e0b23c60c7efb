"""Division of texts into splits: one text by bytes, several documents by their contents."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest

from sublayer.config.text.split import parse_split
from sublayer.data.text import content_order, splitting, whole_documents
from sublayer.data.text.content_order import shared_document
from sublayer.data.text.document_store import open_pack
from sublayer.data.text.files import Document, MemoryDocument
from sublayer.data.text.splitting import SPLITS, divide
from sublayer.data.text.whole_documents import WholeDocuments
from sublayer.errors import DataError


def shares_of(split: str) -> dict[str, Fraction]:
    return dict(zip(SPLITS, parse_split(split), strict=True))


SHARES = shares_of("90/5/5")


def text_of(pieces) -> bytes:
    return b"".join(bytes(piece.document.read()[piece.start : piece.stop]) for piece in pieces)


def divide_text(text: bytes, *, shares=SHARES, is_utf8=False, sentences="none") -> list[bytes]:
    document = MemoryDocument("text", text)
    parts = divide([document], shares, name="text", is_utf8=is_utf8, sentences=sentences)
    return [text_of(parts[split]) for split in SPLITS]


@pytest.mark.parametrize(
    ("shares", "n_bytes", "sizes"),
    [
        # 99 * 0.9 = 89.1, 99 * 0.95 = 94.05
        (SHARES, 99, [89, 5, 5]),
        # In floating point, 0.7 + 0.2 is less than 0.9.
        (shares_of("70/20/10"), 10, [7, 2, 1]),
        ({"train": Fraction(19, 20), "test": Fraction(1, 20)}, 100, [95, 0, 5]),
    ],
)
def test_one_text_is_cut_at_exact_shares_rounded_down(shares, n_bytes, sizes):
    parts = divide_text(bytes(range(n_bytes)), shares=shares)
    assert [len(part) for part in parts] == sizes
    assert b"".join(parts) == bytes(range(n_bytes))
    with pytest.raises(DataError, match="text has 10 bytes, too few for a valid split"):
        divide_text(b"0123456789")


def test_cuts_of_sentences_fall_between_paragraphs():
    text = b"one two\r\nthree\r\n\r\n" * 20
    assert divide_text(text, is_utf8=True, sentences="prose") == [
        text[: len(text) * share // 20] for share in (18, 1, 1)
    ]


def in_memory(contents: list[bytes]) -> list[Document]:
    return [MemoryDocument(str(number), text) for number, text in enumerate(contents)]


def test_few_documents_give_the_smallest_to_the_small_splits():
    found = in_memory([b"a" * 1000, b"b" * 400, b"c" * 200])
    parts = divide(found, SHARES, name="folder", is_utf8=False)
    assert [len(text_of(parts[split])) for split in SPLITS] == [1000, 400, 200]
    for contents in ([b"a", b"b"], [b"a", b"a", b"b"]):
        with pytest.raises(DataError, match="folder has 2 different documents, too few for 3 spl"):
            divide(in_memory(contents), SHARES, name="folder", is_utf8=False)
    parts = divide(in_memory(contents), {"train": Fraction(1)}, name="folder", is_utf8=False)
    assert [len(parts[split]) for split in SPLITS] == [3, 0, 0]


def texts(n_documents: int, seed: int = 0) -> list[bytes]:
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 40, n_documents)
    # A third of them are copies of others.
    names = random.integers(0, n_documents * 2 // 3, n_documents)
    return [b"%d" % name * int(1 + sizes[name]) for name in names]


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """Contents as documents in a file, which are read in small blocks."""
    monkeypatch.setattr(content_order, "_BLOCK", 7)
    monkeypatch.setattr(whole_documents, "_BLOCK", 11)
    return lambda contents: open_pack(
        tmp_path / "pack", [("a", lambda: iter(enumerate(contents, 1)))]
    )


def by_hand(contents: list[bytes]) -> list[list[bytes]]:
    """Fill test to a tenth of all bytes and then valid to three, in order of hashes."""
    free = sorted(set(contents), key=lambda text: hashlib.sha256(text).digest())
    splits = []
    for tenths in (1, 3):
        room = Fraction(tenths, 10) * sum(map(len, contents))
        taken = []
        for text in free:
            n_bytes = len(text) * contents.count(text)
            if n_bytes <= room:
                taken.append(text)
                room -= n_bytes
        splits.insert(0, taken)
        free = [text for text in free if text not in taken]
    return [sorted(text for text in contents if text in part) for part in (free, *splits)]


@pytest.mark.parametrize("n_documents", [12, 200])
def test_a_division_does_not_depend_on_how_many_documents_are_in_memory(
    packed, n_documents, monkeypatch
):
    contents = texts(n_documents, seed=n_documents)
    for documents, n_parts in ((in_memory(contents), 1), (packed(contents), 17)):
        monkeypatch.setattr(splitting, "count_parts", lambda count, n=n_parts: n)
        parts = divide(documents, shares_of("60/30/10"), name="a", is_utf8=False)
        found = [[piece.document.read() for piece in parts[split]] for split in SPLITS]
        assert [parts[split].n_bytes for split in SPLITS] == [sum(map(len, part)) for part in found]
        assert [sorted(part) for part in found] == by_hand(contents)
        names = [piece.document.name for piece in parts["train"]]
        assert names == sorted(names, key=lambda name: int(name.split()[-1]))


def test_the_first_document_that_two_texts_share_is_found(packed):
    contents = texts(60, seed=2)
    others = [b"other", *texts(40, seed=3), contents[5]]
    common = set(contents) & set(others)
    first = min(common, key=lambda text: hashlib.sha256(text).hexdigest())
    for most in (1000, 9):
        number, other = shared_document(in_memory(contents), packed(others), most)
        assert contents[number] == others[other] == first
        assert shared_document(in_memory([b"x"]), in_memory(others), most) is None


def test_chosen_documents_are_numbered_through(packed):
    contents = [b"%d" % number for number in range(50)]
    marks = np.arange(50, dtype=np.int8) % 3
    chosen, expected = WholeDocuments(packed(contents), marks, 2), contents[2::3]
    found = [chosen[index].document.read() for index in range(len(chosen))]
    assert found == [piece.document.read() for piece in chosen] == expected
    assert chosen[-1].document.read() == expected[-1]
    assert [piece.document.read() for piece in chosen[3:6]] == expected[3:6]
    with pytest.raises(IndexError):
        chosen[len(expected)]
    assert len(WholeDocuments([])) == 0
