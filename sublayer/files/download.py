"""Published files, downloaded once into the cache folder and verified."""

import hashlib
import http.client
import urllib.error
import urllib.request
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sublayer.errors import DataError
from sublayer.files.cache_folder import replacing
from sublayer.system.stages import display, note, stage

_TIMEOUT_S = 30.0
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Download:
    """A published file, as its publisher serves it."""

    url: str
    n_bytes: int | None
    """Its size, for the display of progress, where it is known; only the checksum is verified."""
    algorithm: str
    """The hash function, by its name in hashlib."""
    checksum: str
    """In hexadecimal."""
    may_differ: bool = False
    """True where another file than that of the checksum is taken, with a note: its publisher serves
    a newer one without saying so."""


def fetch(download: Download, target: Path) -> Path:
    """Download a file to ``target``, written atomically once verified; return it.

    Raises DataError without a network, for a file other than the published one, unless it may
    differ, and where ``target`` cannot be written.
    """
    name = download.url.rpartition("/")[2]
    try:
        with (
            stage(f"downloading {name}"),
            urllib.request.urlopen(download.url, timeout=_TIMEOUT_S) as response,
            replacing(target) as file,
        ):
            hash_ = hashlib.new(download.algorithm)
            n_announced = int(response.headers.get("Content-Length") or 0)
            n_bytes = download.n_bytes or n_announced or None
            digest = _copy(response, file, hash_, f"downloading {name}", n_bytes)
            if file.tell() < n_announced:
                raise DataError(
                    f"the download of {download.url} ended after {file.tell():,} of "
                    f"{n_announced:,} bytes: try again"
                )
            if digest != download.checksum and not download.may_differ:
                raise DataError(f"the download of {download.url} is damaged ({digest}): try again")
    except (
        urllib.error.URLError,
        http.client.HTTPException,
        ConnectionError,
        TimeoutError,
    ) as error:
        reason = getattr(error, "reason", error)
        raise DataError(f"{name} cannot be downloaded from {download.url} ({reason})") from error
    if digest != download.checksum:
        note(
            f"{download.url} is not the file whose {download.algorithm} is known, but one of "
            f"{digest}: a newer one, or a mirror's"
        )
    return target


def unzip(archive: Path, member: str, target: Path, *, md5: str) -> Path:
    """Extract one member of a zip file to ``target`` and verify it; return ``target``.

    Other members are ignored. Raises DataError where it is missing or not the published file, or
    ``target`` cannot be written.
    """
    try:
        with (
            stage(f"extracting {member}"),
            zipfile.ZipFile(archive) as opened,
            opened.open(member) as source,
            replacing(target) as file,
        ):
            hash_ = hashlib.md5(usedforsecurity=False)
            digest = _copy(source, file, hash_, f"extracting {member}", None)
            if digest != md5:
                raise DataError(
                    f"{member} in {archive} is not the published file (md5 {digest}): "
                    "fetch it again"
                )
    except (zipfile.BadZipFile, EOFError, KeyError, zlib.error) as error:
        raise DataError(f"{archive} is not a zip file with {member}: fetch it again") from error
    return target


def _copy(
    source: Any, target: BinaryIO, digest: "hashlib._Hash", what: str, n_bytes: int | None
) -> str:
    done = 0
    while block := source.read(_BLOCK_BYTES):
        target.write(block)
        digest.update(block)
        done += len(block)
        total = f" of {n_bytes / 1e6:.0f}" if n_bytes else ""
        display().change_innermost(f"{what}: {done / 1e6:.0f}{total} MB")
    return digest.hexdigest()
