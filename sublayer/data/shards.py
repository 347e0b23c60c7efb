"""Encoding of a split in shards, by any number of processes and with the same result.

Shards are encoded into separate files, so that an interrupted preparation resumes; then the files
are concatenated. The encoding processes run this module.
"""

import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from sublayer.data.store import read_store
from sublayer.data.text.ranges import (
    NEEDS_UTF8,
    Cut,
    DocumentRange,
    TextUnit,
    check_unchanged,
    chunk_stops,
    count_bytes,
)
from sublayer.data.text.sentences import sentence_stops, sentences_of
from sublayer.data.tokenizers.base import NotUtf8, Tokenizer, count_characters, marks_pattern
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import ConfigError, DataError, SublayerError
from sublayer.files.arrays import (
    FooterFile,
    Ints,
    TokenIds,
    check_bytes,
    read_columns,
    read_description,
)
from sublayer.files.cache_folder import held_in_cache, replacing, writing_to
from sublayer.files.lines import FileText, blocks_of, changed
from sublayer.files.storage import is_held, write_file
from sublayer.numbers import count
from sublayer.system.machine import cores
from sublayer.system.processes import python_command
from sublayer.system.terminal import display, format_seconds, note

VERSION = 1
"""Version of the format: increased whenever equal content would be stored differently."""
SHARD_BYTES = 32 << 20
"""Bytes of text after which a shard ends, at the next possible cut."""
MOST_PROCESSES = 8
"""Maximum number of encoding processes: so many stay within 2 GiB, without their parent."""
PROCESS_BYTES = 180 << 20
"""Memory planned for each process; 120 MiB were measured, more for a text that cannot be cut."""

_MOST_PIECES = 1 << 14
"""Number of documents, or parts of them, after which a shard ends."""
_BATCH_TEXTS = 1024
"""Number of documents, sentences or pairs per batch of encoding."""
_BATCH_BYTES = 256 << 10
"""Bytes of text after which a batch ends: libraries take a hundred times as much memory."""
_MOST_NAMED = 5
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_limit = ContextVar("limit", default=MOST_PROCESSES)

Sources = Sequence[Sequence[DocumentRange]]
"""Document ranges of each source."""


@dataclass
class TextSum:
    """Number and CRC-32 of the bytes read, in order.

    A text is read twice, to be cut and to be encoded: equal sums show that its file did not change
    in between.
    """

    n_bytes: int = 0
    crc32: int = 0

    def add(self, data: bytes) -> None:
        """Add bytes."""
        self.n_bytes += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)


@dataclass(frozen=True)
class Piece:
    """Range of a document, up to its end or to a cut that changes no id."""

    part: DocumentRange
    source: int
    """Number of the document's source."""
    document: int
    """Number of the document among all sources' documents."""
    begins: bool
    """Whether the document begins with this piece or continues in it."""


@dataclass(frozen=True)
class Shard:
    """Consecutive pieces of a split."""

    number: int
    pieces: Iterable[Piece]
    text: TextSum
    """Count and checksum of the pieces' raw bytes; empty for pairs."""
    sha256: str
    """SHA-256 of the split's raw bytes up to the end of the shard."""


def cut_shards(
    sources: Sources, cut: Cut, unit: TextUnit, shard_bytes: int = SHARD_BYTES
) -> Iterator[Shard]:
    """Cut the documents of sources into shards, at least one; a pure function of the text.

    ``cut`` is the tokenizer's rule of cuts, ``unit`` the unit into which documents are divided.
    Pairs are one shard, and their bytes are neither counted nor hashed here, since encoding drops
    some.
    """
    parts = ((part, source) for source, ranges in enumerate(sources) for part in ranges)
    if unit == "pair":
        whole = (Piece(part, source, n, True) for n, (part, source) in enumerate(parts))
        yield Shard(0, whole, TextSum(), "")
        return
    hashed = hashlib.sha256()
    pieces: list[Piece] = []
    number = 0
    summed = TextSum()
    for document, (part, source) in enumerate(parts):
        text = part.document.read()
        last = len(text) if part.stop is None else part.stop
        if unit == "none":
            stops = chunk_stops(part.document.name, text, part.start, last, cut)
        else:
            stops = sentence_stops(part, text, unit)
        start = position = part.start
        for stop in chain((stop for stop in stops if part.start < stop < last), [last]):
            for block in blocks_of(text, position, stop):
                hashed.update(block)
                summed.add(block)
            position = stop
            is_full = summed.n_bytes >= shard_bytes or len(pieces) >= _MOST_PIECES
            if not is_full and stop < last:
                continue
            is_whole = start == part.start and stop == last
            piece = part if is_whole else DocumentRange(part.document, start, stop)
            pieces.append(Piece(piece, source, document, start == part.start))
            start = stop
            if is_full:
                yield Shard(number, pieces, summed, hashed.hexdigest())
                pieces, summed = [], TextSum()
                number += 1
    if pieces or not number:
        yield Shard(number, pieces, summed, hashed.hexdigest())


