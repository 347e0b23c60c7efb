"""Tokenizer files tried in a process of their own before compiled libraries read them here.

A damaged or hostile file can make such a library abort, panic or run for ever, which nothing
catches where it happens.
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

from sublayer.data.cache import content_key
from sublayer.errors import DataError
from sublayer.files.cache_folder import cache_folder, replacing

Library = Literal["tokenizers", "sentencepiece"]

VERSION = 1
"""Changes whenever files would be tried otherwise."""

_SCRIPT = Path(__file__).with_name("probe_process.py")
_SHOWN = 200
# Processor time, which other work on the machine does not use up; and, far off, time on the clock.
_SECONDS = 4
_SECONDS_PER_MB = 1
_PATIENCE = 8
_BYTES = 512 << 20
_BYTES_PER_BYTE = 64

_tried: set[str] = set()


def try_file(library: Library, data: bytes, what: str) -> None:
    """Load a file's content and encode and decode texts with it, in a process of its own.

    What was tried before is known by its content, and not tried again. The process has 4 seconds
    of a processor and 1 more per MiB, 512 MiB of memory and 64 bytes more per byte.

    Raises DataError that says ``what``, and why, where the library refuses it, dies of it, or takes
    too long or too much memory.
    """
    key = _key(library, data)
    if key in _tried or _is_recorded(key):
        return
    reason = _run(library, data)
    if reason is not None:
        raise DataError(f"{what}: {reason}")
    _tried.add(key)
    _record(key)


def _key(library: Library, data: bytes) -> str:
    checksum = hashlib.sha256(data).hexdigest()
    return content_key(VERSION, library, version(library), checksum)


def _record_path(key: str) -> Path:
    return cache_folder() / "tried" / key


def _is_recorded(key: str) -> bool:
    with suppress(DataError, OSError, RuntimeError):  # no home folder to write to
        return _record_path(key).is_file()
    return False


def _record(key: str) -> None:
    # What cannot be recorded is tried again the next time.
    with suppress(DataError, OSError, RuntimeError), replacing(_record_path(key)) as file:
        file.write(b"")


def _run(library: Library, data: bytes) -> str | None:
    """Return why a file cannot be used; None where it can."""
    spec = find_spec(library)
    assert spec is not None and spec.origin is not None, f"{library} is installed"
    n_seconds = _SECONDS + _SECONDS_PER_MB * (len(data) >> 20)
    n_bytes = _BYTES + _BYTES_PER_BYTE * len(data)
    timeout = _PATIENCE * n_seconds
    folder = Path(spec.origin).parent.parent
    command = [
        sys.executable,
        "-I",
        "-S",
        str(_SCRIPT),
        library,
        str(folder),
        str(n_bytes),
        str(n_seconds),
    ]
    try:
        done = subprocess.run(
            command,
            input=data,
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
    except subprocess.TimeoutExpired:
        return f"it takes more than {timeout} seconds"
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
