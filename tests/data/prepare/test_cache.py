"""Prepared texts and tokenizers are opened afterwards, whatever was interrupted or damaged."""

import os
import subprocess
import sys

import numpy as np
import pytest

from sublayer.config.data import DataConfig
from sublayer.data import training_text
from sublayer.data.prepare import prepare, prepare_tokenizer
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.data.training_text import TrainingText, sampled
from sublayer.errors import DataError
from sublayer.files.cache_folder import lock_of
from sublayer.system.stage_displays import HeardStages
from sublayer.system.stages import shown_by
from tests.data.prepare.texts import TEXT, raw, stored
from tests.waiting import waits_until


def times(cache):
    return {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}


def bpe(file, **fields):
    fields = {"tokenizer": "bpe", "vocab_size": 300, "context": 64, **fields}
    return DataConfig(path=str(file), **fields)


def test_a_text_is_prepared_once_until_it_changes(file, cache):
    first = prepare(bpe(file), cache=cache)
    written = times(cache)
    second = prepare(bpe(file), cache=cache)
    assert times(cache) == written
    assert second.checksums == first.checksums
    assert np.array_equal(second.train.ids, first.train.ids)
    expected = np.array(first.train.ids)
    # A damaged cache is made again.
    names = stored(cache)
    for path in [*(cache / "tokens").iterdir(), *(cache / "tokenizers").iterdir()]:
        path.write_bytes(path.read_bytes()[:-50])
    again = prepare(bpe(file), cache=cache)
    assert stored(cache) == names
    assert np.array_equal(again.train.ids, expected)
    # Leftovers of a killed process do no harm.
    for name in names:
        (cache / "tokens" / name).rename(cache / "tokens" / f".{name}.0123456789abcdef.tmp")
    assert raw(prepare(bpe(file), cache=cache).train) == TEXT[: len(TEXT) * 90 // 100]
    file.write_bytes(TEXT.replace(b"line 1 ", b"LINE 1 "))
    changed = prepare(bpe(file, tokenizer="bytes", vocab_size=None), cache=cache)
    assert changed.checksums["train"] != first.checksums["train"]
    assert changed.checksums["test"] == first.checksums["test"]
    assert raw(changed.train).splitlines()[1].startswith(b"LINE 1 ")


def test_documents_and_sentences_have_stores_of_their_own_and_are_read_once(tmp_path, cache):
    text = b"\n\n".join(b"Document %d. Short." % number for number in range(40))
    (tmp_path / "a.txt").write_bytes(text)
    fields = {"path": str(tmp_path / "a.txt"), "documents": "blank-line", "context": 16}
    config = DataConfig(**fields, sentences="prose")
    first = prepare(config, cache=cache)
    written = times(cache)
    second = prepare(config, cache=cache)
    assert times(cache) == written
    assert first.sizes() == second.sizes()
    other = prepare(config, cache=tmp_path / "other")
    assert stored(tmp_path / "other") == stored(cache)
    for one, two in ((first.train, other.train), (first.test, other.test)):
        assert np.array_equal(one.ids, two.ids)
        assert np.array_equal(one.sentence_starts, two.sentence_starts)
    for n, rule in ((6, "none"), (9, "lines")):
        prepare(DataConfig(**fields, sentences=rule), cache=cache)
        assert len(stored(cache)) == n


def test_two_processes_prepare_the_same_text_at_once(file, cache):
    program = (
        "import sys; from pathlib import Path; from sublayer.config.data import DataConfig; "
        "from sublayer.data.prepare import prepare; "
        "config = DataConfig(path=sys.argv[1], tokenizer='bpe', vocab_size=400, context=64); "
        "print(prepare(config, cache=Path(sys.argv[2])).checksums)"
    )
    command = [sys.executable, "-c", program, str(file), str(cache)]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
        for _ in "ab"
    ]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert outputs[0] == outputs[1] != b""
    assert not list(cache.rglob("*.tmp"))


