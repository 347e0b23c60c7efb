from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.text.split import parse_split
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.data.text.splitting import SPLITS, divide
from sublayer.errors import DataError

SHARES = dict(zip(SPLITS, parse_split("90/5/5"), strict=True))


def text_of(pieces: tuple[DocumentRange, ...]) -> bytes:
    return b"".join(bytes(piece.document.read()[piece.start : piece.stop]) for piece in pieces)


def divide_text(text: bytes, *, shares=SHARES, is_utf8: bool = False) -> dict[str, bytes]:
    parts = divide([MemoryDocument("text", text)], shares, name="text", is_utf8=is_utf8)
    return {split: text_of(pieces) for split, pieces in parts.items()}


def test_one_text_is_cut_at_90_and_95_percent_rounded_down():
    text = bytes(range(99))
    # 99 * 0.9 = 89.1, 99 * 0.95 = 94.05
    assert divide_text(text) == {"train": text[:89], "valid": text[89:94], "test": text[94:]}


def test_shares_are_exact():
    shares = dict(zip(SPLITS, parse_split("70/20/10"), strict=True))
    # In floating point, 0.7 + 0.2 is less than 0.9.
    assert [len(part) for part in divide_text(bytes(10), shares=shares).values()] == [7, 2, 1]


@given(st.binary(min_size=60, max_size=400))
def test_the_parts_of_one_text_are_the_text(text):
    assert b"".join(divide_text(text).values()) == text


@given(st.text(st.characters(codec="utf-8"), min_size=90, max_size=200))
def test_cuts_of_utf8_fall_between_characters(text):
    parts = divide_text(text.encode(), is_utf8=True)
    assert "".join(part.decode() for part in parts.values()) == text
    n_bytes = len(text.encode())
    assert 0 <= len(parts["test"]) - (n_bytes - n_bytes * 95 // 100) <= 3


def test_a_split_that_is_taken_from_elsewhere_gets_nothing():
    text = bytes(range(100))
    parts = divide_text(text, shares={"train": Fraction(19, 20), "test": Fraction(1, 20)})
    assert parts == {"train": text[:95], "valid": b"", "test": text[95:]}


def test_a_text_too_short_for_three_splits_is_refused():
    with pytest.raises(DataError, match="text has 10 bytes, too few for a valid split"):
        divide_text(b"0123456789")


def documents(sizes: list[int]) -> list[MemoryDocument]:
    return [
        MemoryDocument(f"{index}", index.to_bytes(2, "big") * (size // 2))
        for index, size in enumerate(sizes)
    ]


def test_whole_documents_go_to_one_split_each():
    found = documents([200] * 100)
    parts = divide(found, SHARES, name="folder", is_utf8=False)
    assert {split: len(pieces) for split, pieces in parts.items()} == {
        "train": 90,
        "valid": 5,
        "test": 5,
    }
    names = [piece.document.name for pieces in parts.values() for piece in pieces]
    assert sorted(names) == sorted(document.name for document in found)
    assert all(
        piece == DocumentRange(piece.document) for pieces in parts.values() for piece in pieces
    )


def test_the_division_depends_on_contents_and_not_on_order():
    found = documents([200] * 40)
    parts = divide(found, SHARES, name="folder", is_utf8=False)
    again = divide(found[::-1], SHARES, name="folder", is_utf8=False)
    assert {split: set(pieces) for split, pieces in parts.items()} == {
        split: set(pieces) for split, pieces in again.items()
    }
    test_names = [int(piece.document.name) for piece in parts["test"]]
    assert test_names not in ([0, 1], [38, 39])


def test_documents_stay_in_order_within_a_split():
    parts = divide(documents([200] * 40), SHARES, name="folder", is_utf8=False)
    for pieces in parts.values():
        names = [int(piece.document.name) for piece in pieces]
        assert names == sorted(names)


def test_few_documents_give_the_smallest_to_the_small_splits():
    parts = divide(documents([1000, 400, 200]), SHARES, name="folder", is_utf8=False)
    assert [piece.document.name for piece in parts["train"]] == ["0"]
    assert {piece.document.name for piece in (*parts["valid"], *parts["test"])} == {"1", "2"}


def test_equal_documents_never_straddle_splits():
    found = [MemoryDocument(f"{index}", bytes([index // 4]) * 100) for index in range(80)]
    parts = divide(found, SHARES, name="folder", is_utf8=False)
    contents = [{text_of((piece,)) for piece in pieces} for pieces in parts.values()]
    assert not (contents[0] & contents[1] or contents[0] & contents[2] or contents[1] & contents[2])
    assert sum(len(pieces) for pieces in parts.values()) == 80


@given(
    st.lists(st.integers(1, 500), min_size=3, max_size=30),
    st.sampled_from(["90/5/5", "34/33/33", "2/49/49"]),
)
def test_every_split_gets_documents(sizes, split):
    shares = dict(zip(SPLITS, parse_split(split), strict=True))
    found = [
        MemoryDocument(f"{index}", index.to_bytes(2, "big") * size)
        for index, size in enumerate(sizes)
    ]
    parts = divide(found, shares, name="folder", is_utf8=False)
    assert all(parts[name] for name in SPLITS)
    assert sum(len(pieces) for pieces in parts.values()) == len(sizes)


@pytest.mark.parametrize("contents", [[b"a", b"b"], [b"a", b"a", b"b"]])
def test_too_few_different_documents_are_refused(contents):
    found = [MemoryDocument(f"{index}", content) for index, content in enumerate(contents)]
    with pytest.raises(
        DataError, match=r"folder has 2 different documents, too few for 3 splits by document"
    ):
        divide(found, SHARES, name="folder", is_utf8=False)


def test_documents_for_training_alone_are_not_divided():
    parts = divide(documents([10, 20]), {"train": Fraction(1)}, name="folder", is_utf8=False)
    assert {split: len(pieces) for split, pieces in parts.items()} == {
        "train": 2,
        "valid": 0,
        "test": 0,
    }


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
