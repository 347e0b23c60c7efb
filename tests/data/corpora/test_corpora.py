"""Corpora by name: found, fetched, divided as published, and refused where they are damaged."""

import gzip
import hashlib
import json
import re
import tarfile
from pathlib import Path

import pytest

from sublayer.config.data import DataConfig
from sublayer.config.text.corpora import CORPORA as NAMES
from sublayer.data.corpora import published
from sublayer.data.corpora.albert_intrinsic import read_passages
from sublayer.data.corpora.lm1b import (
    HELD_OUT,
    RELEASE,
    TRAINING,
    extract_release,
    find_release,
    read_release,
)
from sublayer.data.corpora.named import CORPORA, find_sources
from sublayer.data.corpora.published import PublishedFile, PublishedRecords, PublishedRelease
from sublayer.data.corpora.python_docs import python_prose
from sublayer.data.prepare import prepare, prepare_text
from sublayer.data.text.documents import AS_FILES, Reading
from sublayer.data.text.files import FileDocument
from sublayer.data.text.hub import HubSet
from sublayer.data.tokenizers.named import train_tokenizer
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
    readers = [name for name, reader in CORPORA.items() if isinstance(reader, PublishedRecords)]
    assert readers == [name for name, row in NAMES.items() if row.has_records]


def test_paths_and_corpora_are_sources_in_order_with_their_weights(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("SUBLAYER_DATA", str(tmp_path / "data"))
    (tmp_path / "data" / "bookcorpus").mkdir(parents=True)
    (tmp_path / "data" / "bookcorpus" / "a.txt").write_bytes(b"three\n")
    (tmp_path / "a.txt").write_bytes(b"one")
    (tmp_path / "b.txt").write_bytes(b"two")
    paths = (str(tmp_path / "b.txt"), str(tmp_path / "*.txt"))
    sources = find_sources(paths, "bookcorpus", cache)
    assert [source.name for source in sources] == [*paths, "bookcorpus"]
    assert [len(source.documents) for source in sources] == [1, 2, 1]
    assert all(source.weight is None for source in sources)
    sources = find_sources({str(tmp_path / "a.txt"): 2.0}, {"bookcorpus": 0.5}, cache)
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


def joined(published) -> dict[str, bytes]:
    texts = {}
    for split, documents in published.items():
        texts[split] = b"".join(bytes(document.read()[:]) for document in documents)
    return texts


def test_lm1b_has_its_published_split_as_a_folder_or_an_archive(tmp_path, cache):
    write_release(tmp_path / RELEASE)
    assert find_release(tmp_path) == find_release(tmp_path / RELEASE) == tmp_path / RELEASE
    assert find_release(tmp_path / RELEASE / TRAINING) is None
    archives = [
        write_archive(tmp_path / name, ARCHIVED, mode)
        for name, mode in (("release.tar.gz", "w:gz"), ("release.tar", "w"))
    ]
    for path in (tmp_path, tmp_path / RELEASE, *archives):
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
        f"{HELD_OUT}/news.en.heldout-00001-of-00050": b"plain .\n",
        "../evil": b"other .\n",
    }
    folder = extract_release(write_archive(tmp_path / "evil.tar.gz", evil), cache)
    written = sorted(
        path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".gz"
    )
    assert all(path.is_relative_to(folder) for path in written)
    assert len(written) == 3


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
    big = {f"{TRAINING}/news.en-00001-of-00100": bytes(range(256)) * 4000, **FILES}
    path = write_archive(tmp_path / "release.tar.gz", big)
    whole = path.read_bytes()
    for keep in (0, 10, 200):
        path.write_bytes(whole[:keep])
        with pytest.raises(DataError, match=r"release.tar.gz is a damaged archive"):
            extract_release(path, cache)
    assert not list(cache.rglob("*lm1b*"))


@pytest.mark.parametrize("missing", ["train", "valid", "test"])
def test_a_release_without_one_of_its_splits_is_refused(tmp_path, cache, missing):
    kept = {name: text for name, text in FILES.items() if text not in EXPECTED[missing]}
    folder = write_release(tmp_path, kept)
    for name in (TRAINING, HELD_OUT):
        (folder / name).mkdir(exist_ok=True)
    with pytest.raises(DataError, match=f"lacks the {missing} files of lm1b"):
        read_release(folder, cache)


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


@pytest.mark.all
def test_without_a_network_the_folder_of_a_corpus_is_named(cache, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    for name in RECORDS:
        with pytest.raises(
            DataError, match=rf"data.corpus = {name}: .* put the published .*/{name}"
        ):
            texts_of(name, cache)


def test_a_file_that_cannot_be_downloaded_is_asked_for(cache, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"small.zip cannot be .* put small into .*cache/corpora"):
        small()(cache)
    monkeypatch.setenv("SUBLAYER_DATA", str(tmp_path / "data"))
    for corpus, name in ((small(), "small"), (PublishedRelease(NOWHERE), f"{RELEASE}.tar.gz")):
        with pytest.raises(DataError, match=rf"put {name} into {tmp_path / 'data'}"):
            corpus(cache)


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


SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "A",
            "paragraphs": [
                {"context": "One came. Two left.", "qas": []},
                {"context": "Three.", "qas": []},
            ],
        },
        {
            "title": "B",
            "paragraphs": [{"context": "One came. Two left.", "qas": [{"is_impossible": True}]}],
        },
    ],
}

