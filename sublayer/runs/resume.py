"""Resumption of a run: its inputs compared with those at its start; its lengthening and branches.

``inputs.json``, next to ``recipe.toml``, holds the digest of each input and the recipe as the run
began with it. Runs, fine-tunings and studies compare here on resume. Digests are of the prepared
data, so that comparing reads nothing.

A longer run continues from its newest checkpoint. Settings derived from its first length stay: the
warm-up, and the intervals of logging, evaluation and saving.

A branch is a run that begins at a checkpoint of another one, and lets its constant rate fall: its
folder is that of a run of the branch's recipe that was interrupted there.
"""

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.config.data import TOKENIZERS
from sublayer.config.layers import read_toml
from sublayer.config.load import dump_recipe, load_recipe, read_derived, recipe_of
from sublayer.config.messages import setting_in_words, show_path
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.config.resolve import run_steps
from sublayer.config.train import LENGTHS, probe_folders
from sublayer.data.prepare import Data
from sublayer.data.tasks.batches import TaskSplit
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.named import is_former, load_tokenizer
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.evaluation.probes import probe_files
from sublayer.files.cache_folder import cache_folder, content_key, file_digest
from sublayer.files.checkpoints import (
    MANIFEST,
    PACE,
    STATE,
    Input,
    Lengthening,
    SavedEvaluation,
    SavedState,
    check_record,
    checkpoint_path,
    new_checkpoint,
    read_record,
    read_state,
    saved_steps,
    verify_checkpoint,
    verify_parts,
)
from sublayer.files.parsing import (
    Count,
    Typed,
    check_typed,
    parse_toml,
    read_json_object,
    read_typed,
)
from sublayer.files.storage import as_typed, expanded, write_file
from sublayer.numbers import count, enumerate_names
from sublayer.objective.base import family_of
from sublayer.runs.folder import INPUTS, RECIPE, RunFolder
from sublayer.system.terminal import Say
from sublayer.training.checkpoints import CHECKPOINTS, MODEL
from sublayer.training.log import METRICS, read_metrics
from sublayer.training.step import FALLS, learning_rate
from sublayer.training.warm_start import StartModel
from sublayer.values import show

FORMAT = 1
"""Version of the computation: changes when resumed runs would train differently: batch order,
random draws, optimizer state."""
_TOKENIZER, _START = "tokenizer", "init.run"
_SHOWN_DIGITS = 12


class Began(Typed):
    """Inputs at the start of a run, as its folder keeps them."""

    format: Count
    recipe: str
    """Resolved, as TOML."""
    inputs: list[Input]
    plan: dict[str, Any] | None = None
    """Sealed plan of the run's comparison; None for any other run."""


def list_inputs(recipe: Recipe, data: Data, pretrained: StartModel | None = None) -> list[Input]:
    """List the inputs of a recipe with prepared data; without ``pretrained`` not the start.

    Raises DataError if the files of a probe are missing.
    """
    digests = {**data.digests, _TOKENIZER: data.tokenizer.fingerprint}
    files = {
        f"probes.{name}": probe_files(name, folder)
        for name, folder in probe_folders(recipe.train.probes).items()
    }
    if pretrained is not None and pretrained.folder is not None:
        model = pretrained.folder
        files[_START] = [model / "config.json", *sorted(model.rglob("*.safetensors"))]
    cache = cache_folder()
    for name, paths in files.items():
        digests[name] = content_key([file_digest(path, cache) for path in paths])
    return of_checksums(digests, _sizes_of(data))


def keep_inputs(
    folder: Path,
    recipe: Recipe,
    inputs: list[Input],
    plan: Mapping[str, Any] | None = None,
) -> None:
    """Write the inputs of a new run into its folder, with its resolved recipe.

    ``plan`` is the sealed plan of its comparison.
    """
    began = Began(format=FORMAT, recipe=dump_recipe(recipe), inputs=inputs)
    content = began.model_dump(exclude_none=True)
    if plan is not None:
        content["plan"] = dict(plan)
    write_file(folder / INPUTS, json.dumps(content, indent=1) + "\n")


