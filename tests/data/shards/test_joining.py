"""A text in shards gives the file of the whole, however it is encoded, stopped or changed."""

import gzip
import io
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare
from sublayer.data.shards import joining, workers
from sublayer.data.shards.cutting import cut_shards
from sublayer.data.shards.encoding import ShardEncoder
from sublayer.data.shards.joined import JoinedIds
from sublayer.data.shards.progress import Progress
from sublayer.data.shards.request import read_request, write_request
from sublayer.data.shards.text_sum import TextSum
from sublayer.data.shards.workers import MOST_PROCESSES, default_processes, limited_to
from sublayer.data.store import read_store, write_store
from sublayer.data.text import document_range, files
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import FileDocument, MemoryDocument
from sublayer.data.text.gutenberg import body_range
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from sublayer.data.tokenizers.named import train_tokenizer
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


@dataclass
class Changed:
    """A document that is one text where it is cut, and another where it is encoded."""

    name: str
    cut: bytes
    encoded: Path
    start: int

    def read(self) -> bytes:
        return self.cut

    def digest(self) -> str:
        return "its digest"

    def place(self) -> tuple[Path, int, int]:
        return self.encoded, self.start, self.start + len(self.cut)


@pytest.mark.parametrize("unit", ["none", "prose"])
def test_shards_of_another_text_are_not_taken_over(tmp_path, unit):
    path = tmp_path / "a.txt"
    text = "".join(PARAGRAPHS).encode()
    ranges = []
    start = 0
    for paragraph in PARAGRAPHS:
        ranges.append(DocumentRange(Changed("a.txt", paragraph.encode(), path, start)))
        start += len(paragraph)
    sources = [ranges]
    settings = {"shard_bytes": 300, "n_processes": 1}
    path.write_bytes(text.replace(b"Two.", b"Ten."))
    with pytest.raises(DataError, match=r"^a.txt, or what follows it, changed while it was read"):
        write_store(tmp_path / "a", sources, BPE, unit, **settings)
    [folder] = tmp_path.glob("a.*.unfinished")
    assert list(folder.glob("*.shard"))
    path.write_bytes(text)
    expected = written(tmp_path / "b", sources, BPE, unit, shard_bytes=WHOLE)
    assert written(tmp_path / "a", sources, BPE, unit, **settings) == expected


@pytest.mark.parametrize("unit", ["none", "prose"])
def test_a_small_text_that_changes_and_looks_the_same_is_noticed(tmp_path, monkeypatch, unit):
    path = tmp_path / "a.txt"
    path.write_bytes(b"One. Two.\n")
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    document = FileDocument(path, tmp_path / "cache")
    document.digest()
    sources = [[DocumentRange(document)]]
    add_all = ShardEncoder.add_all

    def change_and_add(self, pieces):
        path.write_bytes(b"One. Ten.\n")
        os.utime(path, ns=times)
        add_all(self, pieces)

    monkeypatch.setattr(ShardEncoder, "add_all", change_and_add)
    with pytest.raises(DataError, match=f"^{path}, or what follows it, changed while it was"):
        write_store(tmp_path / "a", sources, ByteTokenizer(), unit)
    assert not (tmp_path / "a").exists()


def test_a_text_that_changed_since_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(joining, "_KEPT_BYTES", 1)
    texts = [text.encode() for text in PARAGRAPHS]
    settings = {"shard_bytes": 100, "n_processes": 1}

    def sources():
        return [[DocumentRange(MemoryDocument("a", text)) for text in texts]]

    stopped(monkeypatch, 9, tmp_path / "a", sources(), BPE, **settings)
    texts[1] += b"more"
    with pytest.raises(DataError, match=r"the text is another one than that of .*unfinished"):
        write_store(tmp_path / "a", sources(), BPE, **settings)


@pytest.mark.parametrize("shard_bytes", [WHOLE, 100])
def test_a_text_that_changes_meanwhile_is_noticed(tmp_path, shard_bytes):
    sources = documents(tmp_path)
    document = sources[1][3].document
    document.digest()
    with document.path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(DataError, match=f"{document.path} changed while it was read: leave it"):
        write_store(tmp_path / "a", sources, BPE, shard_bytes=shard_bytes, n_processes=1)
    assert not (tmp_path / "a").exists()


SENTENCES = [*[b"a word and another\n"] * 40_000, b"a word, another, " * 20_000 + b"\n", b"end\n"]


