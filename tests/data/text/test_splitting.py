"""Division of texts into splits: one text by bytes, several documents by their contents."""

import hashlib
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.text.split import parse_split
from sublayer.data.text import content_order, splitting, whole_documents
from sublayer.data.text.content_order import in_content_order, shared_document
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.document_store import open_pack
from sublayer.data.text.files import Document, MemoryDocument
from sublayer.data.text.splitting import SPLITS, divide
from sublayer.data.text.whole_documents import WholeDocuments
from sublayer.errors import DataError

SHARES = dict(zip(SPLITS, parse_split("90/5/5"), strict=True))


def text_of(pieces: tuple[DocumentRange, ...]) -> bytes:
    return b"".join(bytes(piece.document.read()[piece.start : piece.stop]) for piece in pieces)


def divide_text(text: bytes, *, shares=SHARES, is_utf8: bool = False) -> dict[str, bytes]:
    parts = divide([MemoryDocument("text", text)], shares, name="text", is_utf8=is_utf8)
    return {split: text_of(pieces) for split, pieces in parts.items()}


@pytest.mark.parametrize(
    ("shares", "n_bytes", "sizes"),
    [
        # 99 * 0.9 = 89.1, 99 * 0.95 = 94.05
        (SHARES, 99, [89, 5, 5]),
        # In floating point, 0.7 + 0.2 is less than 0.9.
        (dict(zip(SPLITS, parse_split("70/20/10"), strict=True)), 10, [7, 2, 1]),
        ({"train": Fraction(19, 20), "test": Fraction(1, 20)}, 100, [95, 0, 5]),
    ],
)
def test_one_text_is_cut_at_exact_shares_rounded_down(shares, n_bytes, sizes):
    parts = divide_text(bytes(range(n_bytes)), shares=shares)
    assert list(parts) == list(SPLITS)
    assert [len(part) for part in parts.values()] == sizes
    assert b"".join(parts.values()) == bytes(range(n_bytes))