def read_began(folder: Path) -> Began | None:
    """Read the inputs at the start of a run; None if an earlier version kept none.

    Raises CheckpointError if the file is damaged.
    """
    try:
        return read_typed(folder / INPUTS, Began, CheckpointError)
    except FileNotFoundError:
        return None
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}: restore it, or remove it to compare only what the record and the checkpoint "
            "hold"
        ) from None


def trained_tokenizer(folder: Path, recipe: Recipe) -> Tokenizer | None:
    """Read the tokenizer of a run's checkpoint, if the recipe trains one; else None.

    Also for an unchanged file that an earlier version read by other rules.
    """
    kind = recipe.data.tokenizer
    if recipe.init.run is not None or kind == "bytes":
        return None
    saved = _saved_tokenizer(folder)
    if saved is None or kind in TOKENIZERS or is_former(saved, expanded(kind)):
        return saved
    return None


def _saved_tokenizer(folder: Path) -> Tokenizer | None:
    """Read the tokenizer of a run's newest complete checkpoint; None without one."""
    for step in reversed(saved_steps(folder / CHECKPOINTS)):
        path = checkpoint_path(folder / CHECKPOINTS, step) / MODEL / "tokenizer.json"
        try:
            verify_parts([path])
            return load_tokenizer(path)
        except (CheckpointError, DataError, OSError):
            continue  # a damaged checkpoint is refused, with a message, when restored
    return None


def check_inputs(
    folder: Path, recipe: Recipe, resolved: Recipe, data: Data, pretrained: StartModel | None
) -> list[str]:
    """Check that a run's inputs equal those at its start; return notes.

    ``recipe`` is the given one, ``resolved`` the folder's. A changed start is only noted if a
    checkpoint has replaced its weights. For a run of an earlier version, the checksums of its
    record and the tokenizer of its checkpoint are compared, with a note on that limit; its inputs
    are kept from then on.

    Raises ConfigError and DataError with the field, both values and the remedy.
    """
    has_checkpoint = bool(saved_steps(folder / CHECKPOINTS))
    way_on = "give another --out"
    if has_checkpoint:
        name = shlex.quote(as_typed(str(folder)))
        way_on = (
            f"start a new run from its weights: sublayer train {name} init.run={name} --out NEW"
        )
    began = read_began(folder)
    if began is None:
        return _check_earlier(folder, recipe, data, way_on)
    if began.format != FORMAT:
        raise ConfigError(
            f"{folder} was begun by a version of sublayer that trains differently (format "
            f"{began.format}, not {FORMAT}): resume it with that version, or {way_on}"
        )
    origin = str(folder / INPUTS)
    fixed = recipe_of(parse_toml(began.recipe, origin, CheckpointError), origin).model_dump()
    for table, fields in resolved.model_dump().items():
        for name, value in fields.items() if isinstance(fields, dict) else ():
            is_length = table == "train" and name in (*LENGTHS, "keep_steps")
            if not is_length and value != fixed[table].get(name):
                raise ConfigError(
                    f"{folder} began with {table}.{name} = {show(fixed[table].get(name))}, but "
                    f"its recipe.toml now has {show(value)}: restore it, or {way_on}"
                )
    before, now = began.inputs, list_inputs(recipe, data, pretrained)
    notes = []
    if pretrained is None or (has_checkpoint and _START in differing(before, now)):
        # Weights replaced by a checkpoint no longer matter.
        before, now = ([asset for asset in some if asset.name != _START] for some in (before, now))
        if pretrained is not None:
            notes.append(
                f"init.run = {show(recipe.init.run)} has other weights now than when {folder} "
                "began; training continues from its checkpoint's"
            )
    check_same_inputs(str(folder), recipe, before, now, way_on)
    return notes


def differing(before: Sequence[Input], now: Sequence[Input]) -> list[str]:
    """Return the names of inputs that differ, in order, missing and new ones included."""
    digests, others = ({asset.name: asset.digest for asset in some} for some in (before, now))
    return [name for name in {**digests, **others} if digests.get(name) != others.get(name)]


