import gzip
import json

import pytest

from sublayer.data.text.documents import Reading, read_documents, sniffed_kind
from sublayer.data.text.files import FileDocument
from sublayer.data.text.hub import HubSet, parse_hub
from sublayer.errors import ConfigError, DataError
from tests.data.text.test_records import parquet


def texts(entry: object, cache, rule=None, **settings) -> list[bytes]:
    return [
        bytes(each.read()[:])
        for each in read_documents(str(entry), cache, Reading(rule, **settings))
    ]


def test_files_are_documents_unless_something_else_is_said(tmp_path, cache):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "one"}\n\n{"text": "two"}\n')
    assert texts(tmp_path / "a.jsonl", cache) == texts(tmp_path / "a.jsonl", cache, "file")
    assert all(isinstance(each, FileDocument) for each in read_documents(str(tmp_path), cache))
    assert not (cache / "documents").exists()
    assert texts(tmp_path / "a.jsonl", cache, "json") == [b"one", b"two"]
    assert texts(tmp_path / "a.jsonl", cache, "blank-line") == [
        b'{"text": "one"}\n',
        b'{"text": "two"}\n',
    ]


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


def test_a_changed_file_is_read_anew(tmp_path, cache):
    for text in (b"one\n\ntwo", b"one\n\nTWO"):
        (tmp_path / "a.txt").write_bytes(text)
        assert texts(tmp_path / "a.txt", cache, "blank-line") == [b"one\n", text[5:]]


def test_no_document_with_text_is_an_error(tmp_path, cache):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": " "}\n')
    with pytest.raises(DataError, match="a.jsonl has no document with text"):
        texts(tmp_path / "a.jsonl", cache, "json")


def test_published_files_are_told_by_what_they_hold(tmp_path):
    for name, text, kind in [
        ("a", b'\n{"text": 1}', "json"),
        ("b", b'<doc id="1">', "articles"),
        ("c", b"words", "file"),
        ("d.gz", gzip.compress(b'{"text"'), "json"),
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


@pytest.mark.slow
def test_a_data_set_of_the_hub_is_fetched_once(hub_set, cache):
    found = read_documents("hub:owner/name", cache)
    assert [each.read() for each in found] == [b"one", b"two"]
    assert found[1].name == "hub:owner/name@train, document at line 3"
    (hub_set / "train.parquet").unlink()
    assert texts("hub:owner/name", cache, "json") == [b"one", b"two"]


@pytest.mark.slow
def test_a_data_set_without_the_field_or_the_split_is_named(hub_set, cache):
    with pytest.raises(
        DataError, match="hub:owner/name@train has no field 'body': set data.text_field to text, id"
    ):
        texts("hub:owner/name", cache, text_field="body")
    with pytest.raises(DataError, match="hub:owner/name@train, row 1: field 'id' is int, not text"):
        texts("hub:owner/name", cache, text_field="id")
    with pytest.raises(
        DataError, match=r"hub:owner/name@dev cannot be fetched from the hub \(.*dev"
    ) as raised:
        texts("hub:owner/name@dev", cache)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_without_a_network_a_data_set_is_one_line(tmp_path, cache, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    with pytest.raises(
        DataError, match=r"hub:owner/missing@train cannot be fetched from the hub \(.*\): "
    ) as raised:
        texts("hub:owner/missing", cache)
    assert "\n" not in str(raised.value)


def test_a_rule_for_files_contradicts_the_hub(cache):
    with pytest.raises(ConfigError, match="data.documents = blank-line contradicts hub:owner/name"):
        texts("hub:owner/name", cache, "blank-line")