class Segment(NamedTuple):
    """Text that is encoded separately: a sentence, or a chunk of a document."""

    text: bytes
    piece: int
    """Number of its piece in the shard."""
    part: DocumentRange
    start: int = 0
    """Position of a chunk in its document."""
    follows: bool = False
    """Whether another document ends just before it."""


class ShardEncoder:
    """Encoder of pieces, which writes their ids with an end id between documents.

    Where ``unit`` divides the text into sentences, they are encoded separately. Sentences without
    tokens, and pairs with a side without tokens, are dropped.

    The file holds the ids; the source, document and number of tokens of each piece; the starts of
    sentences; and a description.
    """

    def __init__(self, file: BinaryIO, tokenizer: Tokenizer, unit: TextUnit) -> None:
        self.text = TextSum()
        """Count and checksum of the raw bytes read; empty for pairs."""
        self._file = FooterFile(file)
        self._tokenizer = tokenizer
        self._dtype = dtype_of(tokenizer)
        self._marks = marks_pattern(tokenizer.marks)
        self._unit = unit
        self._n_tokens = 0
        self._pieces = array("q")
        self._sentence_starts = array("q")
        self._of_pairs = hashlib.sha256()
        self._figures: Counter[str] = Counter()
        self._n_marks: Counter[str] = Counter()
        """Occurrences of special tokens' names in the text, read as such tokens or not."""

    def add_all(self, pieces: Iterable[Piece]) -> None:
        """Encode pieces; raise DataError, with file and line, where one cannot be encoded."""
        if self._unit == "pair":
            rest = iter(pieces)
            while pairs := list(islice(rest, _BATCH_TEXTS)):
                # Only the words of both sides are encoded, not the original lines after them.
                documents = [pair.part.document.read()[:].split(b"\n") for pair in pairs]
                sources = self._tokenizer.encode_many([lines[0] for lines in documents])
                targets = self._tokenizer.encode_targets([lines[1] for lines in documents])
                for pair, lines, *sides in zip(pairs, documents, sources, targets, strict=True):
                    number = self._new_piece(pair)
                    if all(map(len, sides)):
                        self._of_pairs.update(b"".join(text + b"\n" for text in lines[:2]))
                        texts = (Segment(text, number, pair.part) for text in lines)
                        self._store(zip(texts, sides, strict=False))
            return
        for batch in _batches(self._segments(pieces)):
            encoded = list(zip(batch, self._encode(batch), strict=True))
            if self._unit != "none":
                encoded = [(sentence, ids) for sentence, ids in encoded if len(ids)]
                self._figures["dropped_sentences"] += len(batch) - len(encoded)
            self._store(encoded)

    def close(self) -> None:
        """Write the columns and the description that end the file."""
        columns = [[column.tobytes()] for column in (self._pieces, self._sentence_starts)]
        sizes, crc32 = self._file.write_columns(*columns)
        self._file.close(
            {
                "version": VERSION,
                "n_id_bytes": self._file.n_bytes,
                "n_columns": [size // 8 for size in sizes],
                "crc32": self._file.crc32,
                "columns_crc32": crc32,
                "pairs_sha256": self._of_pairs.hexdigest(),
                "text": asdict(self.text),
                "figures": self._figures,
                "marks": self._n_marks,
            }
        )

    def _segments(self, pieces: Iterable[Piece]) -> Iterator[Segment]:
        """Yield the segments of pieces."""
        for piece in pieces:
            part, number = piece.part, self._new_piece(piece)
            if self._unit == "none":
                follows = bool(piece.begins and piece.document)
                # Chunks end at safe cuts, so that their ids equal the full text's.
                for start, chunk in part.chunks(self._tokenizer.cut):
                    self.text.add(chunk)
                    yield Segment(chunk, number, part, start, follows)
                    follows = False
                if follows:
                    yield Segment(b"", number, part, part.start, follows)
                continue
            for sentences in sentences_of(part, self._unit, self.text.add):
                yield from (Segment(sentence.encode(), number, part) for sentence in sentences)

    def _new_piece(self, piece: Piece) -> int:
        """Record a piece, for ``_store`` to count its tokens; return its number in the shard."""
        self._pieces.extend((piece.source, piece.document, 0))
        return len(self._pieces) // 3 - 1

    def _encode(self, segments: Sequence[Segment]) -> list[TokenIds]:
        try:
            # A single text may be encoded in parts, if its tokenizer can.
            if len(segments) > 1:
                return self._tokenizer.encode_many([segment.text for segment in segments])
            return [self._tokenizer.encode(segments[0].text)]
        except NotUtf8 as error:
            if len(segments) > 1:  # find the segment at fault
                return [ids for segment in segments for ids in self._encode([segment])]
            position = segments[0].start + error.position
            raise segments[0].part.not_utf8(position, NEEDS_UTF8) from error

    def _store(self, encoded: Iterable[tuple[Segment, TokenIds]]) -> None:
        """Store the ids of segments, in order."""
        rows: list[TokenIds] = []
        first = self._n_tokens
        for segment, ids in encoded:
            self._count(segment.text, ids)
            if self._unit != "none":
                self._sentence_starts.append(self._n_tokens)
            if segment.follows and self._tokenizer.end_id is not None:
                rows.append(np.array([self._tokenizer.end_id], dtype=np.int32))
                self._n_tokens += 1
            rows.append(ids)
            self._n_tokens += len(ids)
            self._pieces[3 * segment.piece + 2] += self._n_tokens - first
            first = self._n_tokens
        if rows:
            stored = np.concatenate(rows, dtype=self._dtype, casting="unsafe")
            self._file.write(stored.tobytes())

    def _count(self, text: bytes, ids: TokenIds) -> None:
        figures, tokenizer = self._figures, self._tokenizer
        figures["bytes"] += len(text)
        if self._marks is not None:
            self._n_marks.update(mark.decode() for mark in self._marks.findall(text))
        if tokenizer.is_lossless:
            return
        figures["characters"] += int(count_characters([text])[0])
        if not figures["losses"]:
            # Lengths are compared first: decoding takes longer.
            n_bytes = int(tokenizer.token_bytes[ids].sum())
            figures["losses"] += n_bytes != len(text) or tokenizer.decode(ids) != text


def dtype_of(tokenizer: Tokenizer) -> np.dtype[Any]:
    """Return the dtype of stored ids: two bytes below 65,536 ids, else four."""
    return np.dtype("<u2" if tokenizer.vocab_size < 1 << 16 else "<u4")


def _batches(segments: Iterable[Segment]) -> Iterator[list[Segment]]:
    """Yield small batches of segments; a long one is a separate batch."""
    batch: list[Segment] = []
    n_bytes = 0
    for segment in segments:
        if batch and n_bytes + len(segment.text) > _BATCH_BYTES:
            yield batch
            batch, n_bytes = [], 0
        batch.append(segment)
        n_bytes += len(segment.text)
        if n_bytes > _BATCH_BYTES or len(batch) == _BATCH_TEXTS:
            yield batch
            batch, n_bytes = [], 0
    if batch:
        yield batch


def write_store(
    path: Path,
    sources: Sources,
    tokenizer: Tokenizer,
    sentences: TextUnit = "none",
    *,
    shard_bytes: int = SHARD_BYTES,
    n_processes: int | None = None,
) -> None:
    """Encode the documents of each source and write their ids, with an end id between documents.

    A text of more than one shard is encoded by ``n_processes``, by default as many as the cores
    and the memory allow. Shards are kept until they are concatenated, so that an interrupted
    preparation resumes. The file has the same bits for any number of processes and any shard size.

    Raises DataError: with file and line where a text cannot be encoded; with the file where a
    source has no sentence or changed while it was read; and where the disk is full.
    """
    folder = path.with_name(f"{path.name}.{shard_bytes}.unfinished")
    shards = cut_shards(sources, tokenizer.cut, sentences, shard_bytes)
    with held_in_cache(folder, "tokenizes the same text"), ExitStack() as stack:
        if read_store(path) is not None:
            return  # another process has just encoded it
        stack.enter_context(writing_to(path))
        first = list(islice(shards, 2))
        n_ahead = 0
        encode: Encode = partial(_encode_here, tokenizer, sentences)
        encoders = stack.enter_context(ExitStack())
        if len(first) < 2:
            # A single shard is not worth keeping if the text turns out to be invalid.
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        else:
            saved = folder / "tokenizer.json"
            write_file(saved, tokenizer.serialize())
            is_same = load_tokenizer(saved).fingerprint == tokenizer.fingerprint
            assert is_same, f"a {tokenizer.kind} tokenizer is read as it was written"
            n_processes = n_processes or min(cores(), _limit.get())
            n_ahead = n_processes + 2
            encode = encoders.enter_context(
                _encoders(n_processes, saved, tokenizer.fingerprint, sentences)
            )
        progress = EncodingProgress(sum(map(count_bytes, sources)))
        parts = []
        sha256 = ""
        for shard, part, wait in _encode_ahead(chain(first, shards), folder, encode, n_ahead):
            if wait is None:
                progress.skip(shard.text.n_bytes)
            else:
                wait()
                if _Part(part).text != shard.text:
                    for ranges in sources:
                        check_unchanged(ranges)  # which names the file
                    name = next(iter(shard.pieces)).part.document.name
                    raise changed(f"{name}, or the text after it,")
                if n_ahead:
                    progress.add(shard.text.n_bytes)
            parts.append(part)
            sha256 = shard.sha256
        encoders.close()  # frees their memory before shards are concatenated
        _join(path, [_Part(part) for part in parts], sha256, sources, tokenizer, sentences)
        shutil.rmtree(folder, ignore_errors=True)


Encode = Callable[[Path, Iterable[Piece]], Callable[[], object]]
"""Function that starts encoding pieces into a file, and returns one that waits for the file."""


def _encode_ahead(
    shards: Iterable[Shard], folder: Path, encode: Encode, n_ahead: int
) -> Iterator[tuple[Shard, Path, Callable[[], object] | None]]:
    """Yield shards in order, while up to ``n_ahead`` later ones are encoded.

    Each comes with its file and the function that waits for it, or None if an earlier preparation
    encoded it.
    """
    submitted: deque[tuple[Shard, Path, Callable[[], object] | None]] = deque()
    for shard in shards:
        path = folder / f"{shard.number:06d}.shard"
        wait = None
        try:
            part = _Part(path)
            check_bytes(path, 0, part.meta["n_id_bytes"], part.meta["crc32"])
            part.columns()
            is_encoded = part.text == shard.text != TextSum()
        except (OSError, ValueError, KeyError, TypeError):
            is_encoded = False
        if not is_encoded:
            wait = encode(path, shard.pieces)
        submitted.append((shard, path, wait))
        if len(submitted) > n_ahead:
            yield submitted.popleft()
    yield from submitted


class _Part:
    """File of an encoded shard."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.meta, self.n_bytes = read_description(path)
        self.text = TextSum(**self.meta["text"])

    def ids(self) -> Iterator[bytes]:
        """Yield the ids as stored."""
        return blocks_of(FileText(self.path, 0, self.meta["n_id_bytes"]))

    def columns(self) -> tuple[Ints, Ints]:
        """Return source, document and token count of each piece ``[P, 3]``, and sentence starts."""
        counts, crc32 = self.meta["n_columns"], self.meta["columns_crc32"]
        pieces, sentence_starts = read_columns(
            self.path, self.meta["n_id_bytes"], counts, self.n_bytes, crc32
        )
        return pieces.reshape(-1, 3), sentence_starts


def _join(
    path: Path,
    parts: Sequence[_Part],
    sha256: str,
    sources: Sources,
    tokenizer: Tokenizer,
    unit: TextUnit,
) -> None:
    """Concatenate the ids of parts, with the starts of documents and sentences."""
    dtype = dtype_of(tokenizer)
    shifts = np.cumsum([0, *(part.meta["n_id_bytes"] // dtype.itemsize for part in parts)])
    figures: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    for part in parts:
        figures.update(part.meta["figures"])
        marks.update(part.meta["marks"])
    source_starts: dict[int, int] = {}
    last = -1

    def document_starts() -> Iterator[bytes]:
        nonlocal last
        last_kept = -1
        for part, shift in zip(parts, shifts.tolist(), strict=False):
            source, document, n_tokens = part.columns()[0].T
            starts = shift + np.cumsum(n_tokens) - n_tokens
            if unit == "none" and tokenizer.end_id is not None:
                starts += document > 0  # after the end id of the previous document
            # A document starts at its first piece with a token; without tokens it is dropped.
            nonempty = np.flatnonzero((n_tokens > 0) | (unit == "none"))
            numbers, firsts = np.unique(document[nonempty], return_index=True)
            new = nonempty[firsts[numbers > last_kept]]
            for number, start in zip(source[new].tolist(), starts[new].tolist(), strict=True):
                source_starts.setdefault(number, start)
            last_kept = max((last_kept, *numbers[-1:].tolist()))
            last = max((last, *document[-1:].tolist()))
            yield _bytes(starts[new])

    def sentence_starts() -> Iterator[bytes]:
        for part, shift in zip(parts, shifts, strict=False):
            yield _bytes(part.columns()[1] + shift)

    with replacing(path) as file:
        joined = FooterFile(file)
        for part in parts:
            for block in part.ids():
                joined.write(block)
        of_sources = (_bytes(list(source_starts.values())) for _ in range(1))
        sizes, crc32 = joined.write_columns(document_starts(), of_sources, sentence_starts())
        for number, ranges in enumerate(sources):
            if number not in source_starts:
                raise DataError(
                    f"{ranges[0].document.name} and the rest of its source have no sentences: "
                    "give another text"
                )
            check_unchanged(ranges)
        n_documents, n_sources, n_sentences = (size // 8 for size in sizes)
        meta: dict[str, Any] = {
            "version": VERSION,
            "dtype": dtype.str,
            "n_tokens": int(shifts[-1]),
            "n_documents": n_documents,
            "n_sources": n_sources,
            "n_bytes": figures["bytes"],
            "sha256": parts[-1].meta["pairs_sha256"] if unit == "pair" else sha256,
            "is_lossless": not figures["losses"],
            "crc32": joined.crc32,
            "starts_crc32": crc32,
        }
        if figures["losses"]:
            meta["n_characters"] = figures["characters"]
        if marks:
            meta["marks"] = marks
        if unit != "none":
            meta["n_sentences"] = n_sentences
            meta["n_dropped_sentences"] = figures["dropped_sentences"]
            meta["n_dropped_documents"] = last + 1 - n_documents
        joined.close(meta)


def _bytes(starts: Any) -> bytes:
    return np.asarray(starts, dtype="<i8").tobytes()


class EncodingProgress:
    """Progress of encoding in bytes, including those encoded by an earlier process."""

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes = max(1, n_bytes)
        self._n_done = self._n_new = 0
        self._begun_s = time.monotonic()

    def skip(self, n_bytes: int) -> None:
        """Count bytes encoded by an earlier preparation, which the rate excludes."""
        self._n_done += n_bytes
        self._begun_s = time.monotonic()

    def add(self, n_bytes: int) -> None:
        """Count encoded bytes; show their sum, the rate and the remaining time."""
        self._n_done += n_bytes
        self._n_new += n_bytes
        per_s = max(1.0, self._n_new / max(1e-9, time.monotonic() - self._begun_s))
        left = format_seconds((self._n_bytes - self._n_done) / per_s)
        display().change_innermost(
            f"tokenizing the text: {self._n_done / 1e6:,.0f} of "
            f"{self._n_bytes / 1e6:,.0f} MB, {per_s / 1e6:,.1f} MB/s, {left} left",
            min(1.0, self._n_done / self._n_bytes),
        )


@contextmanager
def limited_to(n_processes: int | None) -> Iterator[None]:
    """Limit the number of encoding processes in this context; None: the default."""
    token = _limit.set(min(n_processes or MOST_PROCESSES, MOST_PROCESSES))
    try:
        yield
    finally:
        _limit.reset(token)


def _encode_here(
    tokenizer: Tokenizer, unit: TextUnit, path: Path, pieces: Iterable[Piece]
) -> Callable[[], object]:
    """Encode pieces into a file at once; return a function that waits for nothing."""
    with replacing(path, is_durable=False) as file:  # checked before it is used again
        encoder = ShardEncoder(file, tokenizer, unit)
        encoder.add_all(pieces)
        encoder.close()
    return lambda: None


@contextmanager
def _encoders(
    n_processes: int, tokenizer: Path, fingerprint: str, unit: TextUnit
) -> Iterator[Encode]:
    """Start encoding processes; yield the function that submits a shard to an idle one.

    Waiting for a shard raises DataError or ConfigError where it cannot be encoded.
    """
    processes: list[subprocess.Popen[bytes]] = []
    idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
    pool = ThreadPoolExecutor(n_processes)

    def ask(request: bytes) -> None:
        process = idle.get()
        assert process.stdin is not None and process.stdout is not None
        line = b""
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(request)
                process.stdin.flush()
                line = process.stdout.readline()
        finally:
            idle.put(process)
        if not line.endswith(b"\n"):
            code = process.wait()
            how = f"signal {-code}, as when memory runs out" if code < 0 else f"code {code}"
            raise DataError(
                f"an encoding process of the text ended with {how}: run the same command again to "
                "resume"
            )
        if answer := json.loads(line):
            raise (ConfigError if answer["kind"] == "ConfigError" else DataError)(answer["error"])

    def submit(path: Path, pieces: Iterable[Piece]) -> Callable[[], object]:
        request = pickle.dumps((tokenizer, fingerprint, unit, path, list(pieces)))
        return pool.submit(ask, request).result

    try:
        for _ in range(n_processes):
            processes.append(_start_encoder())
            idle.put(processes[-1])
        yield submit
    finally:
        for process in processes:
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.kill()
            process.wait()
            process.stdout.close()
        pool.shutdown(cancel_futures=True)


def _start_encoder() -> "subprocess.Popen[bytes]":
    """Start a process that runs ``main``; raise DataError where it cannot start."""
    try:
        return subprocess.Popen(
            python_command(__name__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD},
        )
    except OSError as error:
        raise DataError(
            f"an encoding process of the text cannot be started: {error.strerror or error}"
        ) from error


def main() -> int:
    """Encode the shards requested on standard input, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    requests: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
    Thread(target=_listen, args=(requests,), daemon=True).start()
    while True:
        answer = _encode(*requests.get())
        try:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            return 0


def _listen(requests: "SimpleQueue[tuple[Any, ...]]") -> None:
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            # Trusted: pickled by the parent process, as in ``multiprocessing``.
            requests.put(pickle.load(sys.stdin.buffer))  # noqa: S301
    os._exit(0)


_load = cache(load_tokenizer)


def _encode(
    tokenizer: Path, fingerprint: str, unit: TextUnit, path: Path, pieces: Sequence[Piece]
) -> dict[str, str]:
    loaded = _load(tokenizer)
    assert loaded.fingerprint == fingerprint, "a tokenizer is read as it was written"
    try:
        _encode_here(loaded, unit, path, pieces)
    except SublayerError as error:
        return {"kind": type(error).__name__, "error": str(error)}
    except OSError as error:
        return {"kind": "DataError", "error": f"cannot read the text: {error}"}
    return {}


def note_unfinished(path: Path) -> None:
    """Note unfinished preparations of other texts in the folder of ``path``."""
    unfinished = [
        folder.name
        for folder in sorted(path.parent.glob("*.unfinished"))
        if not folder.name.startswith(f"{path.name}.") and not is_held(folder)
    ]
    if unfinished:
        n_others = len(unfinished) - _MOST_NAMED
        others = [f"and {count(n_others, 'other')}"] if n_others > 0 else []
        note(
            f"{path.parent} has unfinished preparations, interrupted or of texts that changed: "
            f"{', '.join(unfinished[:_MOST_NAMED] + others)}. Delete those that you will not resume"
        )
