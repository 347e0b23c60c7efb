"""What is prepared once is opened afterwards, whatever was interrupted or damaged."""

import os
import subprocess
import sys

import numpy as np

from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare
from tests.data.prepare.texts import TEXT, book, raw, stored


def test_a_second_time_nothing_is_read_again(file, cache):
    first = prepare(
        DataConfig(path=str(file), tokenizer="bpe", vocab_size=300, context=64), cache=cache
    )
    times = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    second = prepare(
        DataConfig(path=str(file), tokenizer="bpe", vocab_size=300, context=64), cache=cache
    )
    assert times == {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    assert second.checksums == first.checksums
    assert np.array_equal(second.train.ids, first.train.ids)


def test_a_changed_file_is_prepared_anew(file, cache):
    first = prepare(DataConfig(path=str(file), context=64), cache=cache)
    file.write_bytes(TEXT.replace(b"line 1 ", b"LINE 1 "))
    second = prepare(DataConfig(path=str(file), context=64), cache=cache)
    assert second.checksums["train"] != first.checksums["train"]
    assert second.checksums["test"] == first.checksums["test"]
    assert raw(second.train).startswith(
        b"line 0 of a text that is long enough to be divided\nLINE 1 "
    )


def test_a_damaged_cache_is_made_again(file, cache):
    config = DataConfig(path=str(file), tokenizer="bpe", vocab_size=300, context=64)
    first = prepare(config, cache=cache)
    expected = np.array(first.train.ids)
    names = stored(cache)
    for path in [*(cache / "tokens").iterdir(), *(cache / "tokenizers").iterdir()]:
        path.write_bytes(path.read_bytes()[:-50])
    again = prepare(config, cache=cache)
    assert stored(cache) == names
    assert np.array_equal(again.train.ids, expected)


def test_leftovers_of_a_killed_process_do_no_harm(file, cache):
    prepare(DataConfig(path=str(file), context=64), cache=cache)
    for name in stored(cache):
        whole = cache / "tokens" / name
        whole.rename(cache / "tokens" / f".{name}.0123456789abcdef.tmp")
    assert (
        raw(prepare(DataConfig(path=str(file), context=64), cache=cache).train)
        == TEXT[: len(TEXT) * 90 // 100]
    )


def test_a_second_time_no_document_is_read_again(tmp_path, cache):
    (tmp_path / "a.txt").write_bytes(
        b"\n\n".join(b"Document %d. Short." % number for number in range(40))
    )
    config = DataConfig(
        path=str(tmp_path / "a.txt"), documents="blank-line", sentences="prose", context=16
    )
    first = prepare(config, cache=cache)
    times = {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    second = prepare(config, cache=cache)
    assert times == {path: path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}
    assert first.sizes() == second.sizes()
    other = prepare(config, cache=tmp_path / "other")
    assert stored(tmp_path / "other") == stored(cache)
    for one, two in ((first.train, other.train), (first.test, other.test)):
        assert np.array_equal(one.ids, two.ids)
        assert np.array_equal(one.sentence_starts, two.sentence_starts)


def test_each_rule_for_sentences_has_a_store_of_its_own(tmp_path, cache):
    (tmp_path / "a.txt").write_bytes(book(1))
    for rule in ("none", "lines", "prose"):
        before = len(stored(cache)) if (cache / "tokens").is_dir() else 0
        prepare(DataConfig(path=str(tmp_path / "a.txt"), sentences=rule, context=16), cache=cache)
        assert len(stored(cache)) == before + 3


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
