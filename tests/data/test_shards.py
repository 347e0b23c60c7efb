"""A text in shards gives the file of the whole, however it is encoded, stopped or changed."""

import gzip
import io
import os
import sys

import pytest

from sublayer.data.shards import joining, workers
from sublayer.data.shards.cutting import cut_shards
from sublayer.data.shards.encoding import ShardEncoder
from sublayer.data.shards.joined import JoinedIds
from sublayer.data.shards.progress import Progress
from sublayer.data.shards.request import read_request, write_request
from sublayer.data.store import read_store, write_store
from sublayer.data.text import document_range, files
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.document_store import open_pack
from sublayer.data.text.files import FileDocument, MemoryDocument
from sublayer.data.text.gutenberg import body_range
from sublayer.data.text.whole_documents import WholeDocuments
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import DataError
from sublayer.files.json_footer import read_description, write_description
from sublayer.system import lock

PARAGRAPHS = [
    f"Title {number}\n\nOne {number}. Two.\nThree!\n\n".encode() * 3 for number in range(60)
]
WHOLE = 1 << 40
BPE = train_tokenizer("bpe", PARAGRAPHS, vocab_size=300)
ONE = {"n_processes": 1}


def ranges(*texts):
    return [DocumentRange(MemoryDocument("a", text)) for text in texts]


def documents(folder):
    """Sources of several kinds: in memory, in files, blank ones, and records of a pack."""
    contents = {f"{number}.txt": text for number, text in enumerate(PARAGRAPHS[20:30])}
    contents["packed.txt.gz"] = gzip.compress(b"Packed. " * 100, mtime=0)
    found = []
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        found.append(DocumentRange(FileDocument(folder / name, folder / "cache")))
    found[0] = DocumentRange(found[0].document, 7, 30)
    records = open_pack(folder / "pack", [("records", lambda: enumerate(PARAGRAPHS[30:], 1))])
    return [ranges(*PARAGRAPHS[:20], b" \n\n "), found, WholeDocuments(records)]


def written(path, *arguments, **options):
    path.unlink(missing_ok=True)
    write_store(path, *arguments, **options)
    assert read_store(path) is not None
    assert not list(path.parent.glob(f"{path.name}.*.unfinished"))
    return path.read_bytes()


def stopped(monkeypatch, after, *arguments, **options):
    """Write a store, and stop when so many shards were joined."""
    done = []

    def add(progress, n_bytes):
        done.append(n_bytes)
        if len(done) == after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "add", add)
        with pytest.raises(KeyboardInterrupt):
            write_store(*arguments, **options)


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


@pytest.mark.parametrize("damage", ["nothing", "version", "ids", "cut", "part", "kind"])
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
    part = min(folder.glob("*.shard"))
    assert part.name == f"{joined.n_shards:06d}.shard"
    journal = folder / "journal.json"
    if damage == "version":
        journal.write_text(journal.read_text().replace('"version": 2', '"version": 1'))
    elif damage == "cut":
        os.truncate(folder / "ids", 5)
    elif damage == "kind":  # as it was before the text of a shard was summed
        meta, n_bytes = read_description(part)
        os.truncate(part, n_bytes)
        del meta["text"]
        with part.open("ab") as file:
            write_description(file, meta)
    elif damage != "nothing":
        path = part if damage == "part" else folder / damage
        content = bytearray(path.read_bytes())
        content[3] ^= 1
        path.write_bytes(content)
    assert written(tmp_path / "a", sources, BPE, "prose", **settings) == expected
    said = capsys.readouterr().err
    anew = f"{folder} is damaged, or of another version: the text is prepared from its start\n"
    assert said.count(anew) == (damage in ("version", "ids", "cut"))
    encoded = f"{folder}: 1 shard, damaged or of another version, encoded anew\n"
    assert said.count(encoded) == (damage == "kind")


def test_joined_shards_are_not_encoded_again_nor_those_of_another_text(tmp_path, monkeypatch):
    monkeypatch.setattr(joining, "_KEPT_BYTES", 1)
    settings = {"shard_bytes": 100, **ONE}
    stopped(monkeypatch, 20, tmp_path / "a", [ranges(*PARAGRAPHS)], BPE, **settings)
    changed = [PARAGRAPHS[0], PARAGRAPHS[1] + b"more", *PARAGRAPHS[2:]]
    with pytest.raises(DataError, match=r"the text is another one than that of .*unfinished"):
        write_store(tmp_path / "a", [ranges(*changed)], BPE, **settings)
    # Nothing can be encoded now but what was before: the rest is asked for, and fails.
    monkeypatch.setattr(workers, "python_command", lambda module: [sys.executable, "-c", ""])
    with pytest.raises(DataError, match="tokens ended with code 0: the same command goes on"):
        write_store(tmp_path / "a", [ranges(*PARAGRAPHS)], BPE, **settings)
    [folder] = tmp_path.glob("a.*.unfinished")
    joined = JoinedIds(folder)
    joined.close()
    assert joined.n_shards >= 19


