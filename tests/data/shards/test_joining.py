"""A text in shards gives the file of the whole, however it is encoded, stopped and gone on with."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare
from sublayer.data.shards import joining, workers
from sublayer.data.shards.joined import JoinedIds
from sublayer.data.shards.progress import Progress
from sublayer.data.shards.workers import MOST_PROCESSES, default_processes, limited_to
from sublayer.data.store import read_store, write_store
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import FileDocument, MemoryDocument
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from sublayer.errors import DataError
from sublayer.files.json_footer import read_description, write_description
from sublayer.system import lock
from sublayer.system.lock import held
from tests.breadth import rows
from tests.data.shards.paragraphs import BPE, PARAGRAPHS, WHOLE, documents, stopped, written


@pytest.mark.parametrize("unit", ["none", "prose"])
def test_shards_give_the_file_of_the_whole(tmp_path, unit):
    sources = documents(tmp_path)
    for tokenizer, shard_bytes, n_processes in (
        (ByteTokenizer(), 1, 1),
        (BPE, 700, 1),
        (CharacterTokenizer("One Tw.\n"), 3000, 2),
    ):
        expected = written(tmp_path / "whole", sources, tokenizer, unit, shard_bytes=WHOLE)
        settings = {"shard_bytes": shard_bytes, "n_processes": n_processes}
        assert written(tmp_path / "a", sources, tokenizer, unit, **settings) == expected


@pytest.mark.all
def test_a_document_over_several_shards_begins_where_it_first_gives_a_token(tmp_path):
    # A shard has four megabytes of a document at least: blank ones, and some text behind them.
    blank = b" \n\n" * (3 << 20)
    texts = [blank, blank + b"One. Two.\n\n" + blank + b"Three.", b"Four.", blank, b"\n\nFive.\n"]
    source = [DocumentRange(MemoryDocument(str(n), text)) for n, text in enumerate(texts)]
    for sources in ([source], [source[1:3], source[3:]]):
        expected = written(tmp_path / "a", sources, ByteTokenizer(), "prose", shard_bytes=WHOLE)
        found = written(tmp_path / "a", sources, ByteTokenizer(), "prose", shard_bytes=1)
        assert found == expected
        store = read_store(tmp_path / "a")
        assert len(store.document_starts) == 3
        assert store.n_dropped_documents == len([part for of in sources for part in of]) - 3
    with pytest.raises(DataError, match="3 has no sentence, nor has what follows it"):
        write_store(
            tmp_path / "b", [source[:3], source[3:4]], ByteTokenizer(), "prose", shard_bytes=1
        )


DAMAGES = ["nothing", "journal", "version", "ids", "part", "sentences", "cut", "short", "kind"]


@pytest.mark.parametrize("damage", rows(DAMAGES, 5))
def test_a_preparation_that_was_stopped_goes_on_to_the_same_file(
    tmp_path, monkeypatch, capsys, damage
):
    monkeypatch.setattr(joining, "_KEPT_BYTES", 400)
    sources = documents(tmp_path)
    expected = written(tmp_path / "a", sources, BPE, "prose", shard_bytes=WHOLE)
    (tmp_path / "a").unlink()
    settings = {"shard_bytes": 150, "n_processes": 2 if damage == "nothing" else 1}
    stopped(monkeypatch, 9, tmp_path / "a", sources, BPE, "prose", **settings)
    assert not (tmp_path / "a").exists()
    [folder] = tmp_path.glob("a.*.unfinished")
    joined = JoinedIds(folder)
    joined.close()
    assert 0 < joined.n_shards < 9
    parts = sorted(folder.glob("*.shard"))
    assert parts and parts[0].name == f"{joined.n_shards:06d}.shard"
    journal = folder / "journal.json"
    if damage == "journal":
        journal.write_text('{"version": 2}')
    elif damage == "version":
        journal.write_text(journal.read_text().replace('"version": 2', '"version": 1'))
    elif damage == "cut":
        os.truncate(folder / "ids", 5)
    elif damage == "short":
        os.truncate(folder / "documents", 8)
    elif damage == "kind":
        without_sum(parts[0])
    elif damage != "nothing":
        path = parts[0] if damage == "part" else folder / damage
        content = bytearray(path.read_bytes())
        content[3] ^= 1
        path.write_bytes(content)
    assert written(tmp_path / "a", sources, BPE, "prose", **settings) == expected
    said = capsys.readouterr().err
    begins_anew = damage not in ("nothing", "part", "kind")
    anew = f"{folder} is damaged, or of another version: the text is prepared from its start\n"
    assert said.count(anew) == begins_anew
    encoded = f"{folder}: 1 shard, damaged or of another version, encoded anew\n"
    assert said.count(encoded) == (damage == "kind")


def without_sum(path: Path) -> None:
    """Write a shard's file as it was before its text was summed."""
    meta, n_bytes = read_description(path)
    os.truncate(path, n_bytes)
    del meta["text"]
    with path.open("ab") as file:
        write_description(file, meta)


KILLED = """
import os, signal, sys
from pathlib import Path
from sublayer.data.shards import joining
from sublayer.data.shards.progress import Progress
from sublayer.data.store import write_store
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import FileDocument
from sublayer.data.tokenizers.characters import ByteTokenizer

joining._KEPT_BYTES = 2000
done = []

def add(progress, n_bytes):
    done.append(n_bytes)
    if len(done) == 9:
        os.kill(os.getpid(), signal.SIGKILL)

Progress.add = add
folder = Path(sys.argv[1])
files = [FileDocument(path, folder / "cache") for path in sorted(folder.glob("*.txt"))]
sources = [[DocumentRange(file) for file in files]]
write_store(folder / "a", sources, ByteTokenizer(), shard_bytes=400, n_processes=2)
"""


