"""Corpora by name and texts made ready for a run: found, divided, encoded, watched or refused."""

import gzip
import hashlib
import json
import tarfile
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from sublayer.config.data import CORPORA as NAMES
from sublayer.config.data import DataConfig
from sublayer.data import corpora
from sublayer.data import prepare as preparing
from sublayer.data.corpora import HELD_OUT, RELEASE, TRAINING, PublishedFile, python_prose
from sublayer.data.prepare import TrainingText, prepare, prepare_text, prepare_tokenizer, sampled
from sublayer.data.text.documents import AS_FILES
from sublayer.data.text.files import MemoryDocument
from sublayer.data.text.ranges import DocumentRange
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.files.cache_folder import Download, lock_of
from sublayer.system.terminal import HeardStages, shown_by
from tests.data.releases import FILES, write_archive, write_release, write_zip
from tests.data.test_text import parquet
from tests.waiting import waits_until

TEXT = b"".join(b"line %d of a text that is long enough to be divided\n" % n for n in range(200))
BYTES = train_tokenizer("bytes", ())
BPE = {"tokenizer": "bpe", "vocab_size": 300}
PUBLISHED = b"some published text\n" * 50
NOWHERE = Download("http://127.0.0.1:1/small.zip", 1, "sha256", "")
EXPECTED = {"train": b"The first sentence .\nThe second sentence .\n"}
EXPECTED |= {"valid": b"A held-out sentence .\nAnother one .\n", "test": b"A test sentence .\n"}
ARCHIVED = {f"{RELEASE}/{name}": text for name, text in FILES.items()}


@pytest.fixture
def file(tmp_path):
    return write_release(tmp_path, {"text.txt": TEXT}) / "text.txt"


@pytest.fixture
def folder(tmp_path):
    files = {f"{number:02}.txt": TEXT[number * 200 :][:200] for number in range(40)}
    return write_release(tmp_path / "folder", files)


def config_of(path, **fields):
    return DataConfig(path=str(path) if isinstance(path, Path) else path, **fields)