def of_checksums(digests: Mapping[str, str], sizes: Mapping[str, Any]) -> list[Input]:
    """Build inputs from digests by name, and from sizes by unit if known."""
    units = ("bytes", "examples", "documents", "ids")
    inputs = []
    for name, digest in digests.items():
        counts = sizes.get(name)
        counts = counts if isinstance(counts, Mapping) else {}  # a record's tokenizer is a word
        words = [count(counts[unit], unit.removesuffix("s")) for unit in units if counts.get(unit)]
        if counts.get("labels"):
            words.append(f"labels {show(counts['labels'])}")
        value = ", ".join([*words, f"SHA-256 {digest[:_SHOWN_DIGITS]}"])
        inputs.append(Input(name=name, value=value, digest=digest))
    return inputs


def check_same_inputs(
    what: str, recipe: Recipe, before: Sequence[Input], now: Sequence[Input], way_on: str
) -> None:
    """Raise DataError with field, values and ``way_on`` for inputs that changed.

    ``what`` names the run or study that began with them.
    """
    names = differing(before, now)
    if not names:
        return
    values, others = ({asset.name: asset.value for asset in some} for some in (before, now))
    first, *rest = names
    beside = f" (also: {', '.join(rest)})" if rest else ""
    raise DataError(
        f"{what} began with other data: {_label(first, recipe)} was {values.get(first, 'none')} "
        f"and is now {others.get(first, 'none')}{beside}: restore it, or {way_on}"
    )


def _check_earlier(folder: Path, recipe: Recipe, data: Data, way_on: str) -> list[str]:
    """Compare inputs kept by earlier versions: checksums of a record, a checkpoint's tokenizer."""
    record = read_record(folder)
    if record is None and (lengthened := sorted(folder.glob("record-step-*.json"))):
        # The record of a run whose lengthening by an earlier version was interrupted.
        record = check_record(read_json_object(lengthened[-1], CheckpointError), lengthened[-1])
    sizes: Mapping[str, Any] = {"checksums": {}} if record is None else record["data"]
    checksums = dict(sizes["checksums"])
    if _TOKENIZER not in checksums and (saved := _saved_tokenizer(folder)) is not None:
        checksums[_TOKENIZER] = saved.fingerprint
    now = {name: digest for name, digest in data.checksums.items() if name in checksums}
    before, after = of_checksums(checksums, sizes), of_checksums(now, _sizes_of(data))
    check_same_inputs(str(folder), recipe, before, after, way_on)
    others = [name for name in data.checksums if name not in checksums]
    return [
        f"{folder} was begun by an earlier version, which kept no {INPUTS}: "
        f"{', '.join([*others, 'recipe'])} could not be compared with the start"
    ]


def _sizes_of(data: Data) -> dict[str, Any]:
    sizes: dict[str, Any] = {**data.sizes(), _TOKENIZER: {"ids": data.tokenizer.vocab_size}}
    sizes |= {f"watch.{name}": split.sizes() for name, split in data.watched.items()}
    for split in data.splits():
        if isinstance(split, TaskSplit):
            labels = [label for part in split.parts for label in part.task.labels]
            sizes[split.name] = {**sizes[split.name], "labels": labels}
    return sizes


def _label(name: str, recipe: Recipe) -> str:
    """Format an input with the field that names it: ``data.path = 'book.txt', its train split``."""
    data = recipe.data.model_dump()
    table, _, part = name.partition(".")
    if name in (_START, _TOKENIZER):
        what = "model" if name == _START else "tokenizer"
        if recipe.init.run is None:
            return setting_in_words("data.tokenizer", data["tokenizer"])
        return f"the {what} of {setting_in_words(_START, recipe.init.run)}"
    if table in ("watch", "probes"):
        return f"{part} of {'data.watch' if table == 'watch' else 'train.probes'}"
    kinds = ("source_path", "target_path", "path", "corpus", "tasks")
    specific, shared = (
        [f"data.{key} = {show_path(data[key])}" for key in keys if data.get(key) is not None]
        for keys in ([f"{name}_{kind}" for kind in kinds], kinds)
    )
    return f"the {name} split of {' and '.join(specific or shared)}"


