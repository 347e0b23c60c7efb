"""A run: recipe -> model, data, objective -> loop -> evaluation -> record. Read this file first."""

import hashlib
import json
import os
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from sublayer.config.data import watched_texts
from sublayer.config.load import LoadedRecipe, absolute_paths
from sublayer.config.model import ModelConfig
from sublayer.config.plugins import refuse_idle
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import check_shares, derived_fields
from sublayer.config.rules import fills_steps
from sublayer.data.prepare import Data
from sublayer.data.store import Split
from sublayer.data.tasks.batches import ExampleBatches, TaskSplit
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.errors import ConfigError
from sublayer.estimate.memory import training_flops
from sublayer.files.checkpoints import Lengthening
from sublayer.files.storage import as_typed
from sublayer.model.estimates import count_parameters
from sublayer.model.model_folder import describe_model, spec_files
from sublayer.numbers import count
from sublayer.objective.base import Family, family_of
from sublayer.runs.folder import INPUTS, RECIPE, RunFolder, check_start
from sublayer.runs.resume import (
    Branch,
    add_replanned,
    check_inputs,
    earlier_ends,
    is_cut_off,
    keep_inputs,
    lengthen,
    list_inputs,
    read_began,
    read_lengthenings,
    read_replanned,
    trained_tokenizer,
)
from sublayer.runs.session import (
    PACE_LIVES_S,
    Place,
    Session,
    assemble,
    choose_kernels,
    keep_run_pace,
    prepare_data,
    provisional_steps,
    recall_run_pace,
    resolve,
    resolve_run,
)
from sublayer.system.machine import PeakMemory, choose_device, describe_machine
from sublayer.system.terminal import format_seconds, say_nothing, stage
from sublayer.training.checkpoints import LoopState, Snapshots
from sublayer.training.log import Progress, ShownProgress, SilentProgress
from sublayer.training.loop import Evaluate, Loop, MinutesPlan, PaceChanged
from sublayer.training.speed import Pace, describe_use, median_step
from sublayer.training.warm_start import StartModel
from sublayer.training.world import World, join_world, naming_lost


