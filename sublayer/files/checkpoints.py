"""Records and checkpoints of a run on disk, written atomically and verified when read.

A checkpoint is a folder ``checkpoints/step-<n>``: ``model/`` (config, weights, tokenizer),
``training.safetensors`` (optimizer state, training-only heads), ``state.json`` and, written last,
``manifest.json`` with the size and SHA-256 of every file. It is written under a temporary name, and
renamed once it is on disk.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from sublayer.errors import CheckpointError
from sublayer.files.parsing import Count, Number, Typed, check_typed, read_json_object, read_typed
from sublayer.files.storage import new_folder, remove_abandoned, sha256_of, temporary_path

RECORD = "record.json"


class SavedEvaluation(Typed):
    """Evaluation during training: step, and metrics by name, validation loss included."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number] = Field(init=False)
    step: Count


class Input(Typed):
    """Input of a run or study, named after a split, or ``tokenizer``, ``init.run``, ``watch.NAME``,
    ``probes.NAME``.

    ``value`` is for display; inputs are equal if their digests are.
    """

    name: str
    value: str
    digest: str


class _Data(Typed):
    checksums: dict[str, str]
    tokenizer: str = ""
    vocab_size: Count = 0
    train: dict[str, Count] = {}
    valid: dict[str, Count] = {}
    test: dict[str, Count] = {}
    watched: dict[str, dict[str, Count]] = {}


class _Minutes(Typed):
    asked: Number
    used: Number
    note: str | None = None


class _Parameters(Typed):
    total: Count


PACE = "pace"


class Lengthening(Typed):
    """A change of a run's length, by a command or by its minutes."""

    at_step: Count
    """Step of its newest checkpoint then, from which it continues."""
    from_steps: Count
    to_steps: Count
    by: str = ""
    """``PACE``: steps re-planned from the run's minutes; else lengthened by a command."""


class _Record(Typed):
    run: str
    step: Count
    tokens: Count
    tokens_per_s: Number
    title: str = ""
    valid: SavedEvaluation
    task_bests: dict[str, SavedEvaluation] = {}
    probes: dict[str, dict[str, Any]] = {}
    lengthened: list[Lengthening] = []
    minutes: _Minutes | None = None
    parameters: _Parameters | None = None
    date: str = ""
    processes: Count = 1
    seconds: Number
    peak_memory_bytes: Count | None = None
    flops_per_token: Count | None = None
    precision: str
    threads: Count | None = None
    machine: dict[str, Any]
    versions: dict[str, str]
    commit: str | None
    data: _Data


def read_record(run: Path) -> dict[str, Any] | None:
    """Read the record of a run, None if missing; raise CheckpointError if it is damaged.

    All content is returned, but only the fields that the program uses are checked.
    """
    path = run / RECORD
    try:
        content = read_json_object(path, CheckpointError)
    except FileNotFoundError:
        return None
    return check_record(content, path)


def check_record(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a record's content; raise CheckpointError where a field has the wrong type."""
    check_typed(content, _Record, str(path), CheckpointError)
    return content


MANIFEST = "manifest.json"
STATE = "state.json"
_NAME = re.compile(r"step-([0-9]{8,18})")
_PARTS = {"model", "training", "training.safetensors", STATE, MANIFEST}
"""Files and folders of a checkpoint."""


class _File(Typed):
    bytes: Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SavedState(Typed):
    """State of the training loop at a checkpoint, in ``state.json``."""

    step: Count
    """Number of optimizer steps taken."""
    tokens: Count
    """Number of tokens trained on."""
    seconds: Annotated[Number, Field(ge=0)]
    """Wall-clock time of the run, evaluations and checkpoints included."""
    step_seconds: Annotated[Number, Field(gt=0)]
    """Wall-clock time of the optimizer steps alone."""
    best: SavedEvaluation | None
    """Best evaluation so far; None before the first."""
    task_bests: dict[str, SavedEvaluation] = {}
    """Best evaluation of each task of a mixture, by its name; else empty."""
    waited: Count = 0
    """Number of evaluations since the best one."""
    has_stopped: bool = False
    """Whether the run stopped early, by ``train.patience``."""
    pending_losses: list[Number]
    """Losses of the steps since the last line of the metrics."""

    def best_steps(self) -> set[int]:
        """Return the steps of the best evaluations, whose checkpoints a resumed run needs."""
        return {best.step for best in (self.best, *self.task_bests.values()) if best is not None}


def checkpoint_path(root: Path, step: int) -> Path:
    """Return the folder of the checkpoint taken after ``step`` optimizer steps."""
    return root / f"step-{step:08d}"


@contextmanager
def new_checkpoint(root: Path, step: int) -> Iterator[Path]:
    """Yield an empty folder that becomes the checkpoint of ``step`` on exit.

    A kill at any moment leaves either no checkpoint of that step or a complete one. An existing
    folder must be an invalid checkpoint, and is set aside. Raises OSError.
    """
    root.mkdir(parents=True, exist_ok=True)
    remove_abandoned(root)
    target = checkpoint_path(root, step)
    if os.path.lexists(target):
        # Only an invalid checkpoint can exist here, since its step is repeated.
        set_aside(target)
    with new_folder(target) as partial:
        yield partial
        manifest = {
            name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
            for name, path in _files(partial)
        }
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=1))