_STEPS = "train.steps"


class _Listed(Typed):
    lengthened: list[Lengthening] = []


def read_lengthenings(recipe: Path, by: str = "") -> tuple[Lengthening, ...]:
    """Read lengthenings by commands from a run's ``recipe.toml``, the first one first.

    Raises ConfigError if it is damaged.
    """
    listed = check_typed(read_toml(recipe), _Listed, str(recipe), ConfigError).lengthened
    return tuple(row for row in listed if row.by == by)


def read_replanned(recipe: Path) -> tuple[Lengthening, ...]:
    """Read re-plannings of minutes from a run's ``recipe.toml``, the first one first.

    A lengthened run begins without. Raises ConfigError if it is damaged.
    """
    return read_lengthenings(recipe, PACE)


def add_replanned(folder: RunFolder, change: Lengthening) -> None:
    """Record in a run's recipe that its minutes were re-planned, and its new length."""
    path, recipe = folder.path / RECIPE, folder.recipe()
    train = recipe.train.model_copy(update={"steps": change.to_steps})
    changed = recipe.model_copy(update={"train": train})
    lengthened = (*read_lengthenings(path), *read_replanned(path), change)
    folder.write_recipe(changed, read_derived(path), lengthened)


def has_other_length(before: Recipe, requested: Recipe) -> bool:
    """Return whether two recipes, as given, differ in length."""
    return any(getattr(before.train, name) != getattr(requested.train, name) for name in LENGTHS)


def lengthen(folder: RunFolder, requested: Recipe, data: Data, say: Say) -> None:
    """Give a run the length of ``requested``, in its recipe, and describe the rest of training.

    Silent if it already has that length. Minutes are for the complete run, converted by its
    measured step time; ``train.keep_steps`` may name further future steps. What an interruption may
    have left is removed: the record and the model of the shorter run.
    """
    run, path = folder.path, folder.path / RECIPE
    if has_other_length(load_recipe(run).recipe, requested):
        recipe = folder.recipe()
        steps, before = _steps(run, requested, data), recipe.train.steps
        if steps <= before:
            lengths = ((name, getattr(requested.train, name)) for name in LENGTHS)
            named = [
                f"train.{name} = {show(value)}" for name, value in lengths if value is not None
            ]
            length = named[0] if named else "a recipe without a length"
            raise ConfigError(
                f"{run} has {count(before, 'step')}, and {length} is not longer: give more, or "
                "leave it out"
            )
        saved = saved_steps(run / CHECKPOINTS)
        at_step = saved[-1] if saved else 0
        change = Lengthening(at_step=at_step, from_steps=before, to_steps=steps)
        requested.train.check_keep_steps(steps)
        planned, now = recipe.train.keep_steps, requested.train.keep_steps
        if not set(planned) <= set(now):
            raise ConfigError(
                f"{run} was started with train.keep_steps = {show(planned)}, not {show(now)}: "
                "keep those, and add further ones if needed"
            )
        over = [step for step in now if step not in planned and step <= change.at_step]
        if over:
            raise ConfigError(
                f"train.keep_steps names step {over[0]}, but {run} is past it and continues "
                f"from step {change.at_step}: leave it out"
            )
        fields = {name: getattr(requested.train, name) for name in (*LENGTHS, "keep_steps")}
        train = recipe.train.model_copy(update={**fields, "steps": steps})
        longer = recipe.model_copy(update={"train": train})
        # Steps are derived unless given now.
        derived = [key for key in read_derived(path) if key != _STEPS]
        if requested.train.steps is None:
            derived.append(_STEPS)
        folder.write_recipe(longer, derived, (*read_lengthenings(path), change))
        say(describe(change, longer))
    if read_lengthenings(path):
        folder.reopen()