def test_a_bad_byte_and_a_full_disk_are_refused(tmp_path, monkeypatch):
    (tmp_path / "bad.txt").write_bytes(b"one\ntwo\n\xff\n")
    bad = DocumentRange(FileDocument(tmp_path / "bad.txt", tmp_path / "cache"))
    settings = {"shard_bytes": 1000, **ONE}
    with pytest.raises(DataError, match=r"bad.txt, line 3: byte 0xff is not UTF-8"):
        write_store(
            tmp_path / "a", [[*ranges(*PARAGRAPHS), bad]], CharacterTokenizer("abc"), **settings
        )

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(joining, "_KEPT_BYTES", 1)
    for place, name, path in ((JoinedIds, "keep", "a"), (lock.os, "write", "full/a")):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, full)
            with pytest.raises(DataError, match="cannot write .*: No space left on device; set SU"):
                write_store(tmp_path / path, documents(tmp_path), BPE, **settings)
    assert not (tmp_path / "full").exists()
    (tmp_path / "tokens").write_text("a file of the user's")
    with pytest.raises(DataError, match=r"^cannot write .*/tokens/a.1000.unfinished: .*SUBLAYER"):
        write_store(tmp_path / "tokens" / "a", documents(tmp_path), BPE, **settings)


@pytest.mark.parametrize("unit", ["none", "prose"])
def test_a_text_that_changes_meanwhile_is_noticed(tmp_path, monkeypatch, unit):
    path = tmp_path / "a.txt"
    path.write_bytes(b"One. Two.\n")
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    document = FileDocument(path, tmp_path / "cache")
    document.digest()
    add_all = ShardEncoder.add_all

    def change_and_add(self, pieces):
        path.write_bytes(b"One. Ten.\n")
        os.utime(path, ns=times)  # it looks the same
        add_all(self, pieces)

    with monkeypatch.context() as patched:
        patched.setattr(ShardEncoder, "add_all", change_and_add)
        with pytest.raises(DataError, match=f"^{path}, or what follows it, changed while it was"):
            write_store(tmp_path / "a", [[DocumentRange(document)]], ByteTokenizer(), unit)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("small_bytes", [1000, 1 << 20])
def test_a_request_holds_no_text_of_a_compressed_file(tmp_path, monkeypatch, small_bytes):
    monkeypatch.setattr(files, "_SMALL_BYTES", small_bytes)
    text = b"".join(b"line %d\n" % number for number in range(20_000))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text, mtime=0))
    source = [DocumentRange(FileDocument(tmp_path / "a.txt.gz", tmp_path / "cache"))]
    [shard] = cut_shards([source], ByteTokenizer().cut, "none")
    request = write_request(shard, tmp_path / "part")
    assert len(request) < 1000
    number, part, [piece] = read_request(request)
    assert (number, part) == (0, tmp_path / "part")
    assert piece.part.document.read()[:] == text
    assert (tmp_path / "cache" / "unpacked").exists() == (small_bytes < len(text))


@pytest.mark.parametrize(("unit", "shard_bytes"), [("none", 1), ("lines", 200), ("prose", 1)])
def test_encoded_text_is_summed_as_it_was_cut(monkeypatch, unit, shard_bytes):
    monkeypatch.setattr(document_range, "_CHUNK_BYTES", 64)
    mark = b"\n*** %s OF THE PROJECT GUTENBERG EBOOK A ***\n\n"
    body = b"".join(b"Chapter %d\n\nOne. Two,\r\nand \xc3\xa9.\n\n" % n for n in range(30))
    book = b"\xef\xbb\xbfHeader." + mark % b"START" + body + mark % b"END" + b"Licence."
    first, last = body_range(book)
    bounds = [(0, None), (5, first + 40), (first + 40, last + 10), (last + 10, None), (3, 9)]
    document = MemoryDocument("a", book)
    source = [DocumentRange(document, *places) for places in bounds] + ranges(b" \n\n ")
    n_bytes = 0
    for shard in cut_shards([source], BPE.cut, unit, shard_bytes):
        encoder = ShardEncoder(io.BytesIO(), BPE, unit, is_first=shard.number == 0)
        encoder.add_all(shard.pieces)
        assert encoder.text == shard.text
        n_bytes += shard.text.n_bytes
    assert n_bytes == 2 * len(book) - 5 + 6 + 4
