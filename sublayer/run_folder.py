"""The folder of one run: who may write it, what recipe it holds, its record and its model."""

import filecmp
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
from sublayer.lock import held
from sublayer.saved_record import RECORD, read_record
from sublayer.storage import check_name, new_folder, write_file
from sublayer.train.checkpoint import checkpoint_path, set_aside

RECIPE, MODEL = "recipe.toml", "model"


def free_folder(name: str) -> Path:
    """Name a folder under ``runs`` that does not exist yet: ``runs/name``, then ``runs/name-2`` and so on."""
    folder, number = Path("runs") / name, 2
    while os.path.lexists(folder):
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

        A folder that was made for a run that then wrote nothing is taken away again. Raises ConfigError if another
        process holds it, and if the path is not a folder or has a name that is not text.
        """
        check_name(self.path, ConfigError)
        with held(self.path):
            yield

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

    def check_model(self) -> None:
        """Raise ConfigError if what stands in the place of the run's model is not the model of a checkpoint."""
        target = self.path / MODEL
        saved = (self.path / "checkpoints").glob(f"step-*/{MODEL}")
        if os.path.lexists(target) and not any(_is_copy(target, each) for each in saved if each.is_dir()):
            raise ConfigError(f"{target} is in the way, it is not of this run: move it, or give another --out")

    def has_recipe(self) -> bool:
        """Whether a run was started here."""
        return os.path.lexists(self.path / RECIPE)

    def recipe(self) -> Recipe:
        """Read the resolved recipe."""
        return read_run_recipe(self.path / RECIPE)

    def write_recipe(self, recipe: Recipe, derived: Sequence[str]) -> None:
        """Write the resolved recipe, at once or not at all."""
        write_file(self.path / RECIPE, dump_recipe(recipe, derived))

    def record(self) -> dict[str, Any] | None:
        """Read the record; None if the run has not ended. Raises CheckpointError where it is damaged."""
        return read_record(self.path)

    def finish(self, record: Mapping[str, Any]) -> None:
        """Put the best checkpoint's model into ``model/`` and write the record, which ends the run.

        What came to stand at ``model/`` meanwhile, and is not that model, is set aside.
        """
        best = checkpoint_path(self.path / "checkpoints", int(record["valid"]["step"])) / MODEL
        target = self.path / MODEL
        if not _is_copy(target, best):
            if os.path.lexists(target):
                set_aside(target)
            with new_folder(target) as partial:
                shutil.copytree(best, partial, dirs_exist_ok=True)
        write_file(self.path / RECORD, json.dumps(record, indent=1) + "\n")

    def _is_occupied(self) -> bool:
        return self.path.is_dir() and any(not path.name.startswith(".") for path in self.path.iterdir())

    def _compare(self, table: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                raise ConfigError(
                    f"{self.path} was started with {table}.{name} = {before.get(name)}, not {now.get(name)}: "
                    "resume it with the same settings, or give another --out"
                )


def _is_copy(folder: Path, original: Path) -> bool:
    names = sorted(path.name for path in original.iterdir())
    if folder.is_symlink() or not folder.is_dir() or sorted(path.name for path in folder.iterdir()) != names:
        return False
    return filecmp.cmpfiles(folder, original, names, shallow=False)[0] == names