@pytest.mark.parametrize("tokenizer", ["unigram", "moses-bpe"])
def test_vocabularies_for_masks_see_the_training_split_and_encode_every_split(
    file, cache, tokenizer
):
    config = DataConfig(path=str(file), tokenizer=tokenizer, vocab_size=120, context=64)
    data = prepare(config, cache=cache)
    n = len(TEXT)
    trained = train_tokenizer(tokenizer, [TEXT[: n * 90 // 100]], vocab_size=120)
    assert data.tokenizer.fingerprint == trained.fingerprint
    assert data.train.ids.tolist() == trained.encode(TEXT[: n * 90 // 100]).tolist()
    assert data.valid.ids.tolist() == trained.encode(TEXT[n * 90 // 100 : n * 95 // 100]).tolist()
    assert prepare(config, cache=cache).checksums == data.checksums
    bad = file.with_name("bad.txt")
    bad.write_bytes(b"a\n\xff" + TEXT)
    with pytest.raises(DataError, match=r"bad.txt, line 2: byte 0xff is not UTF-8"):
        prepare(DataConfig(path=str(bad), tokenizer=tokenizer, vocab_size=120), cache=cache)


def test_the_tokenizer_is_trained_on_the_training_split_alone(tmp_path, cache):
    (tmp_path / "text").write_bytes(b"ab " * 600 + b"xy " * 33)
    characters = prepare(
        DataConfig(path=str(tmp_path / "text"), tokenizer="characters", context=64), cache=cache
    )
    assert characters.tokenizer.vocab_size == 4
    assert characters.train.store.is_lossless
    assert not characters.test.store.is_lossless
    config = DataConfig(path=str(tmp_path / "text"), tokenizer="bpe", vocab_size=300, context=64)
    bpe = prepare(config, cache=cache)
    assert bpe.tokenizer.encode(b" ab").tolist() != []
    assert len(bpe.tokenizer.encode(b" ab")) == 1
    assert len(bpe.tokenizer.encode(b" xy")) == 3
    assert prepare_tokenizer(config, cache=cache).fingerprint == bpe.tokenizer.fingerprint


def test_a_tokenizer_file_is_used_as_it_is(file, cache, tmp_path):
    tokenizer = train_tokenizer("bpe", [b"long enough " * 20], vocab_size=270)
    tokenizer.save(tmp_path / "tokenizer.json")
    config = DataConfig(path=str(file), tokenizer=str(tmp_path / "tokenizer.json"), context=64)
    data = prepare(config, cache=cache)
    assert data.checksums["tokenizer"] == data.tokenizer.fingerprint == tokenizer.fingerprint
    assert prepare_tokenizer(config, cache=cache).fingerprint == tokenizer.fingerprint
    given = prepare(DataConfig(path=str(file), context=64), tokenizer=tokenizer, cache=cache)
    assert given.checksums == data.checksums


def test_the_documents_of_bpe_end(folder, cache):
    data = prepare(
        DataConfig(path=str(folder), tokenizer="bpe", vocab_size=270, context=64), cache=cache
    )
    ends = np.flatnonzero(data.train.ids == data.tokenizer.end_id)
    assert (ends + 1).tolist() == data.train.document_starts[1:].tolist()


def test_a_text_cut_inside_a_character_does_for_bytes_and_bpe(tmp_path, cache):
    text = "naïve ".encode() * 500 + b"\xc3"
    (tmp_path / "text").write_bytes(text)
    for tokenizer in ("bytes", "bpe"):
        config = DataConfig(path=str(tmp_path / "text"), tokenizer=tokenizer, context=64)
        data = prepare(config, cache=cache)
        assert raw(data.train) + raw(data.valid) + raw(data.test) == text


@pytest.mark.parametrize(
    "tokenizer",
    [
        "word-bpe",
    ],
)
def test_merges_are_counted_instead_of_ids(file, cache, tokenizer):
    def trained(**fields):
        config = DataConfig(path=str(file), tokenizer=tokenizer, context=64, **fields)
        return prepare_tokenizer(config, cache=cache)

    by_merges = trained(merges=30)
    assert len(by_merges.content()["merges"]) == 30
    assert trained(vocab_size=by_merges.vocab_size).fingerprint == by_merges.fingerprint
    assert trained(merges=31).fingerprint != by_merges.fingerprint


def test_a_tokenizer_of_a_text_that_changed_is_not_kept(file, cache):
    config = DataConfig(path=str(file), tokenizer="bpe", vocab_size=300, context=64)

    def change(text):
        if text.startswith("training a bpe tokenizer"):
            file.write_bytes(b"another text, and another text\n" * 99)

    with shown_by(HeardStages(change, change)), pytest.raises(DataError, match="changed while it"):
        prepare_tokenizer(config, cache=cache)
    assert not list(cache.rglob("*.json"))


def test_of_several_processes_one_trains_a_tokenizer_and_the_others_wait(file, cache):
    config = DataConfig(path=str(file), tokenizer="bpe", vocab_size=300, context=64)
    tokenizer = prepare_tokenizer(config, cache=cache)
    [path] = cache.rglob("*.json")
    saved = path.read_bytes()
    path.unlink()
    said = []
    with shown_by(HeardStages(said.append, said.append)):
        again = waits_until(
            lock_of(path),
            "waiting for another process, which trains the same tokenizer",
            lambda: prepare_tokenizer(config, cache=cache),
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


def as_documents(size: int) -> list[DocumentRange]:
    """The text in documents of so many lines."""
    parts = [b"".join(LINES[low : low + size]) for low in range(0, len(LINES), size)]
    return [DocumentRange(MemoryDocument(str(n), part)) for n, part in enumerate(parts)]


def text_of(part: DocumentRange) -> bytes:
    return part.document.read()[part.start : part.stop]


@pytest.mark.usefixtures("_small_windows")
@pytest.mark.parametrize(("size", "most"), [(1, 1000), (3, 20000), (50, 5000), (2000, 1000)])
def test_a_sample_is_whole_lines_from_everywhere(size, most):
    parts = list(sampled(as_documents(size), len(WHOLE), most))
    text = b"".join(map(text_of, parts))
    lines = text.splitlines(keepends=True)
    assert set(lines) <= set(LINES)
    assert lines == sorted(set(lines))
    # About as much as was asked for: windows and documents are not of one size.
    assert 0.7 * most <= len(text) <= 1.3 * most
    fifths = {int(line.split()[1]) * 5 // len(LINES) for line in lines}
    assert fifths == {0, 1, 2, 3, 4}


@pytest.mark.usefixtures("_small_windows")
def test_a_sample_lies_within_its_range_and_is_cut_into_sentences(monkeypatch):
    document = MemoryDocument("a", WHOLE)
    parts = list(sampled([DocumentRange(document, 3000, 9000)], 6000, 1000))
    assert all(3000 <= part.start < part.stop <= 9000 for part in parts)
    assert parts[0].start == 3000
    monkeypatch.setattr(training_text, "_MOST_BYTES_OF_OTHERS", 500)
    texts = TrainingText([as_documents(2000)], "wordpiece", "lines").texts()
    lines = b"".join(texts).splitlines(keepends=True)
    assert set(lines) <= set(LINES) and 15 < len(lines) < 35


@pytest.mark.usefixtures("_small_windows")
def test_a_text_up_to_the_bound_is_taken_as_it_is(monkeypatch, capsys):
    sources = [as_documents(7), as_documents(2000)]
    n_bytes = 2 * len(WHOLE)
    monkeypatch.setattr(training_text, "_MOST_BYTES_OF_OTHERS", n_bytes)
    whole = TrainingText(sources, "bpe", "none")
    assert whole.identity == []
    assert b"".join(whole.texts()) == WHOLE + WHOLE
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(training_text, "_MOST_BYTES_OF_OTHERS", n_bytes - 1)
    part = TrainingText(sources, "bpe", "none")
    assert part.identity == [["sample", n_bytes - 1, 1]]
    assert 0 < len(b"".join(part.texts())) <= 1.3 * n_bytes
    assert "is trained on 0 of the 0 MB" in capsys.readouterr().err
