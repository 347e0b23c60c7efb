"""Documents of files, of packs that are read once, and of data sets of the hub."""

import gzip
import hashlib
import json
import sys

import pytest

from sublayer.data.text.document_store import digests_of, identity_of, open_pack
from sublayer.data.text.documents import Reading, read_documents, sniffed_kind
from sublayer.data.text.files import MemoryDocument
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
    assert not (cache / "documents").exists()
    assert texts(path, cache, "json") == [b"one", b"two"]
    assert texts(path, cache, "blank-line") == [b'{"text": "one"}\n', b'{"text": "two"}\n']
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
    assert texts(tmp_path, cache, "blank-line") == [b"whole\n", b"text"]
    with pytest.raises(DataError, match="b.parquet is packed, not text"):
        texts(tmp_path / "b.parquet", cache, "file")


def test_json_of_a_folder_is_read_by_the_names_of_files(tmp_path, cache):
    (tmp_path / "README.md").write_bytes(b"about")
    with pytest.raises(DataError, match="has no files of JSON lines or Parquet"):
        texts(tmp_path, cache, "json")
    for name in ("b.json.gz", "a.jsonl", "c.ndjson"):
        data = json.dumps({"text": name}).encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    assert texts(tmp_path, cache, "json") == [b"a.jsonl", b"b.json.gz", b"c.ndjson"]


def test_published_files_are_told_apart_by_their_content(tmp_path):
    for text, kind in (
        (b'\n{"text": 1}', "json"),
        (b'<doc id="1">', "articles"),
        (b"words", "file"),
    ):
        (tmp_path / "a.gz").write_bytes(gzip.compress(text))
        assert sniffed_kind(tmp_path / "a.gz") == kind
    assert sniffed_kind(tmp_path / "a.parquet") == "parquet"


def test_data_sets_of_the_hub_are_named():
    assert parse_hub("hub:a/b@train[:10%]") == HubSet("a/b", split="train[:10%]")
    named = HubSet("a-b/c.d_e", "20231101.en", "validation")
    assert parse_hub("hub:a-b/c.d_e:20231101.en@validation") == named
    for entry in ("hub:a", "hub:a/b/c", "hub:a/b:c:d"):
        with pytest.raises(DataError, match="does not name a data set: write hub:owner/name"):
            parse_hub(entry)


@pytest.mark.all
def test_a_data_set_of_the_hub_is_fetched_once(tmp_path, monkeypatch, cache):
    # A data set in a folder of the working directory, which the library takes for the hub's.
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    parquet(folder / "train.parquet", {"text": ["one", "", "two"], "id": [1, 2, 3]})
    with pytest.raises(DataError, match="owner/name@train has no field 'body': .* text, id"):
        texts("hub:owner/name", cache, text_field="body")
    with pytest.raises(DataError, match=r"hub:owner/name@dev cannot be fetched from the hub \("):
        texts("hub:owner/name@dev", cache)
    with pytest.raises(ConfigError, match="data.documents = blank-line contradicts hub:owner/name"):
        texts("hub:owner/name", cache, "blank-line")
    documents = read_documents("hub:owner/name", cache)
    assert [document.read() for document in documents] == [b"one", b"two"]
    assert documents[1].name == "hub:owner/name@train, document at line 3"
    (folder / "train.parquet").unlink()
    assert texts("hub:owner/name", cache, "json") == [b"one", b"two"]


def test_documents_are_packed_in_order_with_their_places_and_read_once(tmp_path):
    # SHA-256 of "403" ends in a zero byte, which numpy's byte strings do not show.
    kept = [b"first", b"403", b"first", b"last"]
    assert hashlib.sha256(kept[1]).digest().endswith(b"\0")
    one, two = [(1, kept[0]), (3, b" \n"), (4, kept[1])], [(1, kept[2]), (7, kept[3])]
    sources = [("a", lambda: iter(one)), ("b", lambda: iter(two))]
    records = open_pack(tmp_path / "pack", sources)
    places = [f"{file}, document at line {n}" for file in "ab" for n in (1, 4 if file == "a" else 7)]
    for found in (records, open_pack(tmp_path / "pack", [("a", pytest.fail), ("b", pytest.fail)])):
        assert [record.read() for record in found] == kept
        assert [record.name for record in found] == places
        assert (len(found), found.n_empty, found.identity) == (4, 1, records.identity)
    digests = [hashlib.sha256(text).hexdigest() for text in kept]
    assert [record.digest() for record in records] == digests
    documents = [MemoryDocument("x", text) for text in kept]
    assert digests_of(documents, 0, 9).tolist() == digests_of(records, 0, 9).tolist()
    assert identity_of(documents) == digests
    assert records[-1].read() == b"last"
    assert [record.read() for record in records[1:3]] == kept[1:3]
    with pytest.raises(IndexError):
        records[4]
    assert not hasattr(records[0], "__dict__") and sys.getsizeof(records[0]) <= 64
    distinct = open_pack(tmp_path / "distinct", sources, is_distinct=True)
    assert [record.read() for record in distinct] == [kept[0], kept[1], kept[3]]
    whole = (tmp_path / "pack").read_bytes()
    n_text = 8 * 3
    for place in (*range(n_text, len(whole), 7), len(whole) - 1):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        for content in (bytes(damaged), whole[:place]):
            (tmp_path / "pack").write_bytes(content)
            again = open_pack(tmp_path / "pack", sources)
            assert [each.read() for each in again] == kept
            assert (tmp_path / "pack").read_bytes() == whole

    def broken():
        yield 1, b"one"
        raise DataError("a, line 2: broken")

    with pytest.raises(DataError, match="a, line 2: broken"):
        open_pack(tmp_path / "packs" / "pack", [("a", broken)])
    assert not (tmp_path / "packs").exists(), "a broken record leaves nothing behind"
