import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from sublayer.config.data import DataConfig
from sublayer.config.text.corpora import CORPORA as NAMES
from sublayer.data.corpora import published
from sublayer.data.corpora.lm1b import RELEASE
from sublayer.data.corpora.named import CORPORA, find_sources
from sublayer.data.corpora.published import PublishedFile, PublishedRecords, PublishedRelease
from sublayer.data.prepare import prepare
from sublayer.data.text.documents import AS_FILES, Reading
from sublayer.data.text.files import FileDocument
from sublayer.data.text.hub import HubSet
from sublayer.errors import ConfigError, DataError
from sublayer.files.download import Download
from tests.data.corpora.releases import FILES, write_archive, write_release, write_zip
from tests.data.text.test_records import parquet

TEXT = b"some published text\n" * 50
NOWHERE = Download("http://127.0.0.1:1/small.zip", 1, "sha256", "")


def small(archive: Download = NOWHERE) -> PublishedFile:
    return PublishedFile("small", len(TEXT), hashlib.md5(TEXT).hexdigest(), archive)


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    monkeypatch.delenv("SUBLAYER_DATA", raising=False)


def test_every_corpus_of_a_recipe_is_known():
    assert list(CORPORA) == list(NAMES)


def test_records_are_read_of_those_corpora_that_a_recipe_says_have_them():
    readers = [name for name, reader in CORPORA.items() if isinstance(reader, PublishedRecords)]
    assert readers == [name for name, row in NAMES.items() if row.has_records]


