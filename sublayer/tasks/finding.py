"""Files of a task: publishers' and the hub's names, and releases to download.

Source of the addresses and checksums in the rows of tasks: huggingface/datasets at 040102f,
``dataset_infos.json`` of glue, super_glue, squad, squad_v2, snli, race and scitail.
"""

import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from sublayer.errors import DataError
from sublayer.files.cache_folder import Download, cache_folder
from sublayer.files.lines import PACKED_TABLES, archived_name
from sublayer.files.storage import new_folder, remove_abandoned
from sublayer.system.terminal import stage

_SPLITS = {
    "train": "train", "training": "train", "test": "test", "testing": "test",
    "dev": "dev", "val": "dev", "valid": "dev", "validation": "dev",
}  # fmt: skip
_PACKED = re.compile(f"({'|'.join(map(re.escape, PACKED_TABLES))})$")


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case: its runs of letters."""
    return re.split(r"[^a-z]+", name.lower())


def unpacked_name(path: Path) -> str:
    """Return a file's name in lower case, without the suffix of its compression."""
    name = _PACKED.sub("", path.name.lower())
    if path.suffix.lower() == ".zip" and not Path(name).suffix and path.is_file():
        return name + Path(archived_name(path).lower()).suffix
    return name


def split_in_name(path: Path, suffixes: Collection[str]) -> str:
    """Return the split in a file's name; empty for none or several.

    Empty also for other suffixes, and for paths that are not files.
    """
    name = Path(unpacked_name(path))
    splits = {_SPLITS[word] for word in words_of(name.stem) if word in _SPLITS}
    if name.suffix not in suffixes or len(splits) != 1 or not path.is_file():
        return ""
    return splits.pop()


SUFFIXES = (".tsv", ".jsonl", ".ndjson", ".json", ".csv", ".parquet")
"""Suffixes of files of records, in order of preference where a split has several."""

_WORDS = {"validation": "dev", "valid": "dev", "val": "dev"}
_FINDING_PACKED = re.compile(r"\.(gz|zst)$")
_SHARD = re.compile(r"[-_](\d+)[-_]of[-_](\d+)")
_NAME = re.compile(
    r"(?:(?P<task>.*[^-_.])[-_.])?(?P<word>train|dev|validation|valid|val|test)"
    r"(?:[-_](?P<part>matched|mismatched))?"
)


