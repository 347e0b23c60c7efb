"""Corpora by name: found, fetched, divided as published, and refused where they are damaged."""

import gzip
import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from sublayer.config.data import DataConfig
from sublayer.config.text.corpora import CORPORA as NAMES
from sublayer.data.corpora import published
from sublayer.data.corpora.lm1b import (
    HELD_OUT,
    RELEASE,
    TRAINING,
    extract_release,
    find_release,
    read_release,
)
from sublayer.data.corpora.named import CORPORA, find_sources
from sublayer.data.corpora.published import PublishedFile, PublishedRelease
from sublayer.data.corpora.python_docs import python_prose
from sublayer.data.prepare import prepare
from sublayer.data.text.documents import AS_FILES
from sublayer.data.text.files import FileDocument
from sublayer.errors import ConfigError, DataError
from sublayer.files.download import Download
from tests.data.releases import FILES, write_archive, write_release, write_zip
from tests.data.test_text import parquet

TEXT = b"some published text\n" * 50

NOWHERE = Download("http://127.0.0.1:1/small.zip", 1, "sha256", "")


def small(archive=NOWHERE):
    return PublishedFile("small", len(TEXT), hashlib.md5(TEXT).hexdigest(), archive)


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    monkeypatch.delenv("SUBLAYER_DATA", raising=False)


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def read_all(documents):
    return [bytes(document.read()[:]) for document in documents]


def test_paths_and_corpora_are_sources_in_order_with_their_weights(tmp_path, cache, data_folder):
    assert list(CORPORA) == list(NAMES)
    write_release(data_folder / "bookcorpus", {"a.txt": b"three\n"})
    write_release(tmp_path, {"a.txt": b"one", "b.txt": b"two"})
    paths = (str(tmp_path / "b.txt"), str(tmp_path / "*.txt"))
    sources = find_sources(paths, "bookcorpus", cache)
    assert [(source.name, len(source.documents), source.weight) for source in sources] == [
        (paths[0], 1, None),
        (paths[1], 2, None),
        ("bookcorpus", 1, None),
    ]
    sources = find_sources({paths[0]: 2.0}, {"bookcorpus": 0.5}, cache)
    assert [source.weight for source in sources] == [2.0, 0.5]
    with pytest.raises(ConfigError, match="there is no text: give data.path, or data.corpus as"):
        find_sources(None, None, cache)
    with pytest.raises(ConfigError, match="albert-intrinsic needs data.path: the files of SQuAD"):
        find_sources(None, "albert-intrinsic", cache)


EXPECTED = {
    "train": b"The first sentence .\nThe second sentence .\n",
    "valid": b"A held-out sentence .\nAnother one .\n",
    "test": b"A test sentence .\n",
}
ARCHIVED = {f"{RELEASE}/{name}": text for name, text in FILES.items()}


def joined(published):
    return {split: b"".join(read_all(documents)) for split, documents in published.items()}


def test_lm1b_has_its_published_split_as_a_folder_or_an_archive(tmp_path, cache):
    write_release(tmp_path / RELEASE)
    assert find_release(tmp_path) == find_release(tmp_path / RELEASE) == tmp_path / RELEASE
    assert find_release(tmp_path / RELEASE / TRAINING) is None
    archives = [
        write_archive(tmp_path / name, ARCHIVED, mode)
        for name, mode in (("release.tar.gz", "w:gz"), ("release.tar", "w"))
    ]
    for path in (tmp_path, *archives):
        (source,) = find_sources(str(path), None, cache)
        assert not source.documents
        assert joined(source.published) == EXPECTED
    folder = extract_release(archives[0], cache)
    (folder / TRAINING / "news.en-00001-of-00100").write_bytes(b"Seen .\n")
    assert extract_release(archives[0], cache) == folder, "it is extracted once"
    assert b"Seen ." in joined(read_release(folder, cache))["train"]