def is_cut_off(folder: RunFolder, requested: Recipe, record: Mapping[str, Any]) -> bool:
    """Return whether a finished run is to be lengthened.

    Raises ConfigError if it cannot be.
    """
    run, before = folder.path, load_recipe(folder.path).recipe
    is_other = has_other_length(before, requested)
    has_stopped = bool(record.get("stopped_early"))
    if not is_other and (has_stopped or record["step"] >= folder.recipe().train.steps):
        return False
    from_weights = f"start a new run from its weights with init.run={run}"
    if has_stopped:
        raise ConfigError(
            f"{run} ended early, at step {record['step']}, as train.patience = "
            f"{before.train.patience} says, whatever its length: {from_weights}"
        )
    if not saved_steps(run / CHECKPOINTS):
        raise ConfigError(f"{run} has no checkpoint to continue from: {from_weights}")
    return True


def earlier_ends(recipe: Path) -> tuple[int, ...]:
    """Return the steps of a run's ends before its extensions."""
    listed = read_lengthenings(recipe)
    return tuple(plan.at_step for plan in listed if plan.at_step == plan.from_steps)


def describe(change: Lengthening, recipe: ResolvedRecipe) -> str:
    """Describe the start of a lengthened run's continuation, and its learning rates."""
    optimizer = recipe.optimizer
    auxiliary = getattr(recipe.objective, "auxiliary", "none")
    depends = {
        # A constant warm-up is T5's schedule, whatever the other field.
        f"optimizer.schedule = {optimizer.schedule}": optimizer.schedule in FALLS
        and optimizer.warmup != "constant",
        "optimizer.cooldown_share": optimizer.cooldown_share > 0,
        f"objective.auxiliary = {auxiliary}": auxiliary != "none",
    }
    depending = [name for name, is_so in depends.items() if is_so]
    text = f"continues from step {change.at_step:,} to {change.to_steps:,} instead of "
    text += f"{change.from_steps:,}"
    if not depending:
        return text
    next_rate = learning_rate(optimizer, change.at_step, change.to_steps)
    was = learning_rate(optimizer, max(0, change.at_step - 1), change.from_steps)
    return (
        f"{text}: {' and '.join(depending)} {'follows' if len(depending) == 1 else 'follow'} the "
        f"longer length from there on; the learning rate changes from {was:.3g} to {next_rate:.3g}"
    )


def _steps(run: Path, requested: Recipe, data: Data) -> int:
    steps = run_steps(
        requested, train_tokens=family_of(requested.objective).epoch_tokens(requested, data.train)
    )
    if steps is not None:
        return steps
    assert requested.train.minutes is not None, "only minutes leave the steps to a measurement"
    saved = saved_steps(run / CHECKPOINTS)
    if not saved:
        raise ConfigError(f"{run} has no checkpoint with the time of its steps: give train.steps")
    try:
        state = read_state(checkpoint_path(run / CHECKPOINTS, saved[-1]))
    except CheckpointError as error:
        raise ConfigError(f"{error}: give train.steps instead of train.minutes") from None
    step_s = max(state.seconds, state.step_seconds) / max(1, state.step)
    return int(60.0 * requested.train.minutes / step_s)


@dataclass(frozen=True)
class Branch:
    """Decay of a run's constant rate, in a run of its own that begins at one of its checkpoints."""

    run: Path
    state: SavedState
    recipe: ResolvedRecipe
    """The run's recipe with the branch's length and cooldown."""

    def begin(self, folder: Path) -> None:
        """Write the folder of the branch as if it had been interrupted at its first step.

        It has the checkpoint, that of the best evaluation, the metrics and the inputs of the run.
        Raises ConfigError if the folder is taken, CheckpointError for a damaged checkpoint.
        """
        target = RunFolder(folder)
        target.check_free()
        step = self.state.step
        for kept in sorted(self.state.best_steps() | {step}):
            source = checkpoint_path(self.run / CHECKPOINTS, kept)
            verify_checkpoint(source)
            with new_checkpoint(folder / CHECKPOINTS, kept) as partial:
                others = shutil.ignore_patterns(MANIFEST)
                shutil.copytree(source, partial, ignore=others, dirs_exist_ok=True)
                if kept == step:
                    (partial / STATE).write_text(self.state.model_dump_json())
        shutil.copyfile(self.run / METRICS, folder / METRICS)
        began, path = read_began(self.run), self.run / RECIPE
        if began is not None:
            keep_inputs(folder, self.recipe, began.inputs)
        given = ("train.steps", "optimizer.cooldown_share", "optimizer.warmup_steps")
        derived = [name for name in read_derived(path) if name not in given]
        before, after = RunFolder(self.run).recipe().train.steps, self.recipe.train.steps
        change = Lengthening(at_step=step, from_steps=before, to_steps=after)
        target.write_recipe(self.recipe, derived, (*read_lengthenings(path), change))


