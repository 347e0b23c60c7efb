"""A folder that is handed in: its files, an archive of them, and what is to be known of them."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sublayer.errors import DataError
from sublayer.files.storage import new_folder

ARCHIVE = "submission.zip"
NOTES = "NOTES.txt"
_DATE = (1980, 1, 1, 0, 0, 0)
"""The same archive from the same files."""


@dataclass(frozen=True)
class Submission:
    """A folder that was written."""

    path: Path
    files: tuple[str, ...]
    """Their names; ``ARCHIVE``, where there is one, holds them all."""
    notes: tuple[str, ...]
    """What was filled in, left out or is not whole, a line each; also in ``NOTES``, where there are
    any."""


def write_submission(
    path: Path, files: Mapping[str, str], notes: Sequence[str], *, has_archive: bool
) -> Submission:
    """Write files, by name, and their archive into a new folder, or nothing.

    Raises DataError where there is something at ``path``, or where it cannot be written.
    """
    try:
        with new_folder(path) as folder:
            for name, content in files.items():
                (folder / name).write_text(content, encoding="utf-8", newline="")
            if has_archive:
                (folder / ARCHIVE).write_bytes(_archive(files))
            if notes:
                text = "".join(f"{line}\n" for line in notes)
                (folder / NOTES).write_text(text, encoding="utf-8", newline="")
    except FileExistsError:
        raise DataError(f"{path} exists: name a folder that does not") from None
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from None
    return Submission(path, tuple(files), tuple(notes))


def _archive(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, content.encode())
    return buffer.getvalue()
