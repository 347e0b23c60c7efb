"""What the words of a file's name say, such as ``race_dev_middle.jsonl``: of which split it is."""

import re
from collections.abc import Collection
from pathlib import Path

from sublayer.files.lines import PACKED_TABLES, archived_name

_SPLITS = {
    "train": "train", "training": "train", "test": "test", "testing": "test",
    "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev",
}  # fmt: skip
_PACKED = re.compile(f"({'|'.join(map(re.escape, PACKED_TABLES))})$")


def words_of(name: str) -> list[str]:
    """Return the words of a name, in small letters and without what is no letter."""
    return re.split(r"[^a-z]+", name.lower())


def unpacked_name(path: Path) -> str:
    """Return a file's name in small letters, without what it ends in for being packed."""
    name = _PACKED.sub("", path.name.lower())
    if path.suffix.lower() == ".zip" and not Path(name).suffix and path.is_file():
        return name + Path(archived_name(path).lower()).suffix
    return name


def split_in_name(path: Path, suffixes: Collection[str]) -> str:
    """Return the one split that a file's name says; empty where it says none, or several.

    So it is where the path is no file, or one of another suffix.
    """
    name = Path(unpacked_name(path))
    splits = {_SPLITS[word] for word in words_of(name.stem) if word in _SPLITS}
    if name.suffix not in suffixes or len(splits) != 1 or not path.is_file():
        return ""
    return splits.pop()
