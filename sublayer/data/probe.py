"""Tokenizer files that compiled libraries read: tried first in a process of their own, once for each content.

A damaged or hostile file can make such a library abort, panic or run for ever, which nothing catches where it happens.
"""

import hashlib
import os
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from sublayer.cache import cache_folder
from sublayer.data.cache import content_key, replacing
from sublayer.errors import DataError

Library = Literal["tokenizers", "sentencepiece"]

VERSION = 1
"""Changes whenever files would be tried otherwise."""

_SCRIPT = Path(__file__).with_name("probe_process.py")
_SHOWN = 200
# Processor time, which other work on the machine does not use up; and, far off, time on the clock.
_SECONDS, _SECONDS_PER_MB, _PATIENCE = 4, 1, 8
_BYTES, _BYTES_PER_BYTE = 512 << 20, 64

_tried: set[str] = set()


def try_file(library: Library, data: bytes, what: str) -> None:
    """Let a library read a file's content and encode and decode texts with it, in a process of its own.

    What was tried before is known by its content, and not tried again. Raises DataError that says ``what``, and why,
    where the library refuses it, dies of it, or takes too long or too much memory.
    """
    key = _key(library, data)
    if key in _tried or _is_kept(key):
        return
    reason = _run(library, data)
    if reason is not None:
        raise DataError(f"{what}: {reason}")
    _tried.add(key)
    _keep(key)


def _key(library: Library, data: bytes) -> str:
    return content_key(VERSION, library, version(library), hashlib.sha256(data).hexdigest())


def _kept_path(key: str) -> Path:
    return cache_folder() / "tried" / key


def _is_kept(key: str) -> bool:
    with suppress(DataError, OSError, RuntimeError):  # no home folder to keep anything in
        return _kept_path(key).is_file()
    return False


def _keep(key: str) -> None:
    # What cannot be kept is tried again the next time.
    with suppress(DataError, OSError, RuntimeError), replacing(_kept_path(key)) as file:
        file.write(b"")


def _run(library: Library, data: bytes) -> str | None:
    """Say why a file cannot be used; None where it can."""
    spec = find_spec(library)
    assert spec is not None and spec.origin is not None, f"{library} is installed"
    n_seconds = _SECONDS + _SECONDS_PER_MB * (len(data) >> 20)
    n_bytes = _BYTES + _BYTES_PER_BYTE * len(data)
    command = [sys.executable, "-I", "-S", str(_SCRIPT), library, str(Path(spec.origin).parent.parent)]
    try:
        done = subprocess.run(
            [*command, str(n_bytes), str(n_seconds)],
            input=data,
            capture_output=True,
            timeout=_PATIENCE * n_seconds,
            check=False,
            env={**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
    except subprocess.TimeoutExpired:
        return f"it takes more than {_PATIENCE * n_seconds} seconds"
    except OSError as error:
        return f"the process that tries it cannot be started ({error.strerror or error})"
    if done.returncode == 0:
        return None
    if done.returncode == 1:
        reason = done.stdout.decode("utf-8", "replace").strip()
        return (reason or "it is damaged")[:_SHOWN]
    return _describe_end(-done.returncode, done.stderr, n_seconds)


def _describe_end(number: int, stderr: bytes, n_seconds: int) -> str:
    if number == getattr(signal, "SIGXCPU", None):
        return f"it takes more than {n_seconds} seconds of a processor"
    if b"memory allocation" in stderr or number == getattr(signal, "SIGKILL", None):
        return "it takes too much memory"
    return f"the library dies of it (code {-number})"
