"""What was stopped and is not gone on with is said, and what cannot be written names the cache."""

import os
from pathlib import Path

import pytest

from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare
from sublayer.data.store import write_store
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.errors import DataError
from sublayer.system import lock
from sublayer.system.lock import held
from tests.data.shards.paragraphs import BPE, PARAGRAPHS, stopped

SOURCES = [[DocumentRange(MemoryDocument("a", text.encode())) for text in PARAGRAPHS[:9]]]
SETTINGS = {"shard_bytes": 100, "n_processes": 1}


def test_the_shards_of_a_text_that_changed_are_said(tmp_path, monkeypatch, capsys):
    tokens = tmp_path / "cache" / "tokens"
    stopped(monkeypatch, 2, tokens / "other", SOURCES, BPE, **SETTINGS)
    [folder] = tokens.iterdir()
    for path in (*folder.iterdir(), folder):
        os.utime(path, (0, 0))
    n_bytes = sum(path.stat().st_size for path in folder.iterdir())
    (folder / "more").write_bytes(bytes(3_100_000 - n_bytes))
    os.utime(folder / "more", (0, 0))
    os.utime(folder, (0, 0))
    text = tmp_path / "a.txt"
    text.write_bytes(b"some text, " * 200)
    prepare(DataConfig(path=str(text)), cache=tmp_path / "cache")
    said = [line for line in capsys.readouterr().err.splitlines() if "stopped" in line]
    [line] = said
    assert line.startswith(f"{tokens} keeps what was stopped or is of a text that changed: other.")
    assert "100.unfinished (3 MB, " in line and " days old). Delete what will not be" in line
    (tokens / "later.1.unfinished").mkdir()
    text.write_bytes(b"other text, " * 200)
    with held(folder):
        prepare(DataConfig(path=str(text)), cache=tmp_path / "cache")
    said = capsys.readouterr().err
    assert "changed: later.1.unfinished (0 MB, of today). Delete" in said, "other is gone on with"


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "tokens").write_text("a file of the user's")
    with pytest.raises(DataError, match=r"^cannot write .*/tokens/a.100.unfinished: .*SUBLAYER_CA"):
        write_store(tmp_path / "tokens" / "a", SOURCES, BPE, **SETTINGS)

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(lock.os, "write", full)
        with pytest.raises(DataError, match="unfinished: No space left on device; set SUBLAYER_CA"):
            write_store(tmp_path / "full" / "a", SOURCES, BPE, **SETTINGS)
    assert not Path(tmp_path / "full").exists()