def plan_branch(run: Path, decay: float, at_step: int | None = None) -> Branch:
    """Plan the decay of a run's constant rate to 0, from a kept checkpoint on, by default the last.

    ``decay`` is the number of steps of the decay or, below 1, its share of the branch's steps.
    Raises ConfigError where the rate of the run is not constant at the checkpoint, and where there
    is no such checkpoint; CheckpointError where it is damaged.
    """
    recipe = RunFolder(run).recipe()
    optimizer, steps = recipe.optimizer, recipe.train.steps
    if optimizer.schedule != "constant" or optimizer.kind == "schedule-free":
        name = "kind" if optimizer.schedule == "constant" else "schedule"
        raise ConfigError(
            f"{run} has optimizer.{name} = {getattr(optimizer, name)}, and --branch-decay decays a "
            "constant rate: name a run with optimizer.schedule = constant"
        )
    rises, falls = optimizer.warmup_steps or 0, steps - optimizer.cooldown_share * steps
    saved = [step for step in saved_steps(run / CHECKPOINTS) if rises <= step <= falls]
    if not saved or at_step not in (None, *saved):
        kept = f"at {enumerate_names([f'{step:,}' for step in saved])}" if saved else "nowhere"
        what = "no checkpoint" if at_step is None else f"no checkpoint of step {at_step:,}"
        raise ConfigError(
            f"{run} has {what} to branch from: it has some where its rate is constant {kept}; "
            "train.keep_steps of a run keeps further ones"
        )
    step = saved[-1] if at_step is None else at_step
    n_steps = round(step * decay / (1.0 - decay)) if decay < 1.0 else int(decay)
    if n_steps < 1 or (decay >= 1.0 and n_steps != decay):
        raise ConfigError(
            f"--branch-decay {decay:g} is no length of a decay from step {step:,} on: give a whole "
            "number of steps, or a share of the branch's steps, below 1"
        )
    total = step + n_steps
    keep = tuple(kept for kept in recipe.train.keep_steps if step < kept <= total)
    lengths: dict[str, Any] = {**dict.fromkeys(LENGTHS), "steps": total, "keep_steps": keep}
    rates: dict[str, Any] = {"cooldown_share": n_steps / total, "warmup_share": None}
    changed = {
        "title": f"{recipe.title or run.name}, decay from step {step:,}",
        "train": recipe.train.model_copy(update=lengths),
        "optimizer": optimizer.model_copy(update=rates),
    }
    return Branch(run, _branched_state(run, step), recipe.model_copy(update=changed))


def _branched_state(run: Path, step: int) -> SavedState:
    """Return the state at a checkpoint of a run, with best evaluations that are kept.

    If the best one is not, the checkpoint's takes its place.
    """
    state = read_state(checkpoint_path(run / CHECKPOINTS, step))
    kept, best = saved_steps(run / CHECKPOINTS), state.best
    if best is not None and best.step not in kept:
        found = [line for line in read_metrics(run / METRICS) if line["kind"] == "valid"]
        values = next((line for line in found if line["step"] == step), None)
        if values is None:
            raise ConfigError(
                f"{run} was not evaluated at step {step:,}, and keeps no better checkpoint before "
                "it: branch from an evaluated step"
            )
        names = [name for name in best.model_dump() if name in values]
        best = SavedEvaluation(**{name: values[name] for name in names})
    bests = {task: row for task, row in state.task_bests.items() if row.step in kept}
    update = {"best": best, "task_bests": bests, "waited": 0, "has_stopped": False}
    return state.model_copy(update=update)
