"""The folder of one run: who may write it, what recipe it holds, its record and its model."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sublayer.config.layers import dump_recipe, load_recipe, read_run_recipe
from sublayer.config.recipe import Recipe
from sublayer.errors import CheckpointError, ConfigError
from sublayer.train.checkpoint import checkpoint_path


def free_folder(name: str) -> Path:
    """Name a folder under ``runs`` that does not exist yet: ``runs/name``, then ``runs/name-2`` and so on."""
    folder, number = Path("runs") / name, 2
    while folder.exists():
        folder, number = Path("runs") / f"{name}-{number}", number + 1
    return folder


def default_folder(name: str, *, resume: bool) -> Path:
    """Name the folder of a run that gave none: a free one; to resume, the last that was taken, if any was.

    Raises ConfigError for several processes, which would not agree.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("several processes train in one folder: name it with --out")
    if not resume:
        return free_folder(name)
    folder, number = Path("runs") / name, 2
    while (later := Path("runs") / f"{name}-{number}").exists():
        folder, number = later, number + 1
    return folder


class RunFolder:
    """The files of a run beside its checkpoints: ``recipe.toml``, ``record.json``, ``model/``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder against every other process that would train in it.

        Raises ConfigError if another process holds it, or if the path is not a folder.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ConfigError(f"{self.path} is not a folder: give another --out") from None
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"another process is training in {self.path}: wait for it, or give another --out"
                ) from None
            try:
                yield
            finally:
                self._leave_nothing_behind()

    def check_free(self) -> None:
        """Raise ConfigError if the folder holds anything that a new run could overwrite."""
        if self.has_recipe():
            raise ConfigError(f"{self.path} already holds a run: go on with it by --resume, or give another --out")
        if self._is_occupied():
            raise ConfigError(f"{self.path} already holds other files: give another --out")

    def check_recipe(self, given: Recipe) -> None:
        """Raise ConfigError, naming the field and both values, if the run was started from another recipe.

        Raises CheckpointError if the folder holds something that is not a run.
        """
        if not self.has_recipe():
            if self._is_occupied():
                raise CheckpointError(f"{self.path} is not a run, it has no recipe.toml: give another --out")
            return
        # As the base of another run, a run's recipe is what was given: the derived values are left out.
        before, now = load_recipe(self.path).recipe.model_dump(), given.model_dump()
        for table, values in now.items():
            if isinstance(values, dict):
                self._compare(table, before[table], values)

    def has_recipe(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "recipe.toml").exists()

    def recipe(self) -> Recipe:
        """Read the resolved recipe."""
        return read_run_recipe(self.path / "recipe.toml")

    def write_recipe(self, recipe: Recipe, derived: Sequence[str]) -> None:
        """Write the resolved recipe, at once or not at all."""
        self._write("recipe.toml", dump_recipe(recipe, derived))

    def record(self) -> dict[str, Any] | None:
        """Read the record; None if the run has not ended."""
        path = self.path / "record.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            raise CheckpointError(f"{path} is damaged: give another --out") from None
        return record if isinstance(record, dict) else None

    def finish(self, record: Mapping[str, Any]) -> None:
        """Put the best checkpoint's model into ``model/`` and write the record, which ends the run."""
        best = checkpoint_path(self.path / "checkpoints", int(record["valid"]["step"]))
        partial = self.path / ".model"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(best / "model", partial)
        shutil.rmtree(self.path / "model", ignore_errors=True)
        os.replace(partial, self.path / "model")
        self._write("record.json", json.dumps(record, indent=1) + "\n")

    def _leave_nothing_behind(self) -> None:
        # A run that failed before it wrote anything has no use for its folder.
        if all(path.name == ".lock" for path in self.path.iterdir()):
            (self.path / ".lock").unlink()
            self.path.rmdir()

    def _is_occupied(self) -> bool:
        return self.path.is_dir() and any(not path.name.startswith(".") for path in self.path.iterdir())

    def _compare(self, table: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                raise ConfigError(
                    f"{self.path} was started with {table}.{name} = {before.get(name)}, not {now.get(name)}: "
                    "resume it with the same settings, or give another --out"
                )

    def _write(self, name: str, text: str) -> None:
        partial = self.path / f".{name}"
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.path / name)