def test_nothing_is_extracted_outside_of_the_cache(tmp_path, cache):
    evil = {
        f"../../{TRAINING}/news.en-00001-of-00100": b"climbing .\n",
        f"/tmp/evil/{HELD_OUT}/news.en.heldout-00000-of-00050": b"absolute .\n",
        "../evil": b"other .\n",
    }
    folder = extract_release(write_archive(tmp_path / "evil.tar.gz", evil), cache)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".gz"]
    assert len(files) == 2 and all(path.is_relative_to(folder) for path in files)


def test_archives_that_are_not_the_release_or_damaged_are_refused(tmp_path, cache):
    text = {f"{HELD_OUT}/news.en.heldout-00000-of-00050": b"a .\n"}
    linked = write_archive(tmp_path / "link.tar", text, "w")
    with tarfile.open(linked, "a") as opened:
        link = tarfile.TarInfo(f"{TRAINING}/news.en-00001-of-00100")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        opened.addfile(link)
    other = write_archive(tmp_path / "books.tar.gz", {"books/a.txt": b"text"})
    for path in (linked, other):
        with pytest.raises(DataError, match=f"{path.name} is an archive and not the lm1b release"):
            extract_release(path, cache)
    path = write_archive(tmp_path / "release.tar.gz", ARCHIVED)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"release.tar.gz is a damaged archive"):
        extract_release(path, cache)
    assert not list(cache.rglob("*lm1b*"))


def test_a_corpus_is_downloaded_once_or_unpacked(cache, site):
    folder, url = site
    content = write_zip(folder / "small.zip", {"small": TEXT}).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    corpus = small(Download(f"{url}/small.zip", len(content), "sha256", digest))
    assert corpus(cache).documents[0].read()[:] == TEXT
    (folder / "small.zip").unlink()
    assert corpus(cache).documents[0].read()[:] == TEXT
    kept = cache / "corpora" / "small"
    assert list((cache / "corpora").iterdir()) == [kept]
    kept.unlink()
    write_zip(cache / "corpora" / "small.zip", {"small": TEXT})
    assert small()(cache).documents[0].read()[:] == TEXT
    (cache / "corpora" / "small").write_bytes(TEXT[:-1])
    with pytest.raises(DataError, match="small has 999 bytes, small has 1,000: put the whole file"):
        small()(cache)


def test_a_corpus_is_found_in_the_data_folder_or_the_cache(cache, tmp_path, monkeypatch):
    (cache / "corpora").mkdir(parents=True)
    write_archive(cache / "corpora" / f"{RELEASE}.tar.gz", ARCHIVED)
    assert len(PublishedRelease(NOWHERE)(cache).published["train"]) == 2
    with pytest.raises(DataError, match=r"small.zip cannot be .* put small into .*cache/corpora"):
        small()(cache)
    data = tmp_path / "data"
    monkeypatch.setenv("SUBLAYER_DATA", str(data))
    for corpus, name in ((small(), "small"), (PublishedRelease(NOWHERE), f"{RELEASE}.tar.gz")):
        with pytest.raises(DataError, match=rf"put {name} into {data}"):
            corpus(cache / "empty")
    write_release(data / "lm1b")
    found = PublishedRelease(NOWHERE)(cache).published["train"]
    assert all(document.name.startswith(str(data)) for document in found)
    for place in (data / "other" / "small", data / "small" / "small"):
        write_release(place.parent, {"small": TEXT})
    assert [document.name for document in small()(cache).documents] == [str(data / "small/small")]


def write_shard(folder, name, pages):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"text": f"Page {page:02}.", "timestamp": "", "url": ""}) for page in pages]
    (folder / name).write_bytes(gzip.compress("\n".join(lines).encode()))


def test_c4_is_its_shards_and_its_own_validation_is_held_out(data_folder, cache):
    folder = data_folder / "c4" / "en"
    write_shard(folder, "c4-train.00000-of-01024.json.gz", range(3))
    write_shard(folder, "c4-train.00001-of-01024.json.gz", range(10, 13))
    write_shard(folder, "c4-validation.00000-of-00008.json.gz", range(20, 25))
    data = prepare(DataConfig(corpus="c4", context=2), cache=cache)
    assert [data.tokenizer.decode(split.ids).decode() for split in data.splits()] == [
        "".join(f"Page {page:02}." for page in (0, 1, 2, 10, 11, 12)),
        "Page 20.Page 21.",
        "Page 22.Page 23.Page 24.",
    ]