def remove_partial_checkpoints(root: Path) -> None:
    """Remove partial checkpoints of killed processes under ``root``, to which no process may write.

    Folders with other content, and empty folders, are kept.
    """
    for path in root.glob(".step-*.partial"):
        if path.is_symlink() or not path.is_dir():
            continue
        names = {part.name for part in path.iterdir()}
        if names and names <= _PARTS:
            shutil.rmtree(path, ignore_errors=True)


def verify_checkpoint(path: Path) -> None:
    """Raise CheckpointError, naming the file, where a file is missing or altered.

    The SHA-256 of every file is compared with the manifest's. Files that the manifest does not list
    are an error only if they are JSON or tensors.
    """
    try:
        manifest = read_typed(path / MANIFEST, dict[str, _File], CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is not a complete checkpoint: it has no {MANIFEST}"
        ) from None
    for name, _ in _files(path):
        # A file that the manifest does not list cannot be verified.
        if name not in manifest and name.endswith((".json", ".safetensors")):
            raise CheckpointError(f"{path / MANIFEST} is damaged: it does not list {name}")
    for name, expected in manifest.items():
        inside = PurePosixPath(name)
        is_plain = name == inside.as_posix()
        if not is_plain or inside.is_absolute() or ".." in inside.parts:
            raise CheckpointError(
                f"{path / MANIFEST} is damaged: {name[:60]!r} is not a file of the checkpoint"
            )
        _verify_file(path / name, expected)


def verify_parts(files: Sequence[Path]) -> None:
    """Raise CheckpointError unless the files of a model in a checkpoint match its manifest.

    Files are read completely. Without a manifest they pass.
    """
    for file in files:
        model = file.parent
        path = model.parent / MANIFEST
        if not path.is_file():
            return
        manifest = read_typed(path, dict[str, _File], CheckpointError)
        expected = manifest.get(f"{model.name}/{file.name}")
        if expected is None:
            raise CheckpointError(f"{path} is damaged: it does not list {file.name}")
        _verify_file(file, expected)


def _verify_file(file: Path, expected: _File) -> None:
    if file.is_symlink() or not file.is_file():
        raise CheckpointError(f"{file} is missing")
    size = file.stat().st_size
    if size != expected.bytes:
        raise CheckpointError(f"{file} is damaged: it has {size} of {expected.bytes} bytes")
    if sha256_of(file) != expected.sha256:
        raise CheckpointError(f"{file} is damaged: its checksum differs from the manifest's")


def saved_steps(root: Path) -> list[int]:
    """List the steps of the checkpoints under ``root``, oldest first, without verifying them."""
    if not root.is_dir():
        return []
    matches = (_NAME.fullmatch(path.name) for path in root.iterdir() if path.is_dir())
    steps = (int(match[1]) for match in matches if match)
    # A number may have more leading zeros than a checkpoint's name.
    return sorted(step for step in steps if checkpoint_path(root, step).is_dir())


def read_state(path: Path) -> SavedState:
    """Read a checkpoint's ``state.json``; raise CheckpointError where it is damaged."""
    try:
        return read_typed(path / STATE, SavedState, CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(f"{path / STATE} is missing") from None


def newest_checkpoint(
    root: Path,
    report: Callable[[str], None],
    check: Callable[[Path, SavedState], None] = lambda path, state: None,
) -> Path | None:
    """Find the newest valid checkpoint to resume from, or None.

    It is complete and unaltered, as is the best checkpoint that it refers to (otherwise the result
    would differ from an uninterrupted run's), and ``check`` raises no CheckpointError. ``report``
    receives a line for each newer, invalid checkpoint.
    """
    for step in reversed(saved_steps(root)):
        path = checkpoint_path(root, step)
        try:
            verify_checkpoint(path)
            state = read_state(path)
            if state.step != step:
                raise CheckpointError(f"{path / STATE} belongs to step {state.step}")
            for best_step in sorted(state.best_steps() - {step}):
                verify_checkpoint(checkpoint_path(root, best_step))
            check(path, state)
        except (CheckpointError, OSError) as error:
            report(f"checkpoint {path.name} is refused: {error}")
            continue
        return path
    return None


def set_aside(path: Path) -> None:
    """Rename an invalid file or folder, to make room for a new one; nothing is deleted."""
    os.replace(path, aside(path))


def aside(path: Path) -> Path:
    """Return an unused path in the same folder for an invalid file or folder."""
    number = 1
    while os.path.lexists(target := path.with_name(f"refused-{path.name}-{number}")):
        number += 1
    return target


def prune_checkpoints(root: Path, keep: Iterable[int]) -> None:
    """Delete the checkpoints (folders with a manifest) of all steps that are not in ``keep``.

    Links to folders are kept. Raises OSError.
    """
    surplus = set(saved_steps(root)) - set(keep)
    for step in surplus:
        path = checkpoint_path(root, step)
        if (path / MANIFEST).is_file() and not path.is_symlink():
            # Renamed first: after a kill, the remains would look like a damaged checkpoint.
            discarded = temporary_path(path)
            path.rename(discarded)
            shutil.rmtree(discarded)


def _files(folder: Path) -> list[tuple[str, Path]]:
    """List the files below a folder, except the manifest, by relative name."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    named = [(path.relative_to(folder).as_posix(), path) for path in paths]
    return [(name, path) for name, path in named if name != MANIFEST]
