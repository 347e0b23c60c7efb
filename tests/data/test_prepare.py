"""Texts made ready for a run: divided, encoded, watched or refused, and opened afterwards."""

import gzip
import json
from pathlib import Path

import pytest

from sublayer.config.data import DataConfig
from sublayer.data import training_text
from sublayer.data.prepare import prepare, prepare_text, prepare_tokenizer
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.data.training_text import TrainingText, sampled
from sublayer.errors import ConfigError, DataError
from sublayer.files.cache_folder import lock_of
from sublayer.system.stage_displays import HeardStages
from sublayer.system.stages import shown_by
from tests.data.releases import write_archive, write_release
from tests.waiting import waits_until

TEXT = b"".join(
    b"line %d of a text that is long enough to be divided\n" % number for number in range(200)
)
BYTES = train_tokenizer("bytes", ())
BPE = {"tokenizer": "bpe", "vocab_size": 300}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT)
    return path


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    for number in range(40):
        (path / f"{number:02}.txt").write_bytes(TEXT[number * 200 : number * 200 + 200])
    return path


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


def test_other_files_replace_a_split(file, folder, cache, tmp_path):
    (tmp_path / "valid.txt").write_bytes(b"validation")
    fields = {"valid_path": str(tmp_path / "valid.txt")}
    one = prepare(config_of(file, **fields), cache=cache)
    cut = len(TEXT) * 95 // 100
    assert [raw(split) for split in one.splits()] == [TEXT[:cut], b"validation", TEXT[cut:]]
    tests = str(folder / "0*.txt")
    both = prepare(config_of(file, **fields, test_path=tests), cache=cache)
    assert (raw(both.train), raw(both.valid)) == (TEXT, b"validation")
    assert len(both.test.document_starts) == 10