@given(st.text(st.characters(codec="utf-8"), min_size=90, max_size=200))
def test_cuts_of_utf8_fall_between_characters(text):
    parts = divide_text(text.encode(), is_utf8=True)
    assert "".join(part.decode() for part in parts.values()) == text
    n_bytes = len(text.encode())
    assert 0 <= len(parts["test"]) - (n_bytes - n_bytes * 95 // 100) <= 3


def test_a_text_too_short_for_three_splits_is_refused():
    with pytest.raises(DataError, match="text has 10 bytes, too few for a valid split"):
        divide_text(b"0123456789")


def documents(sizes: list[int]) -> list[MemoryDocument]:
    return [
        MemoryDocument(f"{index}", index.to_bytes(2, "big") * (size // 2))
        for index, size in enumerate(sizes)
    ]


def test_whole_documents_go_to_one_split_each_by_their_contents():
    found = documents([200] * 40)
    parts = divide(found, SHARES, name="folder", is_utf8=False)
    assert [len(parts[split]) for split in SPLITS] == [36, 2, 2]
    assert all(part == DocumentRange(part.document) for parts_ in parts.values() for part in parts_)
    names = [[int(part.document.name) for part in parts[split]] for split in SPLITS]
    assert all(of_split == sorted(of_split) for of_split in names)
    assert sorted(names[0] + names[1] + names[2]) == list(range(40))
    assert names[2] not in ([0, 1], [38, 39])
    again = divide(found[::-1], SHARES, name="folder", is_utf8=False)
    assert all(set(parts[split]) == set(again[split]) for split in SPLITS)


def test_few_documents_give_the_smallest_to_the_small_splits():
    parts = divide(documents([1000, 400, 200]), SHARES, name="folder", is_utf8=False)
    assert [piece.document.name for piece in parts["train"]] == ["0"]
    assert {piece.document.name for piece in (*parts["valid"], *parts["test"])} == {"1", "2"}


@given(
    st.lists(st.integers(1, 500), min_size=3, max_size=30),
    st.sampled_from(["90/5/5", "34/33/33", "2/49/49"]),
)
def test_every_split_gets_documents(sizes, split):
    shares = dict(zip(SPLITS, parse_split(split), strict=True))
    parts = divide(documents([2 * size for size in sizes]), shares, name="folder", is_utf8=False)
    assert all(parts[name] for name in SPLITS)
    assert sum(len(pieces) for pieces in parts.values()) == len(sizes)


def test_too_few_different_documents_are_refused():
    for contents in ([b"a", b"b"], [b"a", b"a", b"b"]):
        found = [MemoryDocument(f"{index}", content) for index, content in enumerate(contents)]
        with pytest.raises(DataError, match="folder has 2 different documents, too few for 3 spl"):
            divide(found, SHARES, name="folder", is_utf8=False)
    parts = divide(found, {"train": Fraction(1)}, name="folder", is_utf8=False)
    assert [len(parts[split]) for split in SPLITS] == [3, 0, 0]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_cuts_of_sentences_fall_between_paragraphs(line_end):
    text = (b"one two\nthree\n\n" * 20).replace(b"\n", line_end)
    parts = divide(
        [MemoryDocument("text", text)], SHARES, name="text", is_utf8=True, sentences="prose"
    )
    found = [text_of(pieces) for pieces in parts.values()]
    assert b"".join(found) == text
    assert all(part.endswith(line_end * 2) and part.startswith(b"one") for part in found)
    assert [len(part) for part in found] == [len(text) * share // 20 for share in (18, 1, 1)]


def texts(n_documents: int, seed: int = 0) -> list[bytes]:
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 40, n_documents)
    # A third of them are copies of others.
    names = random.integers(0, n_documents * 2 // 3, n_documents)
    return [b"%d" % name * int(1 + sizes[name]) for name in names]


def in_memory(contents: list[bytes]) -> list[Document]:
    return [MemoryDocument(str(number), text) for number, text in enumerate(contents)]


def packed(contents: list[bytes], folder) -> Sequence[Document]:
    return open_pack(folder / "pack", [("a", lambda: iter(enumerate(contents, 1)))])


@pytest.fixture
def _small_blocks(monkeypatch):
    monkeypatch.setattr(content_order, "_BLOCK", 7)
    monkeypatch.setattr(whole_documents, "_BLOCK", 11)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(
    "n_parts",
    [
        1,
        5,
        64,
    ],
)
def test_the_parts_are_all_documents_by_their_hashes(tmp_path, n_parts):
    contents = texts(100)
    found = []
    for part in in_content_order(packed(contents, tmp_path), n_parts, has_sizes=True):
        assert part.sizes.tolist() == [len(contents[number]) for number in part.numbers]
        assert (np.diff(part.numbers) > 0).all()
        digests = [hashlib.sha256(contents[number]).hexdigest() for number in part.numbers]
        assert not found or max(digest for digest, _ in found) < min(digests)
        found += zip(digests, part.numbers.tolist(), strict=True)
    assert sorted(number for _, number in found) == list(range(100))


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(
    "n_documents",
    [
        12,
        200,
    ],
)
def test_a_division_does_not_depend_on_how_many_documents_are_in_memory(
    tmp_path, n_documents, monkeypatch
):
    contents = texts(n_documents, seed=n_documents)
    shares = dict(zip(SPLITS, (Fraction(6, 10), Fraction(3, 10), Fraction(1, 10)), strict=True))
    expected = None
    for documents in (in_memory(contents), packed(contents, tmp_path)):
        for n_parts in (1, 3, 17):
            monkeypatch.setattr(splitting, "count_parts", lambda count, n=n_parts: n)
            parts = divide(documents, shares, name="a", is_utf8=False)
            found = [[piece.document.read() for piece in parts[split]] for split in SPLITS]
            for split, texts_of_split in zip(SPLITS, found, strict=True):
                assert parts[split].n_bytes == sum(map(len, texts_of_split))
            expected = expected or found
            assert found == expected
    assert [sorted(texts_of_split) for texts_of_split in expected] == by_hand(contents)


def by_hand(contents: list[bytes]) -> list[list[bytes]]:
    """Fill test to a tenth of all bytes and then valid to three, in order of hashes."""
    free = sorted(set(contents), key=lambda text: hashlib.sha256(text).digest())
    splits = {}
    for split, tenths in (("test", 1), ("valid", 3)):
        room = Fraction(tenths, 10) * sum(map(len, contents))
        taken = []
        for text in free:
            n_bytes = len(text) * contents.count(text)
            if n_bytes <= room:
                taken.append(text)
                room -= n_bytes
        splits[split] = taken
        free = [text for text in free if text not in taken]
    splits["train"] = free
    return [sorted(text for text in contents if text in splits[split]) for split in SPLITS]


@pytest.mark.usefixtures("_small_blocks")
def test_what_two_texts_share_is_found(tmp_path, monkeypatch):
    contents = texts(60, seed=2)
    others = [b"other", *texts(40, seed=3), contents[5]]
    common = set(contents) & set(others)
    first = min(common, key=lambda text: hashlib.sha256(text).hexdigest())
    for most in (1000, 9):
        number, other = shared_document(in_memory(contents), packed(others, tmp_path), most)
        assert contents[number] == others[other] == first
        assert shared_document(in_memory([b"x"]), in_memory(others), most) is None


@pytest.mark.usefixtures("_small_blocks")
def test_chosen_documents_are_numbered_through(tmp_path):
    contents = [b"%d" % number for number in range(50)]
    marks = np.array([number % 3 for number in range(50)], dtype=np.int8)
    chosen = WholeDocuments(packed(contents, tmp_path), marks, 2)
    expected = contents[2::3]
    assert len(chosen) == len(expected)
    assert [chosen[index].document.read() for index in range(len(chosen))] == expected
    assert [piece.document.read() for piece in chosen] == expected
    assert chosen[-1].document.read() == expected[-1]
    assert [piece.document.read() for piece in chosen[3:6]] == expected[3:6]
    with pytest.raises(IndexError):
        chosen[len(expected)]
    assert len(WholeDocuments([])) == 0