@dataclass(frozen=True)
class FileLayout:
    """Names of a task's folder and files."""

    names: tuple[str, ...]
    """Names of the task's folder, also before the split in a file's name: ``sst2_train.jsonl``."""
    suite: tuple[str, ...] = ()
    """Names of the folder above the task's."""
    below: tuple[str, ...] = ("", "data", "default")
    """Folders inside the task's folder that may hold its files, in search order."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Splits by file name, for files with special names; case does not matter."""
    joint: Mapping[str, str] = field(default_factory=dict)
    """Splits by file name, for files that together form one split."""
    suffixes: tuple[str, ...] = SUFFIXES

    def described(self) -> str:
        """Describe the file names."""
        others = ", ".join([*self.joint, *self.own])
        kinds = ", ".join(self.suffixes)
        return (
            f"{self.names[0]}/train, dev or validation, and test, ending in {kinds}, also "
            f"{self.names[-1]}_train and so on{f'; or {others}' if others else ''}"
        )

    def is_named(self, name: str) -> bool:
        """Return whether a name is the task's: SST-2, sst2 and glue_sst2 are the same."""
        plain = _plain(name)
        suites = ("", *map(_plain, self.suite))
        return any(plain == suite + _plain(alias) for suite in suites for alias in self.names)

    def is_suite(self, name: str) -> bool:
        """Return whether a name is the suite's."""
        return _plain(name) in {_plain(suite) for suite in self.suite}

    def find_splits(
        self,
        folder: Path,
        may_be: Callable[[str, Path], bool],
        others: "Sequence[FileLayout]" = (),
    ) -> dict[str, tuple[Path, ...]]:
        """Find the files of each split, in the first place that has any.

        Places, in order, are the task's folder in ``folder`` or the suite's; ``folder`` itself,
        unless named as one of ``others`` or a suite; and files with the task's name in the suite's
        folder or ``folder``. ``may_be`` checks a split's file by content where no folder has the
        task's name.
        """
        suites = [path for path in _folders(folder) if self.is_suite(path.name)]
        for above in (*suites, folder):
            for child in _folders(above):
                if self.is_named(child.name):
                    by_split = self._first(child)
                    if by_split:
                        return by_split
        name = folder.resolve().name
        if self.is_named(name):
            by_split = self._first(folder)
        elif not self.is_suite(name) and not any(other.is_named(name) for other in others):
            by_split = self._first(folder)
            if not all(may_be(split, paths[0]) for split, paths in by_split.items()):
                by_split = {}
        else:
            by_split = {}
        for parent in (*suites, folder):
            by_split = by_split or self._splits(parent, is_own=False)
        return by_split

    def _first(self, folder: Path) -> dict[str, tuple[Path, ...]]:
        """Return the splits in the first folder of ``below`` that has any."""
        return find_in_first(
            folder, lambda name: False, self.below, lambda path: self._splits(path, is_own=True)
        )

    def _splits(self, folder: Path, *, is_own: bool) -> dict[str, tuple[Path, ...]]:
        """Return the files of each split in a folder: all, or those with the task's name."""
        files: dict[tuple[str, int], list[Path]] = {}
        for path in entries(folder):
            name = _FINDING_PACKED.sub("", path.name.lower())
            suffix, parts = Path(name).suffix, [path]
            if path.is_dir():
                # Such as train/0000.parquet.
                split = self._split_of(name, is_own=is_own) if is_own else ""
                suffix, parts = ".parquet", sorted(path.glob("*.parquet"))
                if suffix not in self.suffixes:
                    continue
            else:
                split = _of_name(self.own, name) or _of_name(self.joint, name)
                if not split and suffix in self.suffixes:
                    split = self._split_of(_SHARD.sub("", Path(name).stem), is_own=is_own)
            if split and parts:
                # A file with a special name may have another suffix.
                ranks = (*self.suffixes, suffix)
                files.setdefault((split, ranks.index(suffix)), []).extend(parts)
        by_split: dict[str, tuple[Path, ...]] = {}
        for split, rank in sorted(files):
            joint = [path for path in files[split, rank] if _of_name(self.joint, path.name.lower())]
            by_split.setdefault(split, tuple(joint) or one_copy(files[split, rank]))
        return by_split

    def _split_of(self, stem: str, *, is_own: bool) -> str:
        match = _NAME.fullmatch(stem)
        if match is None:
            return ""
        if not self.is_named(match["task"]) if match["task"] else not is_own:
            return ""
        split = _WORDS.get(match["word"], match["word"])
        return f"{split}_{match['part']}" if match["part"] else split


def find_in_first(
    folder: Path,
    is_named: Callable[[str], bool],
    below: Sequence[str],
    find: Callable[[Path], dict[str, tuple[Path, ...]]],
) -> dict[str, tuple[Path, ...]]:
    """Find the files of each split in the first place that has any.

    Places are the folders in ``folder`` with the task's name, then ``folder`` itself, each with the
    folders ``below``.
    """
    named = [child for child in entries(folder) if child.is_dir() and is_named(child.name)]
    for parent in (*named, folder):
        for inner in below:
            by_split = find(parent / inner) if (parent / inner).is_dir() else {}
            if by_split:
                return by_split
    return {}


def check_shards(paths: tuple[Path, ...]) -> None:
    """Raise DataError where shards such as ``train-00000-of-00002.parquet`` are missing."""
    shards = [shard for path in paths if (shard := _SHARD.search(path.name))]
    if not shards:
        return
    n_shards = max(int(shard[2]) for shard in shards)
    missing = set(range(n_shards)) - {int(shard[1]) for shard in shards}
    if missing:
        raise DataError(
            f"{paths[0].parent} has {len(shards)} of the {n_shards} shards of "
            f"{paths[0].name}: number {min(missing)} is missing"
        )


def _plain(name: str) -> str:
    return re.sub(r"[-_. ]", "", name.lower())


def _folders(folder: Path) -> list[Path]:
    return [path for path in entries(folder) if path.is_dir()]


def entries(folder: Path) -> list[Path]:
    """Return the sorted entries of a folder; none where it does not exist."""
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from None