class Recorded(ByteTokenizer):
    """Bytes, and how many are given to be encoded at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[int] = []
        self.alone: list[int] = []

    def encode(self, text):
        self.alone.append(len(text))
        return super().encode(text)

    def encode_many(self, texts):
        self.together.append(sum(map(len, texts)))
        return [ByteTokenizer.encode(self, text) for text in texts]


def test_sentences_are_encoded_in_small_batches_and_long_ones_alone(tmp_path):
    tokenizer = Recorded()
    source = [DocumentRange(MemoryDocument("a", b"".join(SENTENCES)))]
    write_store(tmp_path / "a", [source], tokenizer, "lines")
    assert max(tokenizer.together) <= 256 << 10
    assert tokenizer.alone == [len(SENTENCES[-2].strip()), len(SENTENCES[-1].strip())]
    assert len(read_store(tmp_path / "a").sentence_starts) == len(SENTENCES)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe"])
def test_a_long_sentence_alone_has_the_ids_that_it_has_among_others(kind):
    long = b" ".join(b"word %d, and Another." % number for number in range(9000))
    tokenizer = train_tokenizer(kind, [long[:20000]], vocab_size=300)
    assert tokenizer.encode(long).tolist() == tokenizer.encode_many([b"a", long])[1].tolist()


def test_a_text_without_a_place_to_cut_is_refused_with_its_line(monkeypatch):
    monkeypatch.setattr(document_range, "_CHUNK_BYTES", 8)
    monkeypatch.setattr(document_range, "_LONGEST_BYTES", 32)
    source = [DocumentRange(MemoryDocument("a.txt", b"one\ntwo\nthree\n" + b"x" * 99))]
    tokenizer = train_tokenizer("bpe", [b"one two"], vocab_size=257)
    # BPE cuts before the end of a line, sentences are cut behind it.
    for unit, line in (("none", 3), ("lines", 4)):
        message = f"^a.txt, line {line}: 0 MiB without a place where the text may be cut: divide"
        with pytest.raises(DataError, match=message):
            list(cut_shards([source], tokenizer.cut, unit))
    [shard] = cut_shards([source], ByteTokenizer().cut, "none")
    assert shard.text.n_bytes == 113


TEXT = "".join(f"line {number}\n" for number in range(20_000)).encode()


@pytest.mark.parametrize("small_bytes", [1000, 1 << 20])
def test_a_request_holds_no_text_of_a_compressed_file(tmp_path, monkeypatch, small_bytes):
    monkeypatch.setattr(files, "_SMALL_BYTES", small_bytes)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(TEXT, mtime=0))
    source = [DocumentRange(FileDocument(path, tmp_path / "cache"))]
    [shard] = cut_shards([source], ByteTokenizer().cut, "none")
    request = write_request(shard, tmp_path / "part")
    assert len(request) < 1000
    number, part, pieces = read_request(request)
    assert (number, part) == (0, tmp_path / "part")
    [piece] = pieces
    assert piece.part.document.read()[:] == TEXT
    is_unpacked = (tmp_path / "cache" / "unpacked").exists()
    assert is_unpacked == (small_bytes < len(TEXT))


BODY = b"".join(b"Chapter %d\n\nOne thing. Two things,\r\nand \xc3\xa9.\n\n" % n for n in range(30))

BOOK = (
    b"\xef\xbb\xbfA header that is dropped.\n\n*** START OF THE PROJECT GUTENBERG EBOOK A ***\n\n"
    + BODY
    + b"\n*** END OF THE PROJECT GUTENBERG EBOOK A ***\n\nA licence that is dropped, too.\n" * 2
)


def test_a_sum_is_of_bytes_in_their_order():
    one, other = TextSum(), TextSum()
    one.add(b"123456789")
    for part in (b"1234", b"", b"56789"):
        other.add(part)
    assert one == other == TextSum(9, 0xCBF43926), "the check value of CRC-32"
    other.add(b"\0")
    assert one != other


@pytest.mark.parametrize(
    ("unit", "shard_bytes", "tokenizer"),
    [("none", 1, BPE), ("lines", 200, ByteTokenizer()), ("prose", 1, BPE)],
)
def test_what_is_encoded_is_counted_as_it_was_cut(monkeypatch, unit, shard_bytes, tokenizer):
    monkeypatch.setattr(document_range, "_CHUNK_BYTES", 64)
    first, last = body_range(BOOK)
    assert 0 < first < last < len(BOOK)
    document = MemoryDocument("a", BOOK)
    source = [
        DocumentRange(document),
        DocumentRange(document, 5, first + 40),
        DocumentRange(document, first + 40, last + 10),
        DocumentRange(document, last + 10),
        DocumentRange(document, 3, 9),
        DocumentRange(MemoryDocument("b", b" \n\n ")),
    ]
    n_bytes = 0
    for shard in cut_shards([source], tokenizer.cut, unit, shard_bytes):
        encoder = ShardEncoder(io.BytesIO(), tokenizer, unit, is_first=shard.number == 0)
        encoder.add_all(shard.pieces)
        assert encoder.text == shard.text
        n_bytes += shard.text.n_bytes
    expected = sum((part.stop or len(part.document.text)) - part.start for part in source)
    assert n_bytes == expected