def train_run(
    loaded: LoadedRecipe,
    out: Path,
    *,
    resume: bool = False,
    device: str | None = None,
    progress: Progress | None = None,
    data: Data | None = None,
    replans: bool = True,
    plan: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train in the folder ``out`` and return the record; ``resume`` continues a run.

    A finished run is unchanged, unless the recipe is longer now. ``data`` are the recipe's prepared
    data; None: prepared here. With ``replans`` a run by minutes re-plans its steps when its pace
    changes, unlike compared runs. ``plan`` is the sealed plan of a comparison, kept at the start.

    Raises ConfigError, DataError and CheckpointError before training, Interrupted and TrainingError
    during it.
    """
    check_start(loaded)
    refuse_idle()
    chosen = choose_device(device)
    world = join_world(chosen, 60.0 * loaded.recipe.train.hang_minutes)
    check_shares(loaded.recipe, world.size, is_gpu=chosen.type != "cpu")
    setup = Place(chosen, world)
    folder = RunFolder(out)
    shown = progress or (ShownProgress() if world.is_main else SilentProgress())
    with naming_lost(f"the checkpoints in {out} are kept"), ExitStack() as stack:
        world.by_first(lambda: stack.enter_context(folder.held()))
        world.check_agreement(loaded.recipe, out)
        if not resume:
            folder.check_free()
        world.wait()
        record = folder.record()
        requested = absolute_paths(loaded.recipe)
        if record is not None and not is_cut_off(folder, requested, record):
            folder.check_recipe(requested, lambda: _shape(requested, data))
            if data is not None:  # the caller scores the run's model on them
                for note in check_inputs(folder.path, requested, folder.recipe(), data, None):
                    shown.note(note)
            world.part()
            return record
        with PeakMemory(chosen) as memory:
            session, pace = _open_session(folder, loaded, setup, shown, data, plan)
            state = _train(session, folder, shown, pace, replans)
            if state is None:
                # Nothing has been kept: the run restarts, once, with the length by the present
                # pace.
                data = session.data
                del session
                session, _ = _open_session(folder, loaded, setup, shown, data, plan, is_again=True)
                state = _train(session, folder, shown, None, replans)
        assert state is not None, "a pace is checked where one is expected"
        record = describe_run(out, session, state, memory.bytes)
        with stage("writing the model and the record") if world.is_main else nullcontext():
            world.by_first(lambda: folder.finish(record))
        if world.is_main:
            keep_run_pace(session.recipe, setup, state.seconds / state.step)
        world.part()
    return record


def begin_branch(branch: Branch, out: Path, device: str | None = None) -> None:
    """Write the folder of a branch, once for all processes; ``train_run`` resumes it."""
    world = join_world(choose_device(device), 60.0 * branch.recipe.train.hang_minutes)
    world.by_first(lambda: branch.begin(out))


def _shape(recipe: Recipe, data: Data | None, pretrained: StartModel | None = None) -> ModelConfig:
    """Return a recipe's model with the heads of its data, as in a run."""
    family = family_of(recipe.objective)
    if type(family).shape_model is Family.shape_model:
        return recipe.model
    return family.shape_model(recipe, data or prepare_data(recipe, pretrained))


def measure_step(
    loaded: LoadedRecipe, data: Data, budget_s: float, device: str | None = None
) -> float:
    """Measure the median seconds of an optimizer step of a recipe, within ``budget_s``.

    The recipe's length does not count. Raises ConfigError as ``resolve_run`` does, and if a step
    does not fit into memory.
    """
    chosen = choose_device(device)
    setup = Place(chosen, World(rank=0, size=1))
    pretrained = StartModel(loaded.recipe.init)
    recipe = resolve(loaded.recipe, data, setup, steps=provisional_steps(loaded.recipe))
    session = assemble(recipe, data, setup, pretrained)
    return median_step(session.train_step, budget_s=budget_s, device=chosen)


def _open_session(
    folder: RunFolder,
    loaded: LoadedRecipe,
    setup: Place,
    shown: Progress,
    data: Data | None,
    plan: Mapping[str, Any] | None,
    *,
    is_again: bool = False,
) -> tuple[Session, Pace | None]:
    requested, world = absolute_paths(loaded.recipe), setup.world
    pretrained = StartModel(requested.init)
    say = shown.note if world.is_main else say_nothing
    # Checked before the first process can write it, so that all agree.
    is_new = is_again or not folder.has_recipe()
    tokenizer = None if is_new else trained_tokenizer(folder.path, requested)

    def prepare_first() -> None:
        nonlocal data
        if not is_again:
            folder.check_recipe(requested, lambda: _shape(requested, data, pretrained))
            folder.check_model()
        data = data or prepare_data(requested, pretrained, tokenizer)
        if is_new:
            return
        resolved = folder.recipe()
        for note in check_inputs(folder.path, requested, resolved, data, pretrained):
            shown.warn(note)
        if not os.path.lexists(folder.path / INPUTS):
            keep_inputs(folder.path, resolved, list_inputs(requested, data, pretrained))

    world.by_first(prepare_first, long="the text is prepared")
    # The other processes open the data that the first has stored.
    prepared = data or prepare_data(requested, pretrained, tokenizer)
    checksums = json.dumps(prepared.checksums, sort_keys=True)
    world.check_same(checksums, "another text", "give all nodes the same files")
    pace = None
    if is_new:
        for note in () if is_again else loaded.notes:
            shown.warn(note)
        oldest_s = -1.0 if is_again else PACE_LIVES_S
        recipe, pace = resolve_run(
            requested, prepared, setup, oldest_s=oldest_s, say=say, pretrained=pretrained
        )
        recipe = choose_kernels(recipe, setup, pace, say)

        def begin() -> None:
            inputs = list_inputs(requested, prepared, pretrained)
            folder.write_recipe(recipe, derived_fields(requested, recipe))
            keep_inputs(folder.path, recipe, inputs, plan)

        world.by_first(begin)
    else:
        world.by_first(lambda: lengthen(folder, requested, prepared, say))
    if not (is_new and world.is_main):
        # Other processes may have other measurements than the first.
        recipe = folder.recipe()
    torch.set_num_threads(recipe.train.threads)
    with stage("building the model"):
        return assemble(recipe, prepared, setup, pretrained), pace


def _train(
    session: Session, folder: RunFolder, progress: Progress, pace: Pace | None, replans: bool
) -> LoopState | None:
    """Train to the end; None if the first steps show another pace, and nothing has been kept."""
    train, world = session.recipe.train, session.place.world
    is_main, note = world.is_main, progress.note if world.is_main else say_nothing

    def describe(folder: Path) -> None:
        trained = session.text_model
        tokenizer = {"tokenizer.json": session.data.tokenizer.serialize()}
        describe_model(folder, trained.model.config, {**tokenizer, **spec_files(trained.task)})

    def keep(change: Lengthening) -> None:
        if is_main:
            add_replanned(folder, change)

    path = folder.path / RECIPE
    ends = earlier_ends(path)
    snapshots = Snapshots(folder.path, session.train_step, describe, earlier_ends=ends)
    with progress:
        checkpoint = snapshots.newest(note)
        name = "" if checkpoint is None else checkpoint.name
        remedy = "give a folder shared by all nodes, then --resume"
        world.check_same(name, "another newest checkpoint", remedy)
        # A checkpoint replaces the starting weights.
        for text in session.start_notes if checkpoint is None else ():
            progress.note(text)
        for warning in session.notes():
            progress.warn(warning)
        state = LoopState() if checkpoint is None else snapshots.restore(checkpoint)
        batches = session.train_step.batches
        if state.step and isinstance(batches, ExampleBatches) and batches.rule.fills_rows:
            # In versions without filled rows, train.batch_tokens of tasks was a number of examples.
            n_tokens = sum(map(batches.n_tokens, range(state.step)))
            if n_tokens != state.tokens:
                raise ConfigError(
                    f"{folder.path} has read {state.tokens:,} tokens in "
                    f"{count(state.step, 'step')}, in other batches than its train.batch_tokens "
                    "forms in this version, which fills rows: start a new run from its weights "
                    f"with init.run={folder.path}"
                )
        if is_main and progress.is_alone:
            for line in list_header(session, folder.path, done=state.step):
                progress.note(line)
        evaluate = Evaluate(
            session.evaluate, session.metrics, session.task_scores, session.describe_watched
        )
        plan = None
        if train.minutes is not None and replans:
            plan = MinutesPlan(train.minutes, train.evaluate_steps, read_replanned(path), keep)
        expected_s = None if pace is None else pace.step_s
        loop = Loop(
            train, session.train_step, evaluate, snapshots, state, pace_s=expected_s, plan=plan
        )
        try:
            return loop.run(progress)
        except PaceChanged as change:
            note(str(change))
            return None


_FEW = 10
"""Number of documents below which a test split is small."""
_WIDTH = 80
_LABEL = 11
_MOST_SOURCES = 3
_NAMES = {"valid": "validation", "test": "test"}
"""Row names of splits with separate files."""
_LIBRARIES = ("sublayer", "numpy", "safetensors", "sentencepiece", "tokenizers")


def describe_small_test(data: Data) -> str | None:
    """Return a sentence on a test split of few documents or pairs; None if there are enough."""
    test = data.test
    if test is None:
        return None
    n = len(test.document_starts)
    if n >= _FEW:
        return None
    if test.read_pairs is not None:
        return (
            f"the test split has only {count(n, 'pair')} of texts: scores on other texts may differ"
        )
    unit = "example" if isinstance(test, TaskSplit) else "document"
    items = f"one {unit}" if n == 1 else f"{n} {unit}s"
    if test.is_cut:
        return (
            f"the test split is {'part' if n == 1 else 'parts'} of {items}, the rest of which is "
            f"trained on: scores on other {unit}s may differ"
        )
    return f"the test split has only {items}: scores on other {unit}s may differ"


def list_header(session: Session, folder: Path, *, done: int) -> list[str]:
    """Return the lines of a run's header; ``done`` are the steps before a resume."""
    recipe, setup = session.recipe, session.place
    parameters = count_parameters(recipe.model, recipe.objective).total
    device = [str(setup.device), recipe.train.precision, count(recipe.train.threads, "thread")]
    if setup.world.size > 1:
        device.append(count(setup.world.size, "process"))
    if recipe.train.replicas > 1:
        device.append(count(recipe.train.replicas, "replica"))
    if recipe.train.kernels == "compiled":
        device.append("compiled kernels")
    steps, left = recipe.train.steps, recipe.train.steps - done
    epoch_tokens = family_of(recipe.objective).epoch_tokens(recipe, session.data.train)
    epochs = steps * recipe.train.batch_sequences * recipe.data.context / max(1, epoch_tokens)
    length = f"{count(steps, 'step')}, {count(epochs, 'epoch', '.3g')}"
    step_s = recall_run_pace(recipe, setup)
    expected = "known after the first steps"
    if step_s is not None:
        expected = f"about {format_seconds(left * step_s)}, as a run of this size took before"
    elif recipe.train.minutes is not None:
        expected = f"about {format_seconds(60 * left / steps * recipe.train.minutes)}"
    rows = [
        *text_rows(recipe, session.data),
        ("model", f"{recipe.model.kind}, {count(parameters, 'parameter')}"),
        ("device", ", ".join(device)),
        ("batch", _batch(session)),
        ("length", f"{length}; resumes at step {done:,}" if done else length),
        ("folder", str(folder)),
        ("expected", expected),
    ]
    return lay_out(rows)


def text_rows(recipe: Recipe, data: Data) -> list[tuple[str, str]]:
    """Return the rows of a header on a text: its size, its splits, its tokenizer."""
    unit, languages = "document", ""
    if recipe.data.is_parallel:
        unit, languages = "pair", f"{recipe.data.source_language} to {recipe.data.target_language}"
    elif recipe.data.tasks is not None:
        unit = "example"
    splits, train = data.splits(), data.train
    divided = [split for split in splits if split.sources == train.sources]
    # A single document has bytes in every split.
    n_whole = len(train.document_starts) if train.is_cut else _n_documents(divided)
    rows = [("text", _size(divided, n_whole, unit, languages))]
    if divided == splits or len(divided) > 1:
        rows.append(("split", _parts(divided, unit)))
    others = [split for split in splits if split not in divided]
    of_others = [
        (_NAMES[split.name], _size([split], _n_documents([split]), unit)) for split in others
    ]
    small = describe_small_test(data)
    small_rows = [("", small)] if small else []
    rows += [*of_others, *small_rows] if data.test in others else [*small_rows, *of_others]
    for name, text in data.watched.items():
        source = as_typed(watched_texts(recipe.data.watch)[name])
        sizes = f"{count(_n_documents([text]), 'document')}, {count(text.store.n_bytes, 'byte')}"
        rows.append(("watched", f"{source} as {name}: {sizes}"))
    kind = data.tokenizer.kind
    if isinstance(data.tokenizer, BilingualTokenizer):
        kind = f"{data.tokenizer.vocabulary.kind} of both languages"
    return [*rows, ("tokenizer", f"{kind}, {count(data.tokenizer.vocab_size, 'id')}")]


def lay_out(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Lay out names and values in two columns, within the width of a narrow terminal."""
    lines = []
    for name, value in rows:
        lines += textwrap.wrap(
            value,
            _WIDTH,
            initial_indent=f"{name:<{_LABEL}}",
            subsequent_indent=" " * _LABEL,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _size(splits: Sequence[Split], n_documents: int, unit: str, languages: str = "") -> str:
    """Name the source of splits, and their total size."""
    n_bytes = sum(split.store.n_bytes for split in splits)
    size = count(n_bytes, "byte")
    if unit == "example":
        size = count(sum(len(split.ids) for split in splits), "token")
    sources = splits[0].sources
    named = ", ".join(map(as_typed, sources[:_MOST_SOURCES]))
    if len(sources) > _MOST_SOURCES:
        named += f" and {len(sources) - _MOST_SOURCES} more"
    parts = [count(n_documents, unit), languages, size]
    return f"{named}: {', '.join(filter(None, parts))}"


def _parts(splits: Sequence[Split], unit: str) -> str:
    """Describe each split's share of a text, and its use."""
    sizes = [len(split.document_starts) for split in splits]
    if splits[0].is_cut:
        sizes, unit = [split.store.n_bytes for split in splits], "byte"
    parts = " / ".join(f"{size:,}" for size in sizes)
    plural = "" if sizes == [1] else "s"
    *others, last = [{"valid": "validate"}.get(split.name, split.name) for split in splits]
    uses = f"{', '.join(others)} and {last}" if others else last
    return f"{parts} {unit}{plural} to {uses} on"


def _n_documents(splits: Sequence[Split]) -> int:
    return sum(len(split.document_starts) for split in splits)


def _batch(session: Session) -> str:
    recipe, train, batches = session.recipe, session.recipe.train, session.train_step.batches
    context, n_rows = recipe.data.context, train.batch_sequences
    begins = f"{n_rows * context:,} tokens a step"
    if isinstance(batches, ExampleBatches) and batches.rule.fills_rows:
        first = count(len(batches.chosen(0)), "example")
        return f"{begins}: {count(n_rows, 'row')} of {context:,}, {first} in the first"
    if recipe.data.tasks is not None:
        return f"{count(n_rows, 'example')} a step, of up to {context:,} tokens each"
    if fills_steps(recipe):
        n_tokens = train.batch_tokens or n_rows * context
        return f"{n_tokens:,} tokens a step, in pairs of similar length up to {context:,} tokens"
    micro = min(train.micro_batch_sequences, n_rows)
    return f"{begins}: {count(n_rows, 'sequence')} of {context:,}, {micro:,} at a time"


def describe_run(
    run: Path, session: Session, state: LoopState, peak_memory_bytes: int | None
) -> dict[str, Any]:
    """Build the record of a finished run, as ``record.json`` keeps it.

    ``valid`` is the training evaluation of the run's model, the best or the last, with scores of
    watched texts, such as ``squad/mlm_accuracy``. ``tokens_per_s`` counts only optimizer steps,
    ``seconds`` also evaluations and checkpoints; ``date`` is the end. Memory is in bytes, without
    the process's before the run. ``stopped_early`` is present if patience ended it before its last
    step. ``minutes`` are the used ones of a recipe's minutes, if any; ``lengthened`` the steps of
    its extensions. ``plan`` has, for a run of a comparison, the hash of its sealed plan and the
    checksum of the code.
    """
    recipe, data = session.recipe, session.data
    began, train = read_began(run), recipe.train
    more: dict[str, Any] = {}
    if state.task_bests:
        more["task_bests"] = state.task_bests
    if session.probes:
        more["probes"] = {
            read.probe.name: {
                "title": read.probe.title,
                "examples": len(read.items.examples),
                "chance": read.probe.chance,
                "chance_error": read.probe.chance_error(len(read.items.examples)),
                "reference": read.probe.reference,
            }
            for read in session.probes
        }
    minutes: dict[str, Any] | None = None
    if train.minutes is not None:
        used = round(state.seconds / 60, 4)
        note = describe_use(train.minutes, state.seconds)
        minutes = {"asked": train.minutes, "used": used, "note": note}
        if replanned := read_replanned(run / RECIPE):
            minutes["replanned"] = [change.model_dump(exclude={"by"}) for change in replanned]
    plan: dict[str, Any] = {}
    if began is not None and began.plan is not None:
        plan = {"plan": {"hash": began.plan.get("hash"), "code": code_sha256()}}
    return {
        "run": str(run.absolute()),
        "title": recipe.title,
        "step": state.step,
        "tokens": state.tokens,
        "tokens_per_s": round(state.tokens / state.step_seconds, 1),
        "valid": state.best,
        **more,
        "seconds": round(state.seconds, 3),
        "lengthened": [
            change.model_dump(exclude={"by"}) for change in read_lengthenings(run / RECIPE)
        ],
        **({"stopped_early": True} if state.has_stopped else {}),
        "minutes": minutes,
        "peak_memory_bytes": peak_memory_bytes,
        "parameters": asdict(count_parameters(recipe.model, recipe.objective)),
        "flops_per_token": training_flops(recipe, recipe.model),
        "precision": train.precision,
        "threads": train.threads,
        "processes": session.place.world.size,
        "machine": describe_machine(session.place.device),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {name: version(name) for name in _LIBRARIES},
        "commit": commit(),
        **plan,
        "data": {
            "tokenizer": data.tokenizer.kind,
            "vocab_size": data.tokenizer.vocab_size,
            "checksums": dict(data.checksums),
            **data.sizes(),
            "watched": {name: split.sizes() for name, split in data.watched.items()},
        },
    }


@cache
def code_sha256() -> str:
    """Return the SHA-256 over path and content of the package's Python files, in order.

    Computed once per process, in some 0.03 s.
    """
    package = Path(__file__).parents[1]
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py"), key=lambda file: file.relative_to(package).parts):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(package).as_posix()} {content}\n".encode())
    return total.hexdigest()


def commit() -> str | None:
    """Return the commit of the running source; None outside a checkout of it.

    As ``git describe`` writes it, with ``-dirty`` where tracked files were changed since.
    """
    source = Path(__file__)

    def git(*words: str) -> str:
        command = ["git", "-C", str(source.parent), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
        return done.stdout.strip()

    try:
        # An installed package may lie inside another checkout.
        git("ls-files", "--error-unmatch", source.name)
        return git("describe", "--always", "--dirty", "--abbrev=12") or None
    except (OSError, subprocess.SubprocessError):
        return None