def test_a_process_that_was_killed_loses_nothing(tmp_path):
    for number, text in enumerate(PARAGRAPHS):
        (tmp_path / f"{number:02d}.txt").write_bytes(text.encode() * 3)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    [folder] = tmp_path.glob("a.*.unfinished")
    joined = JoinedIds(folder)
    joined.close()
    assert joined.n_shards > 0
    files = [FileDocument(path, tmp_path / "cache") for path in sorted(tmp_path.glob("*.txt"))]
    sources = [[DocumentRange(file) for file in files]]
    write_store(tmp_path / "a", sources, ByteTokenizer(), shard_bytes=400, n_processes=1)
    resumed = (tmp_path / "a").read_bytes()
    assert resumed == written(tmp_path / "b", sources, ByteTokenizer(), shard_bytes=WHOLE)


def test_what_was_joined_is_not_encoded_again(tmp_path, monkeypatch):
    monkeypatch.setattr(joining, "_KEPT_BYTES", 1)
    sources = [[DocumentRange(MemoryDocument("a", text.encode())) for text in PARAGRAPHS]]
    settings = {"shard_bytes": 100, "n_processes": 1}
    stopped(monkeypatch, 20, tmp_path / "a", sources, BPE, **settings)
    # Nothing can be encoded now but what was before: the rest is asked for, and fails.
    monkeypatch.setattr(workers, "python_command", lambda module: [sys.executable, "-c", ""])
    with pytest.raises(DataError, match="tokens ended with code 0: the same command goes on"):
        write_store(tmp_path / "a", sources, BPE, **settings)
    [folder] = tmp_path.glob("a.*.unfinished")
    joined = JoinedIds(folder)
    joined.close()
    assert joined.n_shards >= 19


def test_a_bad_byte_and_a_full_disk_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"one\ntwo\n\xff\n")
    parts = [MemoryDocument(str(n), text.encode()) for n, text in enumerate(PARAGRAPHS)]
    sources = [[*map(DocumentRange, parts), DocumentRange(FileDocument(path, tmp_path / "cache"))]]
    settings = {"shard_bytes": 1000, "n_processes": 1}
    with pytest.raises(DataError, match=r"bad.txt, line 3: byte 0xff is not UTF-8"):
        write_store(tmp_path / "a", sources, CharacterTokenizer("abc"), **settings)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(joining, "_KEPT_BYTES", 1)
    with monkeypatch.context() as patched:
        patched.setattr(JoinedIds, "keep", full)
        with pytest.raises(DataError, match="cannot write .*/a: No space left on device; set SUBL"):
            write_store(tmp_path / "a", documents(tmp_path), BPE, **settings)
    with monkeypatch.context() as patched:
        patched.setattr(lock.os, "write", full)
        with pytest.raises(DataError, match="unfinished: No space left on device; set SUBLAYER_CA"):
            write_store(tmp_path / "full" / "a", documents(tmp_path), BPE, **settings)
    assert not Path(tmp_path / "full").exists()
    (tmp_path / "tokens").write_text("a file of the user's")
    with pytest.raises(DataError, match=r"^cannot write .*/tokens/a.1000.unfinished: .*SUBLAYER"):
        write_store(tmp_path / "tokens" / "a", documents(tmp_path), BPE, **settings)


def test_the_shards_of_a_text_that_changed_are_listed(tmp_path, monkeypatch, capsys):
    tokens = tmp_path / "cache" / "tokens"
    source = [DocumentRange(MemoryDocument("a", text.encode())) for text in PARAGRAPHS[:9]]
    settings = {"shard_bytes": 100, "n_processes": 1}
    stopped(monkeypatch, 2, tokens / "other", [source], BPE, **settings)
    [folder] = tokens.iterdir()
    n_bytes = sum(path.stat().st_size for path in folder.iterdir())
    (folder / "more").write_bytes(bytes(3_100_000 - n_bytes))
    for path in (*folder.iterdir(), folder):
        os.utime(path, (0, 0))
    text = tmp_path / "a.txt"
    text.write_bytes(b"some text, " * 200)
    prepare(DataConfig(path=str(text)), cache=tmp_path / "cache")
    [line] = [line for line in capsys.readouterr().err.splitlines() if "stopped" in line]
    assert line.startswith(f"{tokens} keeps what was stopped or is of a text that changed: other.")
    assert "100.unfinished (3 MB, " in line and " days old)" in line
    (tokens / "later.1.unfinished").mkdir()
    text.write_bytes(b"other text, " * 200)
    with held(folder):
        prepare(DataConfig(path=str(text)), cache=tmp_path / "cache")
    listed = capsys.readouterr().err
    assert "changed: later.1.unfinished (0 MB, of today). Delete" in listed, "other is gone on with"


def test_progress_says_rate_and_what_is_left():
    seconds = iter([0.0, 100.0, 100.0, 102.0, 102.0])
    progress = Progress("reading", 5_000_000_000, clock=lambda: next(seconds))
    assert progress.line() == "reading: 0 of 5,000 MB"
    progress.skip(1_000_000_000)
    progress._n_done += 50_000_000
    assert progress.line() == "reading: 1,050 of 5,000 MB, 25.0 MB/s, 2:38 left"


def test_processes_are_as_many_as_cores_and_limits_allow(monkeypatch):
    monkeypatch.setattr(workers, "cores", lambda: 64)
    assert default_processes() == MOST_PROCESSES
    with limited_to(3):
        assert default_processes() == 3
    with limited_to(64):
        assert default_processes() == MOST_PROCESSES
    with limited_to(None):
        assert default_processes() == MOST_PROCESSES
    monkeypatch.setattr(workers, "cores", lambda: 2)
    with limited_to(3):
        assert default_processes() == 2
