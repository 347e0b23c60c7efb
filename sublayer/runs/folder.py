"""The folder of one run: who may write it, what recipe it holds, its record and its model."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from sublayer.config.load import LoadedRecipe, load_recipe
from sublayer.config.messages import show
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.config.run_recipe import dump_recipe, read_derived, read_run_recipe
from sublayer.config.train import LENGTHS
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.checkpoints import (
    RECORD,
    checkpoint_path,
    read_record,
    remove_partial_checkpoints,
    set_aside,
)
from sublayer.files.storage import (
    check_name,
    new_folder,
    temporary_path,
    write_file,
)
from sublayer.system.launch import is_first_launched, is_launched, n_launched
from sublayer.system.lock import held
from sublayer.system.stages import note

RECIPE, MODEL, INPUTS = "recipe.toml", "model", "inputs.json"
ENSEMBLE = "ensemble.json"
"""The runs that an ensemble is of, in its folder, as paths from there."""
_CHECKPOINTS = "checkpoints"


def folders_named(name: str) -> Iterator[Path]:
    """Yield ``runs/name``, ``runs/name.2``, ``runs/name.3`` and so on, whether they exist or not.

    No model is named so: ``gpt-2`` would be one.
    """
    return _numbered(name, ".")


def earlier_folders_named(name: str) -> Iterator[Path]:
    """Yield ``runs/name``, ``runs/name-2`` and so on, as versions to 0.1 numbered them."""
    return _numbered(name, "-")


def _numbered(name: str, mark: str) -> Iterator[Path]:
    yield Path("runs") / name
    yield from (Path("runs") / f"{name}{mark}{number}" for number in count(2))


def free_folder(name: str) -> Path:
    """Return the first of ``runs/name``, ``runs/name.2`` and so on that does not exist yet."""
    return next(folder for folder in folders_named(name) if not os.path.lexists(folder))


def chosen_folder(out: Path | None, loaded: LoadedRecipe, *, resume: bool) -> Path:
    """Return the folder of a run: ``out``, or without it ``default_folder``.

    Raises ConfigError where there is none to resume. Under a launcher, which gives one command for
    the first start and all others, the run begins there, and it is said.
    """
    folder = out or default_folder(loaded, resume=resume)
    runs = (folder, *folder.glob("seed-*"))
    if not resume or any(os.path.lexists(run / RECIPE) for run in runs):
        return folder
    if not os.path.lexists(folder) and not is_launched():
        raise ConfigError(
            f"there is no run {folder} to resume: leave out --resume to begin one, or name the "
            "folder of yours, which `sublayer runs` lists"
        )
    if is_first_launched():
        note(f"{folder} holds no run that could be resumed: one begins there, at step 0")
    return folder


def default_folder(loaded: LoadedRecipe, *, resume: bool) -> Path:
    """Return the folder of a run that names none.

    That is a free one; to resume, the run that the recipe was read from, or else the last one taken
    for a recipe of its name, also by an earlier version. Raises ConfigError for several processes,
    which would not agree.
    """
    if resume and loaded.run is not None:
        return loaded.run
    if n_launched() > 1:
        raise ConfigError("several processes train in one folder: name it with --out")
    name = loaded.name
    if not resume:
        return free_folder(name)
    taken = list(takewhile(os.path.lexists, folders_named(name)))
    if len(taken) < 2:
        earlier = earlier_folders_named(name)
        taken += takewhile(lambda folder: os.path.lexists(folder / RECIPE), earlier)
    return taken[-1] if taken else next(folders_named(name))


class RunFolder:
    """The files of a run beside its checkpoints: ``recipe.toml``, ``record.json``, ``model/``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder against every other process that would train in it.

        Checkpoints that a killed process was writing are removed; a folder that was made for a run
        that then wrote nothing is taken away again. Raises ConfigError if another process holds it,
        and if the path is not a folder or has a name that is not text.
        """
        check_name(self.path, ConfigError)
        with held(self.path):
            remove_partial_checkpoints(self.path / _CHECKPOINTS)
            yield

    def check_free(self) -> None:
        """Raise ConfigError if the folder holds anything that a new run could overwrite."""
        if self.has_recipe():
            raise ConfigError(
                f"{self.path} already holds a run: resume it with --resume, or give another --out"
            )
        if self._is_occupied():
            raise ConfigError(f"{self.path} already holds other files: give another --out")

    def check_recipe(self, given: Recipe, shape: Callable[[], ModelConfig] | None = None) -> None:
        """Raise ConfigError, naming field and values, if the run was started from another recipe.

        Its length may be another: ``lengthening.py`` says whether it may have that. ``shape``
        returns the model as the data shape it; it is asked where the model seems another.

        Raises CheckpointError if the folder holds something that is not a run.
        """
        if not self.has_recipe():
            if self._is_occupied():
                raise CheckpointError(
                    f"{self.path} is not a run, it has no recipe.toml: give another --out"
                )
            return
        # As the base of another run, a run's recipe has the given values: the derived ones are left
        # out.
        before, now = load_recipe(self.path).recipe.model_dump(), given.model_dump()
        if shape is not None and before["model"] != now["model"]:
            # What the data gave its value is as the run has it.
            recorded, after = self.recipe().model.model_dump(), shape().model_dump()
            derived = read_derived(self.path / RECIPE)
            for name, value in now["model"].items():
                if value != after[name] == recorded[name] and f"model.{name}" in derived:
                    now["model"][name] = before["model"][name]
        train = before["train"]
        lengths = set(LENGTHS)
        if any(train.get(name) != now["train"].get(name) for name in LENGTHS):
            lengths.add("keep_steps")  # a longer run may keep more
        for table, values in now.items():
            if not isinstance(values, dict):
                continue
            known = before[table]
            for name in sorted(
                (known.keys() | values.keys()) - (lengths if table == "train" else set())
            ):
                if known.get(name) != values.get(name):
                    raise ConfigError(
                        f"{self.path} was started with {table}.{name} = {show(known.get(name))}, "
                        f"not {show(values.get(name))}: resume it with the same settings, or give "
                        "another --out"
                    )

    def check_model(self) -> None:
        """Raise ConfigError if what stands at ``model/`` is not the model of a checkpoint.

        One of a checkpoint may stand there: a run that was killed while it ended has put it there.
        """
        from sublayer.model.model_folder import is_copy

        target = self.path / MODEL
        if not os.path.lexists(target):
            return
        saved = (self.path / _CHECKPOINTS).glob(f"step-*/{MODEL}")
        originals = [path for path in saved if path.is_dir()]
        if not any(is_copy(target, original) for original in originals):
            raise ConfigError(
                f"{target} is in the way, it is not of this run: move it, or give another --out"
            )

    def has_recipe(self) -> bool:
        """Return whether a run was started here."""
        return os.path.lexists(self.path / RECIPE)

    def recipe(self) -> ResolvedRecipe:
        """Read the resolved recipe.

        Raises ConfigError where the file is missing, is not a recipe or leaves something open.
        """
        return read_run_recipe(self.path / RECIPE)

    def write_recipe(
        self,
        recipe: Recipe,
        derived: Sequence[str],
        lengthened: Sequence[Mapping[str, int | str]] = (),
    ) -> None:
        """Write the resolved recipe, whole or not at all; ``derived`` names fields not given.

        From then on the folder holds a run. ``lengthened`` says each time that it got more steps.
        Raises OSError.
        """
        text = dump_recipe(recipe, derived, lengthened, as_run=True)
        write_file(self.path / RECIPE, text)

    def record(self) -> dict[str, Any] | None:
        """Read the record; None if the run has not ended.

        Raises CheckpointError where it is damaged.
        """
        return read_record(self.path)

    def reopen(self) -> None:
        """Take away what says that a run has ended which was given more steps since.

        Its record is kept as ``record-step-....json``; its model is that of a checkpoint, as
        ``check_model`` has found. Raises OSError.
        """
        record = self.record()
        if record is not None:
            ended = self.path / f"record-step-{record['step']:08d}.json"
            os.replace(self.path / RECORD, ended)
        target = self.path / MODEL
        if target.is_dir() and not target.is_symlink():
            discarded = temporary_path(target)
            target.rename(discarded)
            shutil.rmtree(discarded)

    def finish(self, record: Mapping[str, Any]) -> None:
        """Copy the best checkpoint's model to ``model/`` and write the record, which ends the run.

        What came to stand at ``model/`` meanwhile, and is not that model, is set aside. Raises
        OSError.
        """
        from sublayer.model.model_folder import copy_model, is_copy

        step = int(record["valid"]["step"])
        best = checkpoint_path(self.path / _CHECKPOINTS, step) / MODEL
        target = self.path / MODEL
        if not is_copy(target, best):
            if os.path.lexists(target):
                set_aside(target)
            with new_folder(target) as partial:
                copy_model(best, partial)
        text = json.dumps(record, indent=1)
        write_file(self.path / RECORD, f"{text}\n")

    def _is_occupied(self) -> bool:
        if not self.path.is_dir():
            return False
        return any(not path.name.startswith(".") for path in self.path.iterdir())
