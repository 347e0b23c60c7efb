"""Documents in order of their content hashes: the same whatever is in memory at a time."""

import hashlib
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from sublayer.data.text import content_order, splitting, whole_documents
from sublayer.data.text.content_order import in_content_order, shared_document
from sublayer.data.text.document_store import open_pack
from sublayer.data.text.files import Document, MemoryDocument
from sublayer.data.text.splitting import SPLITS, divide
from sublayer.data.text.whole_documents import WholeDocuments


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


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(content_order, "_BLOCK", 7)
    monkeypatch.setattr(whole_documents, "_BLOCK", 11)


@pytest.mark.parametrize("n_parts", [1, 2, 5, 64])
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


@pytest.mark.parametrize("n_documents", [12, 20, 200])
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


def test_what_two_texts_share_is_found(tmp_path, monkeypatch):
    contents = texts(60, seed=2)
    others = [b"other", *texts(40, seed=3), contents[5]]
    common = set(contents) & set(others)
    first = min(common, key=lambda text: hashlib.sha256(text).hexdigest())
    for most in (1000, 9):
        number, other = shared_document(in_memory(contents), packed(others, tmp_path), most)
        assert contents[number] == others[other] == first
        assert shared_document(in_memory([b"x"]), in_memory(others), most) is None


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
