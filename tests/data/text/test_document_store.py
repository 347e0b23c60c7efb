import hashlib
import sys
from pathlib import Path

import pytest

from sublayer.data.text.document_store import Records, digests_of, identity_of, open_pack
from sublayer.data.text.files import MemoryDocument
from sublayer.errors import DataError
from sublayer.files.cache_folder import lock_of
from tests.waiting import waits_until

ONE = [(1, b"first"), (3, b" \n"), (4, "zw\u00e9i".encode())]
TWO = [(1, b"first"), (7, b"last")]


def pack(path: Path, *, is_distinct: bool = False) -> Records:
    return open_pack(
        path, [("a", lambda: iter(ONE)), ("b", lambda: iter(TWO))], is_distinct=is_distinct
    )


def test_documents_are_kept_in_order_with_where_they_were(tmp_path, capsys):
    records = pack(tmp_path / "pack")
    assert [each.read() for each in records] == [b"first", "zw\u00e9i".encode(), b"first", b"last"]
    names = [
        "a, document at line 1",
        "a, document at line 4",
        "b, document at line 1",
        "b, document at line 7",
    ]
    assert [each.name for each in records] == names
    assert [each.digest() for each in records] == [
        hashlib.sha256(each.read()).hexdigest() for each in records
    ]
    assert (len(records), records.n_empty) == (4, 1)
    assert records[-1].read() == b"last"
    assert [each.read() for each in records[1:3]] == ["zw\u00e9i".encode(), b"first"]
    with pytest.raises(IndexError):
        records[4]
    assert capsys.readouterr().err == "a: 1 document without text left out\n"


def test_equal_documents_may_be_kept_once(tmp_path):
    records = pack(tmp_path / "pack", is_distinct=True)
    assert [each.read() for each in records] == [b"first", "zw\u00e9i".encode(), b"last"]


def test_what_was_packed_is_not_read_again(tmp_path):
    first = pack(tmp_path / "pack")

    def fail():
        raise AssertionError("read again")

    again = open_pack(tmp_path / "pack", [("c", fail), ("d", fail)])
    assert [each.read() for each in again] == [each.read() for each in first]
    assert again[0].name == "c, document at line 1"
    assert again.identity == first.identity
    assert again.n_empty == 1


def test_a_damaged_pack_is_made_again(tmp_path):
    expected = [each.read() for each in pack(tmp_path / "pack")]
    whole = (tmp_path / "pack").read_bytes()
    n_text = 8 * 3
    for place in (*range(n_text, len(whole), 7), len(whole) - 1):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        for content in (bytes(damaged), whole[:place]):
            (tmp_path / "pack").write_bytes(content)
            assert [each.read() for each in pack(tmp_path / "pack")] == expected
            assert (tmp_path / "pack").read_bytes() == whole


def test_a_document_costs_little_memory(tmp_path):
    records = pack(tmp_path / "pack")
    assert not hasattr(records[0], "__dict__")
    assert sys.getsizeof(records[0]) <= 64


def test_documents_are_named_by_their_digests(tmp_path):
    records = pack(tmp_path / "pack")
    documents = [MemoryDocument("x", each.read()) for each in records]
    assert digests_of(documents, 0, 9).tolist() == digests_of(records, 0, 9).tolist()
    assert identity_of(documents) == [each.digest() for each in records]


def test_a_digest_that_ends_in_zeros_is_whole(tmp_path):
    # SHA-256 of "276" ends in a zero byte, which numpy's byte strings do not show.
    texts = [(1, b"%d" % number) for number in range(600)]
    ending = [text for _, text in texts if hashlib.sha256(text).digest().endswith(b"\0")]
    assert ending
    records = open_pack(tmp_path / "pack", [("a", lambda: iter(texts))])
    assert [each.digest() for each in records] == [
        hashlib.sha256(text).hexdigest() for _, text in texts
    ]


def test_a_broken_record_leaves_nothing_behind(tmp_path):
    def broken():
        yield 1, b"one"
        raise DataError("a, line 2: broken")

    with pytest.raises(DataError, match="a, line 2: broken"):
        open_pack(tmp_path / "packs" / "pack", [("a", broken)])
    assert not list(tmp_path.iterdir())


def test_of_several_processes_one_packs_and_the_others_wait(tmp_path):
    path = tmp_path / "pack"
    other = tmp_path / "other"
    pack(other)

    def fail():
        raise AssertionError("read again")

    records = waits_until(
        lock_of(path),
        "waiting for another process, which reads the documents of a and 1 other",
        lambda: open_pack(path, [("a", fail), ("b", fail)]),
        lambda: other.rename(path),
    )
    assert len(records) == 4
    assert list(tmp_path.iterdir()) == [path]
