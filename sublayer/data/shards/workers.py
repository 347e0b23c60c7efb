"""Processes that encode shards side by side, and the memory that they may take together."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from sublayer.errors import ConfigError, DataError
from sublayer.system.cores import cores
from sublayer.system.python_process import python_command

MOST_PROCESSES = 8
"""So many stay within 2 GiB beside the one that asks them."""
PROCESS_BYTES = 180 << 20
"""What is allowed for each; 120 MiB were measured, and more where a text cannot be cut."""
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


_limit = ContextVar("limit", default=MOST_PROCESSES)


def default_processes() -> int:
    """Return how many processes encode a text: a core each, within the memory for them."""
    return min(cores(), _limit.get())


@contextmanager
def limited_to(n_processes: int | None) -> Iterator[None]:
    """Have at most so many processes encode a text in this context; None: as many as usual."""
    token = _limit.set(min(n_processes or MOST_PROCESSES, MOST_PROCESSES))
    try:
        yield
    finally:
        _limit.reset(token)


class Workers:
    """So many processes that encode shards with one tokenizer; leaving ends them."""

    def __init__(self, n_processes: int, tokenizer: Path, fingerprint: str, unit: str) -> None:
        settings = {"tokenizer": str(tokenizer), "fingerprint": fingerprint, "unit": unit}
        self._pool = ThreadPoolExecutor(n_processes)
        self._workers = [_Worker(settings) for _ in range(n_processes)]
        self._idle: SimpleQueue[_Worker] = SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def submit(self, request: bytes) -> Future[None]:
        """Have a shard encoded; what it waits for raises DataError where that failed."""
        return self._pool.submit(self._ask, request)

    def _ask(self, request: bytes) -> None:
        worker = self._idle.get()
        try:
            worker.ask(request)
        finally:
            self._idle.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers:
            worker.end()
        self._pool.shutdown(cancel_futures=True)


class _Worker:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        try:
            self._process = subprocess.Popen(
                python_command("sublayer.data.shards.worker"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **_ONE_THREAD},
            )
        except OSError as error:
            reason = error.strerror or error
            raise DataError(
                f"a process that turns text into tokens cannot be started: {reason}"
            ) from error
        self._first_line = json.dumps(settings).encode() + b"\n"

    def ask(self, request: bytes) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        line = b""
        with suppress(BrokenPipeError):
            self._process.stdin.write(self._first_line + request)
            self._process.stdin.flush()
            self._first_line = b""
            line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._died()
        answer = json.loads(line)
        if answer:
            of_settings = answer["kind"] == "ConfigError"
            raise (ConfigError if of_settings else DataError)(answer["error"])

    def _died(self) -> DataError:
        code = self._process.wait()
        how = f"by signal {-code}, as where memory is lacking" if code < 0 else f"with code {code}"
        return DataError(
            f"a process that turns text into tokens ended {how}: the same command goes on from "
            "what is done"
        )

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