def test_a_published_split_is_kept(tmp_path, cache, file):
    release = write_release(tmp_path / "release")
    data = prepare(config_of(release, context=8), cache=cache)
    assert raw(data.train) == b"The first sentence .\nThe second sentence .\n"
    assert raw(data.test) == b"A test sentence .\n"
    assert raw(prepare_text(BYTES, path=str(release), cache=cache)) == raw(data.test)
    mixed = config_of((str(release), str(file)), split="80/10/10", context=8)
    expected = b"A test sentence .\n" + TEXT[len(TEXT) * 90 // 100 :]
    assert raw(prepare(mixed, cache=cache).test) == expected
    with pytest.raises(ConfigError, match="data.split = 80/10/10 has no effect: .* has a publish"):
        prepare(config_of(release, split="80/10/10", context=8), cache=cache)


def test_a_text_that_is_read_twice_is_refused(file, folder, cache, tmp_path):
    for path, fields in (
        (file, {"valid_path": str(file)}),
        (folder, {"test_path": str(folder / "07.txt")}),
    ):
        with pytest.raises(ConfigError, match=r"(valid|test)_path = .* is also read for train"):
            prepare(config_of(path, **fields), cache=cache)
    one, two = str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")
    for path in (one, two):
        Path(path).write_text(f'{{"text": "{path}."}}\n' * 9 + '{"text": "Same."}')
    both = "b.jsonl, document at line 10, the same as .*a.jsonl, document at line 10; name other"
    with pytest.raises(ConfigError, match=f"valid_path = .*b.jsonl is also read .*{both}"):
        prepare(config_of(one, valid_path=two, documents="json"), cache=cache)
    for paths, rule in (((str(folder), str(folder / "07.txt")), None), ((one, two), "json")):
        with pytest.raises(ConfigError, match="are the same text, named twice: leave one out"):
            prepare(config_of(paths, documents=rule), cache=cache)


def test_watched_texts_change_no_split(file, cache, tmp_path):
    # Small files of SQuAD and RACE stand where those that are fetched are kept.
    squad = {"data": [{"paragraphs": [{"context": "One passage.", "qas": []}] * 2}]}
    write_release(cache / "corpora", {"dev-v1.1.json": json.dumps(squad).encode()})
    names = ("RACE/dev/middle/1.txt", "RACE/train/middle/1.txt")
    race = {name: {"article": f"A passage of {name}.", "questions": []} for name in names}
    files = {name: json.dumps(article).encode() for name, article in race.items()}
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


def test_a_text_is_prepared_once_until_it_changes(file, cache):
    def times():
        return {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}

    first = prepare(config_of(file, **BPE), cache=cache)
    expected = [split.ids.tolist() for split in first.splits()]
    written = times()
    second = prepare(config_of(file, **BPE), cache=cache)
    assert times() == written and second.checksums == first.checksums
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
    trained = train_tokenizer(kind, [TEXT[: n * 90 // 100]], vocab_size=config.vocab_size)
    assert data.tokenizer.fingerprint == trained.fingerprint
    assert data.valid.ids.tolist() == trained.encode(TEXT[n * 90 // 100 : n * 95 // 100]).tolist()
    trained.save(cache / "file.json")
    config = config_of(file, tokenizer=str(cache / "file.json"))
    assert prepare_tokenizer(config, cache=cache).fingerprint == trained.fingerprint
    given = prepare(config_of(file), tokenizer=trained, cache=cache)
    assert prepare(config, cache=cache).checksums == given.checksums == data.checksums


def test_a_tokenizer_of_a_text_that_changed_is_not_kept(file, cache):
    def change(text):
        if text.startswith("training a bpe tokenizer"):
            file.write_bytes(b"another text, and another text\n" * 99)

    with shown_by(HeardStages(change, change)), pytest.raises(DataError, match="changed while it"):
        prepare_tokenizer(config_of(file, **BPE), cache=cache)
    assert not list(cache.rglob("*.json"))


def test_of_several_processes_one_trains_a_tokenizer_and_the_others_wait(file, cache):
    tokenizer = prepare_tokenizer(config_of(file, **BPE), cache=cache)
    [path] = cache.rglob("*.json")
    saved = path.read_bytes()
    path.unlink()
    said = []
    with shown_by(HeardStages(said.append, said.append)):
        again = waits_until(
            lock_of(path),
            "waiting for another process, which trains the same tokenizer",
            lambda: prepare_tokenizer(config_of(file, **BPE), cache=cache),
            lambda: path.write_bytes(saved),
        )
    assert again.fingerprint == tokenizer.fingerprint
    assert not said, "nothing was trained"


LINES = [b"line %04d of a text\n" % number for number in range(2000)]
WHOLE = b"".join(LINES)


@pytest.fixture
def _small_windows(monkeypatch):
    monkeypatch.setattr(training_text, "_WINDOW_BYTES", 100)
    monkeypatch.setattr(training_text, "_SEARCHED_BYTES", 50)


def as_documents(size):
    """The text in documents of so many lines."""
    parts = [b"".join(LINES[low : low + size]) for low in range(0, len(LINES), size)]
    return [DocumentRange(MemoryDocument(str(n), part)) for n, part in enumerate(parts)]


@pytest.mark.usefixtures("_small_windows")
def test_a_sample_is_taken_of_a_text_beyond_the_bound(monkeypatch, capsys):
    document = MemoryDocument("a", WHOLE)
    parts = list(sampled([DocumentRange(document, 3000, 9000)], 6000, 1000))
    assert all(3000 <= part.start < part.stop <= 9000 for part in parts)
    assert parts[0].start == 3000
    bound = "_MOST_BYTES_OF_OTHERS"
    monkeypatch.setattr(training_text, bound, 500)
    texts = TrainingText([as_documents(2000)], "wordpiece", "lines").texts()
    lines = b"".join(texts).splitlines(keepends=True)
    assert set(lines) <= set(LINES) and 15 < len(lines) < 35
    sources = [as_documents(7), as_documents(2000)]
    monkeypatch.setattr(training_text, bound, 2 * len(WHOLE))
    capsys.readouterr()
    whole = TrainingText(sources, "bpe", "none")
    assert (whole.identity, b"".join(whole.texts())) == ([], WHOLE + WHOLE)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(training_text, bound, 2 * len(WHOLE) - 1)
    part = TrainingText(sources, "bpe", "none")
    assert part.identity == [["sample", 2 * len(WHOLE) - 1, 1]]
    assert 0 < len(b"".join(part.texts())) <= 2.6 * len(WHOLE)
    assert "is trained on 0 of the 0 MB" in capsys.readouterr().err
