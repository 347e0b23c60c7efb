"""The folder of a run: its lock, recipe, record and model, and checks of a recipe against a run."""

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sublayer.config.layers import as_setting
from sublayer.config.load import (
    LoadedRecipe,
    Start,
    dump_recipe,
    load_recipe,
    read_derived,
    read_run_recipe,
)
from sublayer.config.model import ModelConfig
from sublayer.config.plugins import FOLDER, keep_plugins, used_plugins
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import check_first_blocks, position_scheme
from sublayer.config.train import LENGTHS
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.checkpoints import (
    RECORD,
    Lengthening,
    checkpoint_path,
    read_record,
    remove_partial_checkpoints,
    set_aside,
)
from sublayer.files.storage import (
    check_name,
    held,
    is_held,
    new_folder,
    temporary_path,
    write_file,
)
from sublayer.model.estimates import count_parameters
from sublayer.system.processes import is_first_launched, is_launched, n_launched
from sublayer.system.terminal import note
from sublayer.values import show

RECIPE, MODEL, INPUTS = "recipe.toml", "model", "inputs.json"
SCORES = "scores.json"
"""File of a fine-tuned run's scores on the development set, in its folder."""
ENSEMBLE = "ensemble.json"
"""Runs of an ensemble, in its folder, as relative paths."""
_CHECKPOINTS = "checkpoints"


def folders_named(name: str) -> Iterator[Path]:
    """Yield ``runs/name``, ``runs/name.2``, ``runs/name.3`` and so on, existing or not.

    With a dot, since ``gpt-2`` would be a model's name.
    """
    return _numbered(name, ".")


def _numbered(name: str, mark: str) -> Iterator[Path]:
    yield Path("runs") / name
    yield from (Path("runs") / f"{name}{mark}{number}" for number in count(2))


def free_folder(name: str) -> Path:
    """Return the first of ``runs/name``, ``runs/name.2`` and so on that does not exist."""
    return next(folder for folder in folders_named(name) if not os.path.lexists(folder))


def chosen_folder(out: Path | None, loaded: LoadedRecipe, *, resume: bool) -> Path:
    """Return the folder of a run: ``out``, or without it ``default_folder``.

    Raises ConfigError without a run to resume. Under a launcher, which repeats its first command,
    the run begins there, with a message.
    """
    folder = out or default_folder(loaded, resume=resume)
    runs = (folder, *folder.glob("seed-*"))
    if not resume or any(os.path.lexists(run / RECIPE) for run in runs):
        return folder
    if not os.path.lexists(folder) and not is_launched():
        raise ConfigError(
            f"there is no run {folder} to resume: leave out --resume to begin one, or name your "
            "run's folder, as listed by `sublayer runs`"
        )
    if is_first_launched():
        note(f"{folder} holds no run to resume: a new one begins there, at step 0")
    return folder


def default_folder(loaded: LoadedRecipe, *, resume: bool) -> Path:
    """Return the default folder of a run.

    A free folder; to resume, the run that the recipe was read from, or else the last run of a
    recipe of its name, by any version. Raises ConfigError for several processes, which would not
    agree.
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
        earlier = _numbered(name, "-")  # by versions up to 0.1
        taken += takewhile(lambda folder: os.path.lexists(folder / RECIPE), earlier)
    return taken[-1] if taken else next(folders_named(name))


def seed_folders(folder: Path, n_seeds: int | None) -> list[Path]:
    """Return the folders of a fine-tuning's runs: its own, or one for each seed below it."""
    return [folder] if n_seeds is None else [folder / f"seed-{seed}" for seed in range(n_seeds)]


def check_new(folder: Path, n_seeds: int | None = None) -> None:
    """Raise ConfigError if new runs would find a folder taken; PyTorch is not needed.

    A seed with scores has ended, and is not trained again. Several processes check together, once
    they have met; a folder that another process trains in is refused when it is locked.
    """
    if n_launched() > 1:
        return
    for run in seed_folders(folder, n_seeds):
        has_ended = n_seeds is not None and (run / SCORES).is_file()
        if not has_ended and not is_held(run):
            RunFolder(run).check_free()