def test_c4_of_the_hub_is_held_out_by_its_own_split(cache, monkeypatch):
    asked = []

    def read_hub(data_set, cache, reading, *, in_runs=False):
        asked.append(str(data_set))
        return [FileDocument(Path(f"{data_set.split}-{row}"), cache) for row in range(4)]

    monkeypatch.setattr(published, "read_hub", read_hub)
    (source,) = find_sources(None, "c4", cache)
    assert asked == ["hub:allenai/c4:en@train", "hub:allenai/c4:en@validation"]
    names = {split: [each.name for each in part] for split, part in source.published.items()}
    assert names["valid"] == ["validation-0", "validation-1"]
    assert names["test"] == ["validation-2", "validation-3"]
    assert len(names["train"]) == 4


def test_the_sentences_of_bookcorpus_are_joined_to_documents(data_folder, cache):
    place = data_folder / "bookcorpus"
    files = {"a_book.txt": b"A whole\n\nbook.\n", "books_large_p1.txt": b"one row .\n" * 1500}
    write_release(place, files)
    parquet(place / "train.parquet", {"text": ["two rows ."] * 2})
    expected = [b"one row .\n" * 1000, b"one row .\n" * 500, b"two rows .\n" * 2]
    assert read_all(CORPORA["bookcorpus"](cache, AS_FILES).documents) == [
        b"A whole\n\nbook.\n",
        *expected,
    ]


@pytest.fixture
def library(tmp_path, monkeypatch):
    monkeypatch.setattr("sublayer.data.corpora.python_docs._LEAST_BYTES", 10)
    inner = 'def f():\n    """Indented\n\n        more   \n    """\n    def g(): "inner"\n'
    tried = 'if 1:\n  class C: "Twice."\n  try:\n    def f(): "tried"\n  except E:\n    "no"\n'
    files = {
        "b.py": f'"""About b."""\n{inner}'.encode(),
        "a/__init__.py": b'class A:\n  """Twice."""\n  async def f(self):\n    """Twice."""\n',
        "c.py": tried.encode(),
        "latin.py": b'# coding: latin-1\n"""caf\xe9"""\n',
        "control.py": b'"""one \\x01 too"""\n',
        "surrogate.py": b'"""lone \\ud800 one"""\n',
        "email/tests/b.py": b'"""A test."""\n',
        "site-packages/x.py": b'"""Not the library."""\n',
        "pydoc_data/topics.py": b'topics = {"if": "The if\\n***\\n", "else": "Or\\n\\n  else"}\n',
    }
    return write_release(tmp_path / "lib", files)


def test_docstrings_and_topics_are_found_cleaned_and_cached(cache, library):
    first = python_prose(cache, library)
    assert {document.name: document.text.decode() for document in first} == {
        "a/__init__.py": "Twice.\n",
        "b.py": "About b.\n\nIndented\n\nmore\n\ninner\n",
        "c.py": "tried\n",
        "control.py": "one ? too\n",
        "latin.py": "café\n",
        "surrogate.py": "lone ? one\n",
        "topic else": "Or\n\n  else\n",
        "topic if": "The if\n***\n",
    }
    [cached] = (cache / "prose").iterdir()
    cached.write_text(json.dumps([["only", "this"]]))
    assert [document.text for document in python_prose(cache, library)] == [b"this"]
    cached.write_text("[[")
    assert python_prose(cache, library) == first
    (library / "b.py").write_text('"""Something else about b."""\n')
    texts = [document.text for document in python_prose(cache, library)]
    assert b"Something else about b.\n" in texts
    with pytest.raises(DataError, match=r"data.corpus = python: .* has no Python sources to read"):
        python_prose(cache, cache)
