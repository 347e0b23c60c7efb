"""Documents of files, of packs that are read once, and of data sets of the hub."""

import gzip
import hashlib
import json
import sys
from pathlib import Path

import pytest

from sublayer.data.text.document_store import Records, digests_of, identity_of, open_pack
from sublayer.data.text.documents import Reading, read_documents, sniffed_kind
from sublayer.data.text.files import FileDocument, MemoryDocument
from sublayer.data.text.hub import HubSet, parse_hub
from sublayer.errors import ConfigError, DataError
from tests.data.text.test_records import parquet


def texts(entry: object, cache, rule=None, **settings) -> list[bytes]:
    documents = read_documents(str(entry), cache, Reading(rule, **settings))
    return [bytes(document.read()[:]) for document in documents]


def test_files_are_documents_unless_a_rule_divides_them(tmp_path, cache):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "one"}\n\n{"text": "two"}\n')
    assert texts(path, cache) == texts(path, cache, "file") == [path.read_bytes()]
    assert all(isinstance(document, FileDocument) for document in read_documents(str(path), cache))
    assert not (cache / "documents").exists()
    assert texts(path, cache, "json") == [b"one", b"two"]
    paragraphs = [b'{"text": "one"}\n', b'{"text": "two"}\n']
    assert texts(path, cache, "blank-line") == paragraphs
    path.write_bytes(b'{"text": "one"}\n\n{"text": " "}\n')
    assert texts(path, cache, "json") == [b"one"], "a file that changed is read anew"
    path.write_bytes(b'{"text": " "}\n')
    with pytest.raises(DataError, match="a.jsonl has no document with text"):
        texts(path, cache, "json")


def test_parquet_is_read_by_its_suffix_under_json_and_unset(tmp_path, cache):
    parquet(tmp_path / "b.parquet", {"text": ["one", "two"], "body": ["1", "2"]})
    (tmp_path / "a.txt").write_bytes(b"whole\n\ntext")
    for rule in (None, "json"):
        assert texts(tmp_path / "b.parquet", cache, rule) == [b"one", b"two"]
        assert texts(tmp_path / "*.parquet", cache, rule, text_field="body") == [b"1", b"2"]
    assert texts(tmp_path, cache) == [b"whole\n\ntext", b"one", b"two"]
    for rule in ("file", "blank-line"):
        with pytest.raises(DataError, match="b.parquet is packed, not text"):
            texts(tmp_path / "b.parquet", cache, rule)
        assert b"one" not in texts(tmp_path, cache, rule)


def test_of_a_folder_json_reads_files_of_that_name(tmp_path, cache):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "README.md").write_bytes(b"about")
    with pytest.raises(DataError, match="folder has no files of JSON lines or Parquet"):
        texts(folder, cache, "json")
    for name in ("b.json.gz", "a.jsonl", "c.ndjson"):
        data = json.dumps({"text": name}).encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert texts(folder, cache, "json") == [b"a.jsonl", b"b.json.gz", b"c.ndjson"]


def test_published_files_are_told_by_what_they_hold(tmp_path):
    for name, text, kind in [
        ("a", b'\n{"text": 1}', "json"),
        ("b", b'<doc id="1">', "articles"),
        ("c", b"words", "file"),
        ("d.gz", gzip.compress(b'{"text"', mtime=0), "json"),
        ("e.parquet", b"", "parquet"),
    ]:
        (tmp_path / name).write_bytes(text)
        assert sniffed_kind(tmp_path / name) == kind


def test_data_sets_of_the_hub_are_named():
    assert parse_hub("hub:a/b") == HubSet("a/b")
    assert parse_hub("hub:a-b/c.d_e:20231101.en@validation") == HubSet(
        "a-b/c.d_e", "20231101.en", "validation"
    )
    assert parse_hub("hub:a/b@train[:10%]").split == "train[:10%]"
    for entry in ("hub:a", "hub:", "hub:a/b/c", "hub:a/b:c:d"):
        with pytest.raises(DataError, match="does not name a data set: write hub:owner/name"):
            parse_hub(entry)


@pytest.fixture
def hub_set(tmp_path, monkeypatch):
    """A data set in a folder of the working directory, which the library takes for the hub's."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    parquet(folder / "train.parquet", {"text": ["one", "", "two"], "id": [1, 2, 3]})
    return folder


@pytest.mark.all
def test_a_data_set_of_the_hub_is_fetched_once(hub_set, cache):
    with pytest.raises(DataError, match="owner/name@train has no field 'body': .* text, id"):
        texts("hub:owner/name", cache, text_field="body")
    with pytest.raises(DataError, match="hub:owner/name@train, row 1: field 'id' is int, not text"):
        texts("hub:owner/name", cache, text_field="id")
    for missing in ("hub:owner/name@dev", "hub:owner/missing@dev"):
        with pytest.raises(DataError, match=rf"{missing} cannot be fetched from the hub \("):
            texts(missing, cache)
    with pytest.raises(ConfigError, match="data.documents = blank-line contradicts hub:owner/name"):
        texts("hub:owner/name", cache, "blank-line")
    documents = read_documents("hub:owner/name", cache)
    assert [document.read() for document in documents] == [b"one", b"two"]
    assert documents[1].name == "hub:owner/name@train, document at line 3"
    (hub_set / "train.parquet").unlink()
    assert texts("hub:owner/name", cache, "json") == [b"one", b"two"]


ONE = [(1, b"first"), (3, b" \n"), (4, "zw\u00e9i".encode())]
TWO = [(1, b"first"), (7, b"last")]
KEPT = [b"first", "zw\u00e9i".encode(), b"first", b"last"]


def read(documents) -> list[bytes]:
    return [document.read() for document in documents]


def fail():
    raise AssertionError("read again")


def pack(path: Path, *, is_distinct: bool = False) -> Records:
    return open_pack(
        path, [("a", lambda: iter(ONE)), ("b", lambda: iter(TWO))], is_distinct=is_distinct
    )


def test_documents_are_kept_in_order_with_where_they_were(tmp_path):
    records = pack(tmp_path / "pack")
    assert read(records) == KEPT
    lines = ["a, document at line 1", "a, document at line 4"]
    lines += ["b, document at line 1", "b, document at line 7"]
    assert [record.name for record in records] == lines
    digests = [hashlib.sha256(text).hexdigest() for text in KEPT]
    assert [record.digest() for record in records] == digests
    documents = [MemoryDocument("x", text) for text in KEPT]
    assert digests_of(documents, 0, 9).tolist() == digests_of(records, 0, 9).tolist()
    assert identity_of(documents) == digests
    assert (len(records), records.n_empty) == (4, 1)
    assert records[-1].read() == b"last"
    assert read(records[1:3]) == KEPT[1:3]
    with pytest.raises(IndexError):
        records[4]
    assert not hasattr(records[0], "__dict__") and sys.getsizeof(records[0]) <= 64
    assert read(pack(tmp_path / "distinct", is_distinct=True)) == [KEPT[0], KEPT[1], KEPT[3]]


def test_packed_documents_are_not_read_again(tmp_path):
    first = pack(tmp_path / "pack")
    again = open_pack(tmp_path / "pack", [("c", fail), ("d", fail)])
    assert read(again) == read(first)
    assert again[0].name == "c, document at line 1"
    assert (again.identity, again.n_empty) == (first.identity, 1)


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