class RunFolder:
    """Files of a run besides its checkpoints: ``recipe.toml``, ``record.json``, ``model/``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against all other training processes.

        Partial checkpoints of killed processes are removed, and so is a new folder of a run that
        wrote nothing. Raises ConfigError if another process holds the lock, and if the path is not
        a folder or its name is not text.
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

    def check_recipe(
        self, requested: Recipe, shape: Callable[[], ModelConfig] | None = None
    ) -> None:
        """Raise ConfigError, naming field and values, if the run was started from another recipe.

        Another length is checked by ``resume.py``. ``shape`` returns the model with the heads
        of its data, called if the models differ.

        Raises CheckpointError if the folder holds something that is not a run.
        """
        if not self.has_recipe():
            if self._is_occupied():
                raise CheckpointError(
                    f"{self.path} is not a run, as it has no recipe.toml: give another --out"
                )
            return
        # As a base of another run, a recipe has only the values given: derived ones are left out.
        before, now = load_recipe(self.path).recipe.model_dump(), requested.model_dump()
        if shape is not None and before["model"] != now["model"]:
            # Values derived from the data are the run's.
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
            stored = before[table]
            for name in sorted(
                (stored.keys() | values.keys()) - (lengths if table == "train" else set())
            ):
                if stored.get(name) != values.get(name):
                    raise ConfigError(
                        f"{self.path} was started with {table}.{name} = {show(stored.get(name))}, "
                        f"not {show(values.get(name))}: resume it with the same settings, or give "
                        "another --out"
                    )

    def check_model(self) -> None:
        """Raise ConfigError if ``model/`` is not the model of a checkpoint.

        A run killed at its end may have left a checkpoint's model there.
        """
        from sublayer.model.model_folder import is_copy

        target = self.path / MODEL
        if not os.path.lexists(target):
            return
        saved = (self.path / _CHECKPOINTS).glob(f"step-*/{MODEL}")
        originals = [path for path in saved if path.is_dir()]
        if not any(is_copy(target, original) for original in originals):
            raise ConfigError(
                f"{target} does not belong to this run: move it, or give another --out"
            )

    def has_recipe(self) -> bool:
        """Return whether the folder holds a run."""
        return os.path.lexists(self.path / RECIPE)

    def recipe(self) -> ResolvedRecipe:
        """Read the resolved recipe.

        Raises ConfigError if the file is missing, is not a recipe or leaves fields open.
        """
        return read_run_recipe(self.path / RECIPE)

    def write_recipe(
        self,
        recipe: Recipe,
        derived: Sequence[str],
        lengthened: Sequence[Lengthening] = (),
    ) -> None:
        """Write the resolved recipe atomically, with plugins; ``derived`` names fields not given.

        From then on the folder holds a run. ``lengthened`` lists its extensions. Raises OSError.
        """
        changes = [change.model_dump(exclude_defaults=True) for change in lengthened]
        text = dump_recipe(recipe, derived, changes, as_run=True)
        keep_plugins(self.path / FOLDER, used_plugins(recipe.model, recipe.optimizer))
        write_file(self.path / RECIPE, text)

    def record(self) -> dict[str, Any] | None:
        """Read the record; None if the run has not ended.

        Raises CheckpointError if it is damaged.
        """
        return read_record(self.path)

    def reopen(self) -> None:
        """Remove the end of a run that has more steps now.

        Its record is kept as ``record-step-....json``; its model is a checkpoint's, by
        ``check_model``. Raises OSError.
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

        Any other content of ``model/`` is moved aside. Raises OSError.
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


_ORDERS = ("block", "decoder_block")
"""Fields that permute the same number of weights."""
_OF_HEADS = (
    "head",
    "head_activation",
    "head_bias",
    "pooler",
    "sentence_classes",
    "label_outputs",
    "span_head",
)
"""Fields of parts that are newly initialized if the start has none that fits."""


def check_start(loaded: LoadedRecipe, command: str = "train") -> None:
    """Raise ConfigError if a recipe needs other weights than its start has.

    The message names each field with both values, and a working command. Heads may differ, learned
    positions be fewer, and with ``init.layers`` the number of blocks may differ.
    """
    start = loaded.start
    if start is None:
        return
    model, layers = loaded.recipe.model, loaded.recipe.init.layers
    if layers is not None:
        check_first_blocks(layers, start.model, start.run)
        check_first_blocks(layers, model, "the recipe")
    # The changed fields that by themselves need other weights.
    theirs = _n_parameters(start.model)
    fields = []
    for name in ModelConfig.model_fields:
        value = getattr(model, name)
        # Ids follow from the tokenizer, and positions from the start, by default.
        if value == getattr(start.model, name) or name in ("vocab_size", *_OF_HEADS):
            continue
        if name == "max_len" and (value or 0) <= (start.model.max_len or value or 0):
            continue
        if name in ("n_layers", "n_decoder_layers") and layers is not None:
            continue
        if name not in _ORDERS:
            changed = {**start.model.model_dump(exclude_unset=True), name: value}
            with suppress(ConfigError, ValidationError):  # one change alone may have no meaning
                if _n_parameters(ModelConfig.model_validate(changed)) == theirs:
                    continue
        fields.append(name)
    if fields:
        differences = [
            f"model.{name} = {show(getattr(model, name))} where {start.run} has "
            f"{show(getattr(start.model, name))}"
            for name in fields
        ]
        raise ConfigError(
            f"the weights of {start.run} do not fit {' and '.join(differences)}: "
            f"{_remedy(loaded, start, fields, command)}"
        )
    context, learned = loaded.recipe.data.context, start.model.max_len
    if position_scheme(model).has_rows and context > (learned or context):
        raise ConfigError(
            f"data.context = {context} is longer than the {learned} positions that {start.run} has "
            f"learned, and none can be added: {_remedy(loaded, start, [], command)}"
        )


def _n_parameters(model: ModelConfig) -> int:
    # Both models get the start's tokenizer and positions, which therefore do not count as
    # differences.
    rows, positions = model.vocab_size or model.vocab_multiple, model.max_len or 2
    resolved = resolve_model(model, vocab_size=rows, context=positions)
    return count_parameters(resolved).total


def _remedy(loaded: LoadedRecipe, start: Start, fields: list[str], command: str) -> str:
    """Word the remedy: the command line without the settings that do not fit."""
    keys = [f"model.{name}" for name in fields]
    if loaded.recipe.data.context > (start.model.max_len or loaded.recipe.data.context):
        keys.append("data.context")
    *_, last = loaded.layers
    below = loaded.layers[-2].origin if len(loaded.layers) > 1 else ""
    is_told = last.origin == "command line" and any(key in last.values for key in keys)
    # With a preset the command also names tasks and folders, which no layer holds.
    if not is_told or below.startswith("preset "):
        return f"leave out {' and '.join(keys)}, which keeps the values of {start.run}"
    source = below.partition(" ")[2] if below else loaded.name
    settings = {key: value for key, value in last.values.items() if key not in keys}
    for key, name in zip(keys, fields, strict=False):
        if key not in last.values:
            settings[key] = getattr(start.model, name)
    words = ["sublayer", command, source]
    words += [f"{key}={as_setting(value)}" for key, value in settings.items()]
    return f"leave out {' and '.join(keys)}, as in `{shlex.join(words)}`"