@pytest.fixture
def books(tmp_path, monkeypatch):
    """A corpus of one small file, by its name."""
    monkeypatch.setenv("SUBLAYER_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "bookcorpus").mkdir(parents=True)
    (tmp_path / "data" / "bookcorpus" / "a.txt").write_bytes(b"three\n")
    return "bookcorpus"


def test_paths_and_corpora_are_sources_in_order(tmp_path, cache, books):
    (tmp_path / "a.txt").write_bytes(b"one")
    (tmp_path / "b.txt").write_bytes(b"two")
    found = find_sources((str(tmp_path / "b.txt"), str(tmp_path / "*.txt")), books, cache)
    assert [source.name for source in found] == [
        str(tmp_path / "b.txt"),
        str(tmp_path / "*.txt"),
        books,
    ]
    assert [len(source.documents) for source in found] == [1, 2, 1]
    assert all(source.weight is None for source in found)


def test_weights_are_kept(tmp_path, cache, books):
    (tmp_path / "a.txt").write_bytes(b"one")
    found = find_sources({str(tmp_path / "a.txt"): 2.0}, {books: 0.5}, cache)
    assert [source.weight for source in found] == [2.0, 0.5]


def test_no_text_at_all_is_refused(cache):
    with pytest.raises(
        ConfigError,
        match="there is no text: give data.path, or data.corpus as one of python, enwik8",
    ):
        find_sources(None, None, cache)


def test_a_path_with_the_layout_of_lm1b_has_the_published_split(tmp_path, cache):
    write_release(tmp_path / RELEASE)
    archive = write_archive(
        tmp_path / "release.tar.gz", {f"{RELEASE}/{name}": text for name, text in FILES.items()}
    )
    for path in (tmp_path, tmp_path / RELEASE, archive):
        (source,) = find_sources(str(path), None, cache)
        assert not source.documents
        assert {split: len(found) for split, found in source.published.items()} == {
            "train": 2,
            "valid": 2,
            "test": 1,
        }


def test_a_corpus_is_found_in_the_data_folder_or_the_cache(tmp_path, cache, monkeypatch):
    for folder in (cache / "corpora", tmp_path / "data"):
        if folder.name == "data":
            monkeypatch.setenv("SUBLAYER_DATA", str(folder))
        for place in (folder / "small" / "small", folder / "small"):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(TEXT)
            assert [document.name for document in small()(cache).documents] == [str(place)]
            place.unlink()
            if place.parent.name == "small":
                place.parent.rmdir()


def test_a_zip_file_beside_it_will_do(cache):
    (cache / "corpora").mkdir(parents=True)
    write_zip(cache / "corpora" / "small.zip", {"small": TEXT})
    assert small()(cache).documents[0].read()[:] == TEXT


def test_a_corpus_is_downloaded_once(cache, site):
    folder, url = site
    content = write_zip(folder / "small.zip", {"small": TEXT}).read_bytes()
    corpus = small(
        Download(f"{url}/small.zip", len(content), "sha256", hashlib.sha256(content).hexdigest())
    )
    assert corpus(cache).documents[0].read()[:] == TEXT
    (folder / "small.zip").unlink()
    assert corpus(cache).documents[0].read()[:] == TEXT
    assert [path.name for path in (cache / "corpora").iterdir()] == ["small"]


def test_a_part_of_a_corpus_is_refused(cache):
    (cache / "corpora").mkdir(parents=True)
    (cache / "corpora" / "small").write_bytes(TEXT[:-1])
    with pytest.raises(
        DataError,
        match="small has 999 bytes, small has 1,000: put the whole file there, or name a part",
    ):
        small()(cache)


def test_without_a_network_it_is_said_where_the_file_goes(cache, tmp_path, monkeypatch):
    with pytest.raises(
        DataError,
        match=r"small.zip cannot be downloaded .*: fetch it .* put small into .*cache/corpora",
    ):
        small()(cache)
    monkeypatch.setenv("SUBLAYER_DATA", str(tmp_path / "data"))
    with pytest.raises(DataError, match=rf"put small into {tmp_path / 'data'}") as raised:
        small()(cache)
    assert "\n" not in str(raised.value)
    with pytest.raises(DataError, match=rf"put {RELEASE}.tar.gz into {tmp_path / 'data'}"):
        PublishedRelease(NOWHERE)(cache)


def test_lm1b_is_found_as_a_folder_or_as_its_archive(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_DATA", str(tmp_path / "data"))
    archive = {f"{RELEASE}/{name}": text for name, text in FILES.items()}
    (cache / "corpora").mkdir(parents=True)
    write_archive(cache / "corpora" / f"{RELEASE}.tar.gz", archive)
    assert len(PublishedRelease(NOWHERE)(cache).published["train"]) == 2
    write_release(tmp_path / "data" / "lm1b")
    found = PublishedRelease(NOWHERE)(cache).published["train"]
    assert all(document.name.startswith(str(tmp_path / "data")) for document in found)


RECORDS = {
    "wikipedia": PublishedRecords("wikipedia", HubSet("nobody/missing")),
    "bookcorpus": CORPORA["bookcorpus"],
    "c4": CORPORA["c4"],
}
ARTICLE = b'<doc id="1" url="x" title="A">\nA\n\nOne came.\n</doc>\n'


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def texts_of(name: str, cache, reading: Reading = AS_FILES) -> list[bytes]:
    return [bytes(document.read()[:]) for document in RECORDS[name](cache, reading).documents]


def test_wikipedia_is_read_in_each_published_form(data_folder, cache):
    (data_folder / "wikipedia" / "AA").mkdir(parents=True)
    place = data_folder / "wikipedia"
    (place / "AA" / "wiki_00").write_bytes(ARTICLE)
    (place / "AA" / "wiki_01").write_bytes(b'{"id": "2", "title": "B", "text": "Two came."}\n')
    (place / "c.txt").write_bytes(b"Three\n\ncame.")
    parquet(
        place / "train-00000-of-00001.parquet",
        {"id": ["4"], "title": ["D"], "text": ["Four came."]},
    )
    assert texts_of("wikipedia", cache) == [
        b"One came.\n",
        b"Two came.",
        b"Three\n\ncame.",
        b"Four came.",
    ]
    assert texts_of("wikipedia", cache, Reading("blank-line"))[-2:] == [b"Three\n", b"came."]


def write_shard(folder: Path, name: str, pages: range) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": f"Page {page:02}.", "timestamp": "", "url": ""}) for page in pages]
    (folder / name).write_bytes(gzip.compress("\n".join(lines).encode()))


def test_c4_is_its_shards_and_its_own_validation_is_held_out(data_folder, cache):
    folder = data_folder / "c4" / "en"
    write_shard(folder, "c4-train.00000-of-01024.json.gz", range(3))
    write_shard(folder, "c4-train.00001-of-01024.json.gz", range(10, 13))
    write_shard(folder, "c4-validation.00000-of-00008.json.gz", range(20, 25))
    data = prepare(DataConfig(corpus="c4", context=2), cache=cache)
    texts = {}
    for split in (data.train, data.valid, data.test):
        texts[split.name] = data.tokenizer.decode(split.ids).decode()
    assert texts["train"] == "".join(f"Page {page:02}." for page in (0, 1, 2, 10, 11, 12))
    assert texts["valid"] == "Page 20.Page 21."
    assert texts["test"] == "Page 22.Page 23.Page 24."


@pytest.mark.parametrize(
    ("there", "missing"), [("train", "c4-validation.*"), ("validation", "c4-train.*")]
)
def test_c4_without_one_of_its_splits_is_refused(data_folder, cache, there, missing):
    write_shard(data_folder / "c4", f"c4-{there}.00000-of-00008.json.gz", range(3))
    with pytest.raises(DataError, match=rf"c4 has no {re.escape(missing)}, .*put its files there"):
        find_sources(None, "c4", cache)


def test_c4_of_the_hub_is_held_out_by_its_own_split(cache, monkeypatch):
    asked = []

    def read_hub(data_set: HubSet, cache, reading, *, in_runs=False):
        asked.append(str(data_set))
        return [FileDocument(Path(f"{data_set.split}-{row}"), cache) for row in range(4)]

    monkeypatch.setattr(published, "read_hub", read_hub)
    (source,) = find_sources(None, "c4", cache)
    assert asked == ["hub:allenai/c4:en@train", "hub:allenai/c4:en@validation"]
    names = {
        split: [document.name for document in part] for split, part in source.published.items()
    }
    assert names["valid"] == ["validation-0", "validation-1"]
    assert names["test"] == ["validation-2", "validation-3"]
    assert len(names["train"]) == 4


def test_the_sentences_of_bookcorpus_are_joined_to_documents(data_folder, cache):
    place = data_folder / "bookcorpus"
    place.mkdir(parents=True)
    (place / "a_book.txt").write_bytes(b"A whole\n\nbook.\n")
    (place / "books_large_p1.txt").write_bytes(b"one row .\n" * 1500)
    parquet(place / "train.parquet", {"text": ["two rows ."] * 2})
    book, first, second, rows = texts_of("bookcorpus", cache)
    assert book == b"A whole\n\nbook.\n"
    assert (first, second) == (b"one row .\n" * 1000, b"one row .\n" * 500)
    assert rows == b"two rows .\n" * 2


@pytest.mark.slow
def test_without_folder_and_network_it_is_said_where_the_files_go(cache, monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    for name in RECORDS:
        with pytest.raises(
            DataError, match=rf"data.corpus = {name}: .* put the published files into .*/{name}"
        ) as raised:
            texts_of(name, cache)
        assert "\n" not in str(raised.value)


def test_corpora_of_records_are_mixed_by_weight(data_folder, cache, tmp_path):
    for name in ("wikipedia", "bookcorpus"):
        (data_folder / name).mkdir(parents=True)
        n = 40 if name == "wikipedia" else 3200
        lines = "".join(f'{{"text": "{name} {number}. It is short."}}\n' for number in range(n))
        (data_folder / name / "a.txt").write_text(lines)
    config = DataConfig(
        corpus={"wikipedia": 3.0, "bookcorpus": 1.0}, sentences="prose", context=8, split="80/10/10"
    )
    data = prepare(config, cache=cache)
    assert data.train.weights == (3.0, 1.0)
    assert data.train.sources == ("wikipedia", "bookcorpus")
    assert len(data.train.store.source_starts) == 2
    assert set(data.train.store.source_starts.tolist()) <= set(data.train.document_starts.tolist())


def test_passages_need_a_path(cache):
    with pytest.raises(
        ConfigError, match="data.corpus = albert-intrinsic needs data.path: the files of SQuAD"
    ):
        find_sources(None, "albert-intrinsic", cache)
