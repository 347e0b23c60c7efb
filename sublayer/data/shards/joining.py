"""Shards encoded side by side and joined in their order, from where an earlier attempt stopped."""

import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from sublayer.counts import count
from sublayer.data.shards.cutting import Piece, Shard, Sources
from sublayer.data.shards.figures import Figures
from sublayer.data.shards.joined import Edges, JoinedIds
from sublayer.data.shards.parts import is_part_of, read_part, remove_others
from sublayer.data.shards.progress import Progress
from sublayer.data.shards.request import write_request
from sublayer.data.shards.text_sum import TextSum, check_sum
from sublayer.data.shards.workers import Workers, default_processes
from sublayer.data.text.sentences import TextUnit
from sublayer.data.text.whole_documents import check_unchanged, count_bytes
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import DataError
from sublayer.files.cache_folder import writing_to
from sublayer.files.storage import write_file
from sublayer.system.stages import note

_KEPT_BYTES = 256 << 20
"""Bytes of text after which what was joined is noted, and the shards' own files are removed."""


class _Encoded(NamedTuple):
    """A shard that is encoded, or will be: what joining it takes."""

    name: str
    """Of the first of its documents, for messages."""
    text: TextSum
    sha256: str
    edges: Edges
    path: Path
    future: Future[None] | None
    """None where an earlier process encoded it."""


def join_shards(
    folder: Path,
    path: Path,
    shards: Iterable[Shard],
    sources: Sources,
    tokenizer: Tokenizer,
    unit: TextUnit,
    n_processes: int | None,
) -> None:
    """Encode shards by several processes and write the ids of all to ``path``.

    What is done is kept in ``folder``, which is removed in the end. Raises DataError as
    ``write_store`` does.
    """
    progress = Progress("turning the text into tokens", sum(map(count_bytes, sources)))
    with writing_to(path):
        saved = folder / "tokenizer.json"
        write_file(saved, tokenizer.serialize())
        is_same = load_tokenizer(saved).fingerprint == tokenizer.fingerprint
        assert is_same, f"a {tokenizer.kind} tokenizer is read as it was written"
        joined = JoinedIds(folder)
        if n_removed := remove_others(folder):
            removed = count(n_removed, "shard")
            note(f"{folder}: {removed}, damaged or of another version, encoded anew")
        try:
            rest = _skip_joined(shards, joined, progress, folder)
            n_processes = n_processes or default_processes()
            with Workers(n_processes, saved, tokenizer.fingerprint, unit) as workers:
                ahead = _encode_ahead(rest, workers, folder, n_processes + 2)
                _join(joined, ahead, sources, progress)
            check_sources(joined.figures, sources)
            joined.finish(path)
        finally:
            joined.close()
        shutil.rmtree(folder, ignore_errors=True)


def _join(
    joined: JoinedIds, encoded: Iterable[_Encoded], sources: Sources, progress: Progress
) -> None:
    noted: list[Path] = []
    n_bytes = 0
    for each in encoded:
        if each.future is not None:
            each.future.result()
        part = read_part(each.path)
        check_sum(part.text, each.text, each.name, sources)
        joined.append(part, each.edges, each.sha256)
        progress.add(each.text.n_bytes)
        noted.append(each.path)
        n_bytes += each.text.n_bytes
        if n_bytes >= _KEPT_BYTES:
            # Only what outlasts this process is removed.
            joined.keep()
            for path in noted:
                path.unlink()
            noted.clear()
            n_bytes = 0


def check_sources(figures: Figures, sources: Sources) -> None:
    """Raise DataError for a source that gave no document, or a file that changed meanwhile."""
    for number, ranges in enumerate(sources):
        if str(number) not in figures.source_starts:
            raise DataError(
                f"{ranges[0].document.name} has no sentence, nor has what follows it: "
                "give other text"
            )
        check_unchanged(ranges)


def _skip_joined(
    shards: Iterable[Shard], joined: JoinedIds, progress: Progress, folder: Path
) -> Iterator[Shard]:
    """Yield the shards that were not joined before."""
    rest = iter(shards)
    last = ""
    for shard in islice(rest, joined.n_shards):
        progress.skip(shard.text.n_bytes)
        last = shard.sha256
    if last != joined.sha256:
        raise DataError(
            f"the text is another one than that of {folder}, where its preparation stopped: "
            "delete that folder, and run the command again"
        )
    return rest


def _encode_ahead(
    shards: Iterator[Shard], workers: Workers, folder: Path, n_ahead: int
) -> Iterator[_Encoded]:
    """Yield shards in their order, while as many as ``n_ahead`` behind them are encoded."""
    asked: deque[_Encoded] = deque()
    for shard in shards:
        asked.append(_ask(shard, workers, folder))
        if len(asked) > n_ahead:
            yield asked.popleft()
    yield from asked


def _ask(shard: Shard, workers: Workers, folder: Path) -> _Encoded:
    path = folder / f"{shard.number:06d}.shard"
    pieces: list[Piece] = list(shard.pieces)
    edges = Edges(pieces[0].begins, pieces[-1].ends, len(pieces) == 1)
    future = None
    if not is_part_of(path, shard.text):
        future = workers.submit(write_request(shard, path))
    name = pieces[0].part.document.name
    return _Encoded(name, shard.text, shard.sha256, edges, path, future)