def _of_name(splits: Mapping[str, str], name: str) -> str:
    """Return the split of a lower-case file name; empty where it has none."""
    return next((split for key, split in splits.items() if key.lower() == name), "")


def one_copy(paths: list[Path]) -> tuple[Path, ...]:
    """Return the parts of a split, or its whole file with the shortest name."""
    parts = [path for path in paths if _SHARD.search(path.name) or path.stem.isdigit()]
    whole = sorted(set(paths) - set(parts), key=lambda path: (len(path.name), path.name))
    return tuple(whole[:1] or parts)


_ARCHIVES = (".zip", ".tar.gz")
_MOST_BYTES = 8 << 30
_BLOCK_BYTES = 1 << 20
_Member = tuple[str, int, IO[bytes]]


@dataclass(frozen=True)
class Release:
    """Downloads of a published task; several tasks may share them."""

    folder: str
    """Folder in the cache, below the folder of all tasks."""
    files: tuple[Download, ...]
    keeps: str = r"[^/]+/[^/]+\.(tsv|jsonl)"
    """Pattern of the paths to extract from an archive."""

    @classmethod
    def of(cls, folder: str, sums: Mapping[str, str], **keeps: str) -> "Release":
        """Build a release from SHA-256 sums by address."""
        # The sums date from one time: a mirror's archive, or a corrected one, may differ.
        files = (Download(url, None, "sha256", sha, may_differ=True) for url, sha in sums.items())
        return cls(folder, tuple(files), **keeps)

    def path(self, cache: Path | None) -> Path:
        """Return the folder of the files in the cache, whether or not it exists."""
        return cache_folder(cache) / "tasks" / self.folder

    def fetched(self, title: str, cache: Path | None) -> Path:
        """Return the folder of the files in the cache, downloading them if necessary.

        Raises DataError, with the addresses, where the task with this ``title`` cannot be
        downloaded.
        """
        folder = self.path(cache)
        if folder.is_dir():
            return folder
        try:
            self._fetch(folder)
        except DataError as error:
            urls = ", ".join(file.url for file in self.files)
            raise DataError(
                f"{title} is not in the cache, and {error}. By hand: download {urls}, extract any "
                "archive, and name the folder (finetune --data DIR, evaluate --path DIR)"
            ) from error
        return folder

    def _fetch(self, folder: Path) -> None:
        try:
            remove_abandoned(folder.parent)
            with new_folder(folder) as unfinished:
                for download in self.files:
                    name = download.url.rpartition("/")[2]
                    path = download.fetch(unfinished / name)
                    if name.endswith(_ARCHIVES):
                        _extract(path, self.keeps, unfinished)
                        path.unlink()
        except OSError as error:
            if not folder.is_dir():  # else another process was faster
                raise DataError(f"cannot write {folder}: {error.strerror or error}") from error


def _extract(archive: Path, keeps: str, target: Path) -> None:
    """Extract the members that match ``keeps``; raise DataError where none does."""
    n_files = 0
    n_bytes = 0
    try:
        with stage(f"extracting {archive.name}"):
            for name, size, content in _members(archive):
                parts = PurePosixPath(name).parts
                if not re.fullmatch(keeps, name) or any(part[0] in "._/" for part in parts):
                    continue
                n_files += 1
                n_bytes += size
                if n_bytes > _MOST_BYTES:
                    raise DataError(f"{archive.name} extracts to more than {_MOST_BYTES >> 30} GiB")
                path = target.joinpath(*parts)
                path.parent.mkdir(parents=True, exist_ok=True)
                with content, path.open("xb") as file:
                    shutil.copyfileobj(content, file, _BLOCK_BYTES)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, RuntimeError) as error:
        raise DataError(f"{archive.name} is a damaged archive ({error})") from error
    if not n_files:
        raise DataError(f"{archive.name} holds none of the expected files")


def _members(archive: Path) -> Iterator[_Member]:
    """Open the files of an archive, one by one, with their names and sizes."""
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(archive) as packed:
            for member in packed.infolist():
                if not member.is_dir():
                    yield member.filename, member.file_size, packed.open(member)
        return
    with tarfile.open(archive) as tar:
        for entry in tar:
            content = tar.extractfile(entry) if entry.isfile() else None
            if content is not None:
                yield entry.name, entry.size, content
