"""A run: recipe -> model, data, objective -> loop -> evaluation -> record. Read this file first."""

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch

from sublayer.config.load import LoadedRecipe, absolute_paths
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import check_shares, derived_fields
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.data.tasks.batches import ExampleBatches
from sublayer.errors import ConfigError
from sublayer.model.model_folder import describe_model
from sublayer.objective.family import Family, family_of
from sublayer.runs.folder import INPUTS, RECIPE, RunFolder, check_start
from sublayer.runs.record import describe_run, list_header
from sublayer.runs.resume import (
    add_replanned,
    check_inputs,
    earlier_ends,
    is_cut_off,
    keep_inputs,
    lengthen,
    list_inputs,
    read_replanned,
    trained_tokenizer,
)
from sublayer.runs.session import (
    PACE_LIVES_S,
    Place,
    Session,
    assemble,
    keep_run_pace,
    prepare_data,
    provisional_steps,
    resolve,
    resolve_run,
)
from sublayer.system.machine import PeakMemory, choose_device
from sublayer.system.stages import say_nothing, stage
from sublayer.tasks.registry import spec_files
from sublayer.training.checkpoints import LoopState, Snapshots
from sublayer.training.log import Progress, ShownProgress, SilentProgress
from sublayer.training.loop import Evaluate, Loop, MinutesPlan, PaceChanged, Replanned
from sublayer.training.speed import Pace, median_step
from sublayer.training.warm_start import StartModel
from sublayer.training.world import World, check_agreement, check_same, join_world, naming_lost


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
    chosen = choose_device(device)
    world = join_world(chosen, 60.0 * loaded.recipe.train.hang_minutes)
    check_shares(loaded.recipe, world.size, is_gpu=chosen.type != "cpu")
    setup = Place(chosen, world)
    folder = RunFolder(out)
    shown = progress or (ShownProgress() if world.is_main else SilentProgress())
    with naming_lost(f"what {out} has as a checkpoint is kept"), ExitStack() as stack:
        world.by_first(lambda: stack.enter_context(folder.held()))
        check_agreement(world, loaded.recipe, out)
        if not resume:
            folder.check_free()
        world.wait()
        record = folder.record()
        given = absolute_paths(loaded.recipe)
        if record is not None and not is_cut_off(folder, given, record):
            folder.check_recipe(given, lambda: _shape(given, data))
            if data is not None:  # the caller scores the run's model on them
                for note in check_inputs(folder.path, given, folder.recipe(), data, None):
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
    given, world = absolute_paths(loaded.recipe), setup.world
    pretrained = StartModel(given.init)
    say = shown.note if world.is_main else say_nothing
    # Checked before the first process can write it, so that all agree.
    is_new = is_again or not folder.has_recipe()
    tokenizer = None if is_new else trained_tokenizer(folder.path, given)

    def prepare_first() -> None:
        nonlocal data
        if not is_again:
            folder.check_recipe(given, lambda: _shape(given, data, pretrained))
            folder.check_model()
        data = data or prepare_data(given, pretrained, tokenizer)
        if is_new:
            return
        resolved = folder.recipe()
        for note in check_inputs(folder.path, given, resolved, data, pretrained):
            shown.warn(note)
        if not os.path.lexists(folder.path / INPUTS):
            keep_inputs(folder.path, resolved, list_inputs(given, data, pretrained))

    world.by_first(prepare_first, long="the text is prepared")
    # The other processes open the data that the first has stored.
    known = data or prepare_data(given, pretrained, tokenizer)
    checksums = json.dumps(known.checksums, sort_keys=True)
    check_same(world, checksums, "another text", "give all nodes the same files")
    pace = None
    if is_new:
        for note in () if is_again else loaded.notes:
            shown.warn(note)
        oldest_s = -1.0 if is_again else PACE_LIVES_S
        recipe, pace = resolve_run(
            given, known, setup, oldest_s=oldest_s, say=say, pretrained=pretrained
        )

        def begin() -> None:
            inputs = list_inputs(given, known, pretrained)
            folder.write_recipe(recipe, derived_fields(given, recipe))
            keep_inputs(folder.path, recipe, inputs, plan)

        world.by_first(begin)
    else:
        world.by_first(lambda: lengthen(folder, given, known, say))
    if not (is_new and world.is_main):
        # Other processes may have other measurements than the first.
        recipe = folder.recipe()
    torch.set_num_threads(recipe.train.threads)
    with stage("building the model"):
        return assemble(recipe, known, setup, pretrained), pace


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

    def keep(change: Replanned) -> None:
        if is_main:
            add_replanned(folder, change)

    path = folder.path / RECIPE
    ends = earlier_ends(path)
    snapshots = Snapshots(folder.path, session.train_step, describe, earlier_ends=ends)
    with progress:
        checkpoint = snapshots.newest(note)
        name = "" if checkpoint is None else checkpoint.name
        remedy = "give a folder that all nodes see alike, then --resume"
        check_same(world, name, "another newest checkpoint", remedy)
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
                    f"{count(state.step, 'step')}, of other examples than its train.batch_tokens "
                    "gives now, which fills rows: start a new run from its weights with "
                    f"init.run={folder.path}"
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