RACE = {
    "id": "high1.txt",
    "article": "Four is\na number.",
    "questions": ["?"],
    "options": [["a"]],
    "answers": ["A"],
}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "intrinsic"
    (path / "race").mkdir(parents=True)
    (path / "dev-v2.0.json").write_text(json.dumps(SQUAD, indent=1))
    (path / "race" / "1.txt").write_text(json.dumps(RACE))
    (path / "race" / "2.jsonl").write_text(
        json.dumps(RACE)
        + "\n\n"
        + json.dumps(RACE | {"article": "F\u00fcnf!"}, ensure_ascii=False)
        + "\n"
    )
    return path


def test_every_distinct_passage_is_a_document_in_order(folder, cache):
    documents = read_passages([str(folder)], cache)
    texts = [b"One came. Two left.", b"Three.", b"Four is\na number.", "F\u00fcnf!".encode()]
    assert [document.read() for document in documents] == texts
    assert documents[3].name == f"{folder}/race/2.jsonl, document at line 3"
    entries = [str(folder / "race" / "*.txt"), str(folder / "dev-v2.0.json")]
    documents = read_passages(entries, cache)
    assert [document.read() for document in documents] == [texts[2], texts[0], texts[1]]
    path, tokenizer = str(folder), train_tokenizer("bytes", ())
    fields = {"path": path, "corpus": "albert-intrinsic", "cache": cache}
    split = prepare_text(tokenizer, sentences="prose", **fields)
    assert tokenizer.decode(split.ids).decode().startswith("One came.Two left.Three.Four is a num")
    assert split.sentence_starts.tolist() == [0, 9, 18, 24, 41]
    assert split.document_starts.tolist() == [0, 18, 24, 41]
    assert split.sources == ("albert-intrinsic",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plain words", r"line 1: not JSON: Expecting value"),
        ('{"data": [{"paragraphs": [{"text": "a"}]}]}', "line 1: data without paragraphs that"),
        ('{"data": [{"paragraphs": {"context": "a"}}]}', "line 1: data without paragraphs that"),
        ('{"data": [3]}', "line 1: data without paragraphs"),
        ('{"data": [{"paragraphs": [{"context": "\\ud800"}]}]}', "is half a surrogate pair"),
        ("[]", "line 1: no article"),
        ('{"article": "a"}\n{"article": 3}', "line 2: no article"),
        ('{"article": "a"}\n{"article": "b"', "line 2: not JSON"),
        ("\n", "no document with text"),
    ],
)
def test_a_file_that_is_neither_squad_nor_race_is_refused(tmp_path, cache, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_passages([str(tmp_path / "a.json")], cache)


def test_real_passages_are_read(real_data, cache):
    squad = real_data / "squad" / "squad_v1.1_dev_240_paragraphs.json"
    race = real_data / "race" / "race_dev_middle.jsonl"
    documents = read_passages([str(squad), str(race)], cache)
    articles = json.loads(squad.read_bytes())["data"]
    contexts = [part["context"] for article in articles for part in article["paragraphs"]]
    contexts += [json.loads(line)["article"] for line in race.read_text().splitlines()]
    texts = [document.read().decode() for document in documents]
    assert texts == list(dict.fromkeys(contexts))


@pytest.fixture
def library(tmp_path, monkeypatch):
    monkeypatch.setattr("sublayer.data.corpora.python_docs._LEAST_BYTES", 10)
    root = tmp_path / "lib"
    for name, source in {
        "b.py": '"""About b."""\n'
        'def f():\n    """Indented\n\n        more   \n    """\n'
        '    def g(): "inner"\n',
        "a/__init__.py": 'class A:\n    """Said twice."""\n'
        '    async def f(self):\n        """Said twice."""\n',
        "c.py": 'if 1:\n  class C: "Said twice."\n'
        '  try:\n    def f(): "tried"\n  except E:\n    def f(): "or not"\n',
        "broken.py": 'print "',
        "nothing.py": "x = 1\n",
        "latin.py": b'# coding: latin-1\n"""caf\xe9"""\n',
        "control.py": '"""one \\x01 too"""\n',
        "surrogate.py": '"""lone \\ud800 one"""\n',
        "test/test_a.py": '"""A test."""\n',
        "email/tests/b.py": '"""Another test."""\n',
        "site-packages/x.py": '"""Not the library."""\n',
        "pydoc_data/topics.py": 'topics = {"if": "The if\\n*******\\n", '
        '"else": "Or\\n\\n  else"}\n',
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(source if isinstance(source, bytes) else source.encode())
    return root


def test_docstrings_and_topics_are_found_cleaned_and_kept_once(cache, library):
    assert [
        (document.name, document.text.decode()) for document in python_prose(cache, library)
    ] == [
        ("a/__init__.py", "Said twice.\n"),
        ("b.py", "About b.\n\nIndented\n\nmore\n\ninner\n"),
        ("c.py", "tried\n\nor not\n"),
        ("control.py", "one ? too\n"),
        ("latin.py", "café\n"),
        ("surrogate.py", "lone ? one\n"),
        ("topic else", "Or\n\n  else\n"),
        ("topic if", "The if\n*******\n"),
    ]


def test_the_prose_is_cached_until_the_library_changes_or_the_cache_is_damaged(cache, library):
    first = python_prose(cache, library)
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