def raw(split):
    return split.tokenizer.decode(split.ids)


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe"])
def test_the_splits_of_a_file_are_its_bytes_in_order(tmp_path, cache, tokenizer):
    text = TEXT + b"\xc3"  # cut inside a character
    (tmp_path / "text").write_bytes(text)
    (tmp_path / "text.gz").write_bytes(gzip.compress(text))
    data = prepare(config_of(tmp_path / "text", tokenizer=tokenizer), cache=cache)
    n = len(text)
    shares = [(0, n * 90 // 100), (n * 90 // 100, n * 95 // 100), (n * 95 // 100, n)]
    assert [raw(split) for split in data.splits()] == [text[low:high] for low, high in shares]
    sizes = {"bytes": n * 90 // 100, "tokens": len(data.train.ids), "documents": 1}
    assert data.sizes()["train"] == sizes
    assert all(split.store.is_lossless and split.is_cut for split in data.splits())
    packed = prepare(config_of(tmp_path / "text.gz", tokenizer=tokenizer), cache=cache)
    assert packed.checksums == data.checksums
    whole = prepare(config_of(tmp_path / "text", split="100/0/0"), cache=cache)
    assert (whole.valid, whole.test, raw(whole.train)) == (None, None, text)
    assert whole.checksums.keys() == {"train", "tokenizer"} and whole.sizes().keys() == {"train"}


def test_other_files_replace_a_split_and_a_published_one_is_kept(file, folder, cache, tmp_path):
    (tmp_path / "valid.txt").write_bytes(b"validation")
    fields, cut = {"valid_path": str(tmp_path / "valid.txt")}, len(TEXT) * 95 // 100
    one = prepare(config_of(file, **fields), cache=cache)
    assert [raw(split) for split in one.splits()] == [TEXT[:cut], b"validation", TEXT[cut:]]
    both = prepare(config_of(file, **fields, test_path=str(folder / "0*.txt")), cache=cache)
    assert (raw(both.train), raw(both.valid)) == (TEXT, b"validation")
    assert len(both.test.document_starts) == 10
    release = write_release(tmp_path / "release")
    data = prepare(config_of(release, context=8), cache=cache)
    assert raw(data.train) == b"The first sentence .\nThe second sentence .\n"
    assert raw(data.test) == b"A test sentence .\n"
    assert raw(prepare_text(BYTES, path=str(release), cache=cache)) == raw(data.test)
    mixed = config_of((str(release), str(file)), split="80/10/10", context=8)
    expected = b"A test sentence .\n" + TEXT[len(TEXT) * 90 // 100 :]
    assert raw(prepare(mixed, cache=cache).test) == expected
    with pytest.raises(ConfigError, match="data.split = 80/10/10 has no effect: .* has publish"):
        prepare(config_of(release, split="80/10/10", context=8), cache=cache)


def test_a_text_that_is_read_twice_is_refused(file, folder, cache, tmp_path):
    for path, fields in (
        (file, {"valid_path": str(file)}), (folder, {"test_path": str(folder / "07.txt")}),
    ):  # fmt: skip
        with pytest.raises(
            ConfigError, match=r"(valid|test)_path = .* shares a file with the train"
        ):
            prepare(config_of(path, **fields), cache=cache)
    one, two = (str(tmp_path / name) for name in ("a.jsonl", "b.jsonl"))
    for path in (one, two):
        Path(path).write_text(f'{{"text": "{path}."}}\n' * 9 + '{"text": "Same."}')
    both = "b.jsonl, document at line 10, the same as .*a.jsonl, document at line 10; name other"
    with pytest.raises(ConfigError, match=f"valid_path = .*b.jsonl shares a file .*{both}"):
        prepare(config_of(one, valid_path=two, documents="json"), cache=cache)
    for paths, rule in (((str(folder), str(folder / "07.txt")), None), ((one, two), "json")):
        with pytest.raises(ConfigError, match="are the same text, named twice: leave one out"):
            prepare(config_of(paths, documents=rule), cache=cache)


def test_watched_texts_change_no_split(file, cache, tmp_path, monkeypatch):
    # Small files of SQuAD and RACE stand where those that are fetched are kept.
    squad = {"data": [{"paragraphs": [{"context": "One passage.", "qas": []}] * 2}]}
    write_release(cache / "corpora", {"dev-v1.1.json": json.dumps(squad).encode()})
    names = ("RACE/dev/middle/1.txt", "RACE/train/middle/1.txt")
    race = '{{"article": "A passage of {}.", "questions": []}}'.format
    files = {name: race(name).encode() for name in names}
    write_archive(cache / "corpora" / "RACE.tar.gz", files)
    (tmp_path / "dev.json").write_text(json.dumps(squad))
    squad, race = b"One passage.", b"A passage of RACE/dev/middle/1.txt."
    plain = prepare(config_of(file), cache=cache)
    for watch, expected in (
        ({"squad": str(tmp_path / "dev.json"), "own": str(file)}, {"squad": squad, "own": TEXT}),
        (("squad-dev", "race-dev"), {"squad": squad, "race": race}),
        (("albert-intrinsic",), {"intrinsic": squad + race}),
    ):
        data = prepare(config_of(file, watch=watch), cache=cache)
        assert {name: raw(split) for name, split in data.watched.items()} == expected
        assert data.checksums == plain.checksums
    held_out = {"test_path": "albert-intrinsic", "valid_path": "race-dev", "split": "90/10/0"}
    data = prepare(config_of(file, **held_out), cache=cache)
    assert [raw(split) for split in data.splits()] == [TEXT, race, squad + race]
    assert data.test.sizes()["documents"] == 2
    (cache / "corpora" / "dev-v1.1.json").unlink()
    refuse = Mock(side_effect=DataError("dev-v1.1.json cannot be downloaded"))
    monkeypatch.setattr("sublayer.data.corpora.Download.fetch", refuse)
    for field, remedy in (
        ("data.watch", "give its file or folder, data.watch = {squad = PATH}, or train without"),
        ("data.test_path", "give another text, data.test_path = PATH"),
    ):
        with pytest.raises(DataError, match=f"^{field} = squad-dev: dev-v1.*ed; {remedy}"):
            corpora.fetched("squad-dev", cache, field=field)


def test_passages_are_read_from_lines_and_each_once(tmp_path, cache):
    (tmp_path / "a.jsonl").write_text('{"article": "One."}\n\n{"article": "Zwölf."}\n')
    one = {"paragraphs": [{"context": "One."}, {"context": "Two."}]}
    (tmp_path / "b.json").write_text(json.dumps({"data": [one, one]}))
    found = corpora.read_passages([str(tmp_path)], cache)
    assert [each.read() for each in found] == [b"One.", "Zwölf.".encode(), b"Two."]
    assert found[1].name == f"{tmp_path}/a.jsonl, document at line 3"
    for text, message in (
        ('{"data": [{"paragraphs": [{"text": "a"}]}]}', "1: no passage"),
        ('{"data": [{"paragraphs": {}}]}', "1: no passage"),
        ('{"data": [3]}', "1: no passage"), ("[]", "1: no passage"),
        ('{"article": "a"}\n{"article": 3}', "2: no passage"), ("plain words", "1: not JSON"),
    ):  # fmt: skip
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(DataError, match=f"line {message}"):
            corpora.read_passages([str(tmp_path / "a.json")], cache)


def test_a_text_is_prepared_once_until_it_changes(file, cache):
    first = prepare(config_of(file, **BPE), cache=cache)
    expected = [split.ids.tolist() for split in first.splits()]
    written = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    assert prepare(config_of(file, **BPE), cache=cache).checksums == first.checksums
    assert {path: path.stat().st_mtime_ns for path in written} == written
    # A damaged cache is made again, and leftovers of a killed process do no harm.
    for path in [*(cache / "tokens").iterdir(), *(cache / "tokenizers").iterdir()]:
        path.write_bytes(path.read_bytes()[:-50])
        path.with_name(f".{path.name}.0123456789abcdef.tmp").write_bytes(b"")
    again = prepare(config_of(file, **BPE), cache=cache)
    assert [split.ids.tolist() for split in again.splits()] == expected
    file.write_bytes(TEXT.replace(b"line 1 ", b"LINE 1 "))
    changed = prepare(config_of(file, **BPE), cache=cache)
    assert changed.checksums["train"] != first.checksums["train"]
    assert changed.checksums["test"] == first.checksums["test"]
    assert b"\nLINE 1 " in raw(changed.train)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "word-bpe"])
def test_a_tokenizer_is_trained_on_the_training_split_alone(file, cache, kind):
    config = config_of(file, tokenizer=kind, vocab_size=300 if kind == "bpe" else 120)
    data = prepare(config, cache=cache)
    n = len(TEXT)
    rules = {"vocab_size": config.vocab_size, **config.letter_rules()}
    trained = train_tokenizer(kind, [TEXT[: n * 90 // 100]], **rules)
    assert data.tokenizer.fingerprint == trained.fingerprint
    assert data.valid.ids.tolist() == trained.encode(TEXT[n * 90 // 100 : n * 95 // 100]).tolist()
    trained.save(cache / "file.json")
    config = config_of(file, tokenizer=str(cache / "file.json"))
    assert prepare_tokenizer(config, cache=cache).fingerprint == trained.fingerprint
    given = prepare(config_of(file), tokenizer=trained, cache=cache)
    assert prepare(config, cache=cache).checksums == given.checksums == data.checksums


def test_of_several_processes_one_trains_a_tokenizer_which_is_that_of_its_text(file, cache):
    def made():
        return prepare_tokenizer(config_of(file, **BPE), cache=cache).fingerprint

    fingerprint, [path] = made(), cache.rglob("*.json")
    saved, trained = path.read_bytes(), []
    path.unlink()
    waiting = "waiting for another process, which trains the same tokenizer"
    with shown_by(HeardStages(trained.append, trained.append)):
        again = waits_until(lock_of(path), waiting, made, lambda: path.write_bytes(saved))
    assert (again, trained) == (fingerprint, [])

    def change(text):
        if text.startswith("training a bpe tokenizer"):
            file.write_bytes(b"another text, and another text\n" * 99)

    with shown_by(HeardStages(change, change)), pytest.raises(DataError, match="changed while it"):
        prepare_tokenizer(config_of(file, **BPE), cache=cache / "other")
    assert not list((cache / "other").rglob("*.json"))


def test_a_sample_is_taken_of_a_text_beyond_the_bound(monkeypatch, capsys):
    def bounded(n_bytes, sources, *rules):
        bounds = {"_WINDOW_BYTES": 100, "_SEARCHED_BYTES": 50, "_MOST_BYTES_OF_OTHERS": n_bytes}
        for name, value in bounds.items():
            monkeypatch.setattr(preparing, name, value)
        capsys.readouterr()
        found = TrainingText(sources, *rules)
        return found.identity, b"".join(found.texts()), capsys.readouterr().err

    lines = [b"line %04d of a text\n" % number for number in range(2000)]
    text, parts = b"".join(lines), [b"".join(lines[low : low + 7]) for low in range(0, 2000, 7)]
    whole = [DocumentRange(MemoryDocument("a", text))]
    _, found, _ = bounded(500, [whole], "wordpiece", "lines")
    found = found.splitlines(keepends=True)
    assert set(found) <= set(lines) and 15 < len(found) < 35
    places = list(sampled([DocumentRange(whole[0].document, 3000, 9000)], 6000, 1000))
    assert all(3000 <= part.start < part.stop <= 9000 for part in places)
    assert places[0].start == 3000
    sources = [[DocumentRange(MemoryDocument(str(n), part)) for n, part in enumerate(parts)], whole]
    assert bounded(2 * len(text), sources, "bpe", "none") == ([], text + text, "")
    identity, found, shown = bounded(2 * len(text) - 1, sources, "bpe", "none")
    assert identity == [["sample", 2 * len(text) - 1, 1]]
    assert 0 < len(found) <= 2.6 * len(text) and "is trained on 0 of the 0 MB" in shown


def small(archive=NOWHERE):
    return PublishedFile("small", len(PUBLISHED), hashlib.md5(PUBLISHED).hexdigest(), archive)


def read_all(documents):
    return [bytes(document.read()[:]) for document in documents]


def test_paths_and_corpora_are_sources_in_order_with_their_weights(tmp_path, cache, monkeypatch):
    assert list(corpora.CORPORA) == list(NAMES)
    monkeypatch.setenv("SUBLAYER_DATA", str(tmp_path / "data"))
    write_release(tmp_path / "data/bookcorpus", {"a.txt": b"three\n"})
    write_release(tmp_path, {"a.txt": b"one", "b.txt": b"two"})
    paths = (str(tmp_path / "b.txt"), str(tmp_path / "*.txt"))
    sources = corpora.find_sources(paths, "bookcorpus", cache)
    found = [(source.name, len(source.documents), source.weight) for source in sources]
    assert found == [(paths[0], 1, None), (paths[1], 2, None), ("bookcorpus", 1, None)]
    sources = corpora.find_sources({paths[0]: 2.0}, {"bookcorpus": 0.5}, cache)
    assert [source.weight for source in sources] == [2.0, 0.5]
    with pytest.raises(
        ConfigError, match="the recipe names no text: give data.path, or data.corpus as"
    ):
        corpora.find_sources(None, None, cache)
    with pytest.raises(ConfigError, match="albert-intrinsic reads files of SQuAD"):
        corpora.find_sources(None, "albert-intrinsic", cache)


def test_c4_is_its_shards_and_rows_of_bookcorpus_are_joined(tmp_path, cache, monkeypatch):
    data_folder = tmp_path / "data"
    monkeypatch.setenv("SUBLAYER_DATA", str(data_folder))
    monkeypatch.setattr(corpora.HubSet, "documents", lambda hub, *_, **__: [hub.split, 1, 2, 3, 4])
    # Without shards it is the hub's, whose held-out split validates with its first half.
    c4 = corpora.CORPORA["c4"](cache).published
    assert c4 == {"train": ["train", 1, 2, 3, 4], "valid": ["validation", 1], "test": [2, 3, 4]}

    def written(*pages):
        lines = [json.dumps({"text": f"Page {page}.", "url": ""}) for page in pages]
        return gzip.compress("\n".join(lines).encode())

    shards = {"train.00000-of-01024": written(1, 2), "train.00001-of-01024": written(3)}
    shards["validation.00000-of-00008"] = written(5, 6, 7, 8, 9)
    files = {f"c4-{name}.json.gz": content for name, content in shards.items()}
    write_release(data_folder / "c4" / "en", files)
    data = prepare(DataConfig(corpus="c4", context=2), cache=cache)
    expected = [b"Page 1.Page 2.Page 3.", b"Page 5.Page 6.", b"Page 7.Page 8.Page 9."]
    assert list(map(raw, data.splits())) == expected
    files = {"a_book.txt": b"A whole\n\nbook.\n", "books_large_p1.txt": b"one row .\n" * 1500}
    place = write_release(data_folder / "bookcorpus", files)
    parquet(place / "train.parquet", {"text": ["two rows ."] * 2})
    rows = [b"one row .\n" * n for n in (1000, 500)]
    expected = [files["a_book.txt"], *rows, b"two rows .\n" * 2]
    assert read_all(corpora.CORPORA["bookcorpus"](cache, AS_FILES).documents) == expected


def test_lm1b_has_its_published_split_as_a_folder_or_an_archive(tmp_path, cache):
    def joined(published):
        return {split: b"".join(read_all(documents)) for split, documents in published.items()}

    write_release(tmp_path / RELEASE)
    places = [tmp_path / place for place in ("", RELEASE, f"{RELEASE}/{TRAINING}")]
    assert list(map(corpora.find_release, places)) == [tmp_path / RELEASE] * 2 + [None]
    packed = write_archive(tmp_path / "release.tar.gz", ARCHIVED)
    for path in (tmp_path, packed, write_archive(tmp_path / "release.tar", ARCHIVED, "w")):
        (source,) = corpora.find_sources(str(path), None, cache)
        assert not source.documents
        assert joined(source.published) == EXPECTED
    folder = corpora.extract_release(packed, cache)
    (folder / TRAINING / "news.en-00001-of-00100").write_bytes(b"Seen .\n")
    assert corpora.extract_release(packed, cache) == folder, "it is extracted once"
    assert b"Seen ." in joined(corpora.read_release(folder, cache))["train"]
    # Nothing is extracted outside of the cache.
    names = [f"../../{TRAINING}/news.en-00001-of-00100", "../evil"]
    names.append(f"/tmp/evil/{HELD_OUT}/news.en.heldout-00000-of-00050")
    evil = dict.fromkeys(names, b"climbing .\n")
    path, known = write_archive(tmp_path / "evil.tar.gz", evil), {*tmp_path.rglob("*")}
    folder = corpora.extract_release(path, cache)
    files = [path for path in {*tmp_path.rglob("*")} - known if path.is_file()]
    assert len(files) == 2 and all(path.is_relative_to(folder) for path in files)


def test_other_and_damaged_archives_are_refused_and_leave_nothing(tmp_path, cache, monkeypatch):
    def refused(path, message):
        with pytest.raises(DataError, match=message):
            corpora.extract_release(path, cache)
        assert not list(cache.rglob("*lm1b*"))

    held_out = {f"{HELD_OUT}/news.en.heldout-00000-of-00050": b"a .\n"}
    linked = write_archive(tmp_path / "link.tar", held_out, "w")
    with tarfile.open(linked, "a") as opened:
        link = tarfile.TarInfo(f"{TRAINING}/news.en-00001-of-00100")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        opened.addfile(link)
    refused(linked, "link.tar is not the archive of the lm1b release")
    whole = write_archive(tmp_path / "whole.tar.gz", ARCHIVED)
    cut = tmp_path / "cut.tar.gz"
    for n_bytes in (10, 200):
        cut.write_bytes(whole.read_bytes()[:n_bytes])
        refused(cut, "cut.tar.gz is a damaged archive")

    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("shutil.copyfileobj", full)
    refused(whole, "cannot extract .*whole.tar.gz to .*: No space left on device")
    folder = write_release(tmp_path / RELEASE, held_out)
    (folder / TRAINING).mkdir()
    with pytest.raises(DataError, match="lacks the train files of lm1b"):
        corpora.read_release(folder, cache)


def test_a_corpus_is_downloaded_once_or_unpacked(cache, site):
    folder, url = site
    content = write_zip(folder / "small.zip", {"small": PUBLISHED}).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    corpus = small(Download(f"{url}/small.zip", len(content), "sha256", digest))
    assert corpus(cache).documents[0].read()[:] == PUBLISHED
    (folder / "small.zip").unlink()
    assert corpus(cache).documents[0].read()[:] == PUBLISHED
    kept = cache / "corpora" / "small"
    assert list((cache / "corpora").iterdir()) == [kept]
    kept.unlink()
    write_zip(cache / "corpora" / "small.zip", {"small": PUBLISHED})
    assert small()(cache).documents[0].read()[:] == PUBLISHED
    (cache / "corpora" / "small").write_bytes(PUBLISHED[:-1])
    with pytest.raises(
        DataError, match="small has 999 bytes, but small has 1,000: put the complete file"
    ):
        small()(cache)


def test_a_corpus_is_found_in_the_data_folder_or_the_cache(cache, tmp_path, monkeypatch):
    (cache / "corpora").mkdir(parents=True)
    write_archive(cache / "corpora" / f"{RELEASE}.tar.gz", ARCHIVED)
    assert len(corpora.read_billion_words(cache, archive=NOWHERE).published["train"]) == 2
    with pytest.raises(DataError, match=r"small.zip cannot be .* put small into .*cache/corpora"):
        small()(cache)
    data = tmp_path / "data"
    monkeypatch.setenv("SUBLAYER_DATA", str(data))
    for corpus, name in (
        (small(), "small"),
        (partial(corpora.read_billion_words, archive=NOWHERE), f"{RELEASE}.tar.gz"),
    ):
        with pytest.raises(DataError, match=rf"put {name} into {data}"):
            corpus(cache / "empty")
    write_release(data / "lm1b")
    found = corpora.read_billion_words(cache, archive=NOWHERE).published["train"]
    assert all(document.name.startswith(str(data)) for document in found)
    for place in (data / "other" / "small", data / "small" / "small"):
        write_release(place.parent, {"small": PUBLISHED})
    assert [document.name for document in small()(cache).documents] == [str(data / "small/small")]


def test_docstrings_and_topics_are_found_cleaned_and_cached(cache, tmp_path, monkeypatch):
    monkeypatch.setattr("sublayer.data.corpora._LEAST_BYTES", 10)
    inner = 'def f():\n    """Indented\n\n        more   \n    """\n    def g(): "inner"\n'
    files = {
        "a/__init__.py": b'class A:\n  """Twice."""\n  async def f(self):\n    """Twice."""\n',
        "b.py": f'"""About b."""\n{inner}'.encode(), "email/tests/b.py": b'"""A test."""\n',
        "c.py": b'if 1:\n  try:\n    def f(): "tried"\n  except E:\n    "no"\n',
        "latin.py": b'# coding: latin-1\n"""caf\xe9"""\n', "site-packages/x.py": b'"""Not it."""\n',
        "pydoc_data/topics.py": b'topics = {"if": "The if\\n***\\n", "else": "Or\\n\\n  else"}\n',
        "surrogate.py": b'"""lone \\ud800 one"""\n',
    }  # fmt: skip
    library = write_release(tmp_path / "lib", files)
    first = python_prose(cache, library)
    assert {document.name: document.text.decode() for document in first} == {
        "a/__init__.py": "Twice.\n", "b.py": "About b.\n\nIndented\n\nmore\n\ninner\n",
        "c.py": "tried\n", "latin.py": "café\n", "surrogate.py": "lone ? one\n",
        "topic else": "Or\n\n  else\n", "topic if": "The if\n***\n",
    }  # fmt: skip
    [cached] = (cache / "prose").iterdir()
    cached.write_text(json.dumps([["only", "this"]]))
    assert [document.text for document in python_prose(cache, library)] == [b"this"]
    cached.write_text("[[")
    assert python_prose(cache, library) == first
    (library / "b.py").write_text('"""Something else about b."""\n')
    assert b"Something else about b.\n" in [each.text for each in python_prose(cache, library)]
