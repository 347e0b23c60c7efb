"""A session: a recipe's data, its resolved settings, its model in training, and its evaluation."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sublayer.config.data import HUB, WATCHED, DataConfig, source_names
from sublayer.config.load import dump_recipe
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.config.resolve import (
    Length,
    check_shares,
    evaluation_effort,
    length_in,
    resolve_model,
    resolve_optimizer,
    resolve_train,
    run_steps,
    run_threads,
)
from sublayer.config.rules import is_idle
from sublayer.config.train import PREFIX, probe_folders
from sublayer.data.prepare import Data, describe_marks
from sublayer.data.store import Split
from sublayer.data.tasks.batches import ExampleBatches, TaskSplit, of_tasks
from sublayer.data.text.files import describe_files, list_files_left_out
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.translation_batches import side_lengths
from sublayer.errors import ConfigError
from sublayer.estimate.cluster import check_training
from sublayer.estimate.memory import training_flops
from sublayer.evaluation.probes import ReadProbe, ask, check_model, read_probes
from sublayer.model.estimates import DeviceKind
from sublayer.model.kernels.compiled import compiled_activation, find_compiler
from sublayer.model.kernels.elementwise import tanh_gelu
from sublayer.model.parameters import zero_padding
from sublayer.model.transformer import build, compose
from sublayer.numbers import count
from sublayer.objective.base import Scores, family_of
from sublayer.system.machine import allocate_for_training, cores
from sublayer.system.terminal import Say, say_nothing, stage
from sublayer.text_model import TextModel
from sublayer.training.speed import (
    Pace,
    fastest_precision,
    keep,
    median_step,
    product_speed,
    recall,
    timed,
)
from sublayer.training.step import TrainStep, begins_divided
from sublayer.training.warm_start import StartModel, freeze
from sublayer.training.world import World

_UNKNOWN_SHARE = 1e-3
"""Share of unknown tokens in the train split that cannot be rare characters alone."""
_CHUNK = 1 << 24
_MOST_NAMED = 3
"""Most files of a folder named in a warning."""


def _files(data: DataConfig) -> Iterator[str]:
    """Warn of files that are left out, not in UTF-8, or of JSON, naming the first."""
    if data.is_parallel or data.tasks is not None:
        # Their readers count the omitted rows.
        return
    has_parquet = data.documents in (None, "json")
    is_as_it_is = data.documents is None and data.corpus is None
    others = []
    for entry in (*source_names(data.path), data.valid_path, data.test_path):
        if entry is None or entry in WATCHED or entry.startswith(HUB):
            continue
        left_out = list_files_left_out(entry, has_parquet=has_parquet)
        if left_out:
            first = ", ".join(path.name for path in left_out[:_MOST_NAMED])
            more = f" and {len(left_out) - _MOST_NAMED:,} more" if left_out[_MOST_NAMED:] else ""
            yield f"left out of {entry}, as they hold no text: {first}{more}"
        others += describe_files(entry, seeks_records=is_as_it_is)
    yield from others


def _tasks(data: Data) -> Iterator[str]:
    """Describe omitted rows of tasks, and parts scored in place of a published set."""
    notes: list[str] = []
    for split in data.splits():
        if not isinstance(split, TaskSplit):
            return
        for part in split.parts:
            notes += [f"{part.task.title}, {part.published}: {note}" for note in part.notes]
    # One split has parts for training and for selection.
    yield from dict.fromkeys(notes)
    trained = {part.task.name: part.published for part in of_tasks(data.train).parts}
    for part in of_tasks(data.test or data.train).parts:
        if part.published == trained[part.task.name]:
            missing = "development set" if part.published == "train" else "training part"
            yield (
                f"{part.task.title} has no {missing}: {count(len(part.encoded), 'row')} of "
                f"{part.published} are held out of training and scored at the end"
            )
        elif part.published.startswith("test") and part.task.dev_splits:
            yield f"{part.task.title} is scored on {part.published}, the published test set"


@dataclass(frozen=True)
class Place:
    """The device and the processes of a run."""

    device: torch.device
    world: World
    """The group of training processes that includes this one."""
    trains: bool = True
    """True: train here, so that it must fit; False: only plan."""


@dataclass(frozen=True)
class Session:
    """A resolved recipe with its data, its model in training, and its evaluation on the way."""

    recipe: ResolvedRecipe
    data: Data
    place: Place
    train_step: TrainStep
    text_model: TextModel
    """The model in training, with its tokenizer and its task."""
    start_notes: tuple[str, ...] = ()
    """Notes on newly initialized parts of a model that starts from another, with reasons."""
    probes: tuple[ReadProbe, ...] = ()
    """Probes scored in every evaluation."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics of ``evaluate``, the loss first if there is one."""
        scored = self.recipe.objective.evaluations(self.recipe.data)
        return (
            *(() if self.data.valid is None else scored),
            *(f"{text}/{name}" for text in self.data.watched for name in scored),
            *(f"{PREFIX}/{read.probe.name}" for read in self.probes),
        )

    @property
    def task_scores(self) -> tuple[str, ...]:
        """Names of the scores of each task of a mixture; empty elsewhere."""
        if self.recipe.objective.text != "tasks":
            return ()
        return tuple(name for name in self.metrics if name.endswith("/score"))

    def notes(self) -> Iterator[str]:
        """Yield unexpected facts about the text and the settings, such as documents left out."""
        recipe, data, batches = self.recipe, self.data, self.train_step.batches
        yield from _files(recipe.data)
        yield from _tasks(data)
        asked_size, n_ids = recipe.data.vocab_size, data.tokenizer.vocab_size
        if recipe.init.run is None and asked_size is not None and n_ids < asked_size:
            yield (
                f"data.vocab_size = {asked_size}, but the training text yields a vocabulary of "
                f"only {n_ids:,} tokens"
            )
        for name, sizes in data.sizes().items():
            n = sizes.get("empty_documents")
            if n and recipe.data.is_parallel:
                left_out = count(n, "pair")
                yield f"the loss of the {name} split leaves out {left_out} with an empty side"
            elif n:
                yield f"the {name} split leaves out {count(n, 'document')} without text"
        if recipe.data.is_parallel and data.tokenizer.unk_id is not None:
            # A foreign vocabulary may lack more of a text than rare characters. The comparison
            # takes a byte per id: chunks keep it small.
            ids, unk_id = data.train.ids, data.tokenizer.unk_id
            chunks = (ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK))
            n_unknown = sum(int(np.count_nonzero(chunk == unk_id)) for chunk in chunks)
            if n_unknown > _UNKNOWN_SHARE * len(ids):
                yield (
                    f"{n_unknown:,} of {len(ids):,} tokens of the train split are unknown to "
                    "data.tokenizer"
                )
        marks: Counter[str] = Counter()
        for split in data.splits():
            marks.update(split.store.marks)
        if marks:
            yield describe_marks("the text", marks, data.tokenizer, trains=True)
        yield from batches.notes()
        for split in data.splits()[1:]:
            if isinstance(batches, ExampleBatches):
                yield from of_tasks(split).describe_cuts(batches.rule)
            elif recipe.data.is_parallel:
                n_long = int((side_lengths(split).max(1) > recipe.data.context).sum())
                if n_long:
                    yield (
                        f"the loss of the {split.name} split leaves out {count(n_long, 'pair')}, "
                        "longer than data.context"
                    )
        shard, n_processes = recipe.train.shard, self.place.world.size
        if shard != "none" and n_processes == 1:
            yield f"train.shard = {shard} has no effect on a single process"
        optimizer, steps = recipe.optimizer, recipe.train.steps
        warmup = optimizer.warmup_steps or 0
        if 2 * warmup > steps and optimizer.warmup != "constant":
            yield (
                f"the warm-up takes {warmup:,} of the run's {count(steps, 'step')}: "
                "optimizer.warmup_share=0.1 makes it a tenth of the run"
            )

    def evaluate(self) -> Scores:
        """Score the validation split as training does: a part of it, in the training precision.

        Watched texts are scored, too, with their names as prefix. All processes enter, and share
        the work.
        """
        scores: dict[str, Any] = {}
        texts = {f"{name}/": text for name, text in self.data.watched.items()}
        with self.train_step.parallel.whole_weights():
            for prefix, text in {"": self.data.valid, **texts}.items():
                if text is not None:
                    text_scores = self._score(text)
                    scores |= {f"{prefix}{name}": value for name, value in text_scores.items()}
            if self.probes:
                for score in ask(self.text_model, self.probes, self.recipe.data.context):
                    scores[f"{PREFIX}/{score.probe.name}"] = score.value
        return scores

    def describe_watched(self, scores: Scores) -> list[str]:
        """Describe the scores of each watched text, a line each."""
        return family_of(self.recipe.objective).describe_watched(scores)

    def _score(self, split: Split) -> Scores:
        recipe, setup = self.recipe, self.place
        is_low = recipe.train.precision == "bfloat16"
        with torch.autocast(setup.device.type, dtype=torch.bfloat16, enabled=is_low):
            return (
                family_of(recipe.objective)
                .score(self.text_model, split, recipe, "training", setup.world)
                .scores
            )


def prepare_data(
    recipe: Recipe, pretrained: StartModel | None = None, tokenizer: Tokenizer | None = None
) -> Data:
    """Prepare a recipe's data, with the tokenizer of its starting model, if any.

    ``pretrained`` is that model, if the caller continues to use it; ``tokenizer`` the one trained
    by the resumed run. Raises ConfigError, DataError and CheckpointError.
    """
    pretrained = pretrained or StartModel(recipe.init)
    data = family_of(recipe.objective).prepare(recipe, tokenizer or pretrained.tokenizer)
    if data.valid is None and recipe.train.best_by != "last":
        raise ConfigError(
            f"train.best_by = {recipe.train.best_by} needs a validation split, and there is none: "
            "give train.best_by = last"
        )
    family_of(recipe.objective).check_text(recipe, data.train)
    return data


def assemble(
    recipe: ResolvedRecipe, data: Data, setup: Place, pretrained: StartModel | None = None
) -> Session:
    """Build the model of a resolved recipe, its objective and its optimizer.

    ``pretrained`` is the starting model, if already read. On a CPU the process's memory allocator
    is set for training. Raises ConfigError if a step does not fit into memory, and CheckpointError
    if the starting weights do not fit.
    """
    pretrained = pretrained or StartModel(recipe.init)
    family = family_of(recipe.objective)
    family.check_scoring(recipe)
    check_place(recipe, setup)
    if setup.device.type == "cpu":
        allocate_for_training(
            recomputes=recipe.train.recompute != "none",
            is_divided=recipe.train.shard != "none" and setup.world.size > 1,
        )
    seed = recipe.train.seed
    is_divided = begins_divided(setup.world, recipe.train, recipe.init)
    # Weights drawn in parts have no values before sharding.
    building = torch.device("meta") if is_divided else nullcontext()
    with building:
        model = compose(recipe.model) if is_divided else build(recipe.model, seed=seed)
    if recipe.model.zero_padding:  # for sharded weights it only checks that there is padding
        zero_padding(model.embedding.weight, data.tokenizer.pad_id)
    text_model = TextModel(model, data.tokenizer, family.describe_task(recipe, data))
    notes = pretrained.copy_into(text_model)
    with building:
        objective = family.build(model, recipe.objective, seed, text_model.task)
    objective.pad_id = data.tokenizer.pad_id
    if not is_divided:
        objective = objective.to(setup.device)
    notes += pretrained.note_training_only(objective)
    notes += freeze(objective, recipe.init)
    batches = family.batches(recipe, data.train)
    train_step = TrainStep(recipe, objective, batches, device=setup.device, world=setup.world)
    folders = probe_folders(recipe.train.probes)
    if folders:
        check_model(text_model, "the model")
    probes = [read for name, folder in folders.items() for read in read_probes([name], folder)]
    return Session(recipe, data, setup, train_step, text_model, tuple(notes), tuple(probes))


def check_place(recipe: ResolvedRecipe, setup: Place) -> None:
    """Raise ConfigError if a step is too small for the processes, or too large for memory.

    The same holds for compiled kernels on a GPU, or without a compiler, and for replicas on a GPU,
    or in several processes.
    """
    check_shares(recipe, setup.world.size, is_gpu=setup.device.type != "cpu")
    if not setup.trains:
        return
    if recipe.train.kernels == "compiled":
        if setup.device.type != "cpu":
            raise ConfigError(
                f"train.kernels = compiled is for a CPU, not for {setup.device}: leave it out"
            )
        if find_compiler() is None:
            raise ConfigError(
                "train.kernels = compiled needs a C++ compiler, and there is none: install g++, or "
                "name one in the variable CXX"
            )
    is_one = setup.device.type == "cpu" and setup.world.size == 1
    if recipe.train.replicas > 1 and not is_one:
        raise ConfigError(
            f"train.replicas = {recipe.train.replicas} is for one process on a CPU: leave it out"
        )
    # Apple's GPU shares the machine's memory.
    kind: DeviceKind = "cuda" if setup.device.type == "cuda" else "cpu"
    check_training(recipe, device=kind, n_processes=setup.world.size)


_WORTH_COMPILING_S = {"bfloat16": 600.0, "float32": 1000.0}
"""Seconds of a run from which compiled kernels save twice the ten seconds of compiling: they save
over 3 % of a step in bfloat16, 2 % in float32 (benchmarks/README.md)."""
_FEW_OPERATIONS = 1e13
"""Floating-point operations that take any processor less time than these."""


def choose_kernels(
    recipe: ResolvedRecipe, setup: Place, pace: Pace | None, say: Say
) -> ResolvedRecipe:
    """Choose ``train.kernels`` of a new run, if open: compiled where that saves time.

    That is on a CPU, in one process, with a compiler, for a long run of the measured ``pace``, of
    a former one or, unknown, of the speed of products. A compiler that fails is reported.
    """
    train, context = recipe.train, recipe.data.context
    if train.kernels != "auto":
        return recipe
    operations = training_flops(recipe, recipe.model)
    operations *= train.steps * train.batch_sequences * context
    may_pay = setup.device.type == "cpu" and setup.world.size == 1 and operations > _FEW_OPERATIONS
    kernels = "eager"
    if may_pay and find_compiler() is not None and not is_idle("train.kernels", recipe):
        step_s = recall_run_pace(recipe, setup) if pace is None else pace.step_s
        if step_s is None:
            speed = product_speed(setup.device, train.precision, train.threads)
            step_s = operations / speed / train.steps
        if train.steps * step_s > _WORTH_COMPILING_S[train.precision]:
            try:
                with stage("trying the compiler"):
                    compiled_activation(tanh_gelu, getattr(torch, train.precision), False)
                kernels = "compiled"
            except ConfigError as error:
                say(f"kernels are not compiled: {error}")
    return recipe.model_copy(update={"train": train.model_copy(update={"kernels": kernels})})


PACE_LIVES_S = 7 * 86400.0
"""Maximum age of a reused pace, in seconds.

A run checks it with its first steps; a study does not.
"""
_PACE_SHARE = 0.03
"""Share of a run's minutes for measuring, within the bounds below."""
_LEAST_PACE_S, _MOST_PACE_S = 2.0, 20.0
_PROVISIONAL_STEPS = 1000


def find_pace(
    recipe: ResolvedRecipe, data: Data, setup: Place, pretrained: StartModel | None, oldest_s: float
) -> Pace:
    """Return the kept pace of this recipe, whatever its seed and minutes, or measure it.

    The recipe's length is provisional; ``pretrained`` is its starting model, if already read. A
    pace older than ``oldest_s`` is measured again; below 0, every pace. All processes enter, and
    return the same.
    """
    world = setup.world
    # The recipe without fields that do not affect step time.
    same_train = recipe.train.model_copy(update={"seed": 0, "minutes": 1.0})
    key = _key("pace", setup, dump_recipe(recipe.model_copy(update={"train": same_train})))
    # Only the first process looks, so that all measure or none.
    cached = recall(key, 2) if world.is_main else None
    figures = [math.nan] * 3 if cached is None else [*cached.values, time.time() - cached.at]
    pace = Pace(*world.share(figures))
    if 0 <= pace.age_s <= oldest_s and pace.step_s > 0:
        return pace
    with stage("measuring how long a step and an evaluation take"):
        session = assemble(recipe, data, setup, pretrained)
        share_s = _PACE_SHARE * 60.0 * (recipe.train.minutes or 0.0)
        budget_s = min(_MOST_PACE_S, max(_LEAST_PACE_S, share_s))

        # All processes take the number of steps that the first has time for.
        def agree(goes_on: bool) -> bool:
            (shared,) = world.share([float(goes_on)])
            return bool(shared)

        device, scored = setup.device, recipe.train.evaluate_tokens
        step_s = median_step(session.train_step, budget_s=budget_s, device=device, agree=agree)
        # Scoring takes about a third of training on as many tokens, in windows without overlap; if
        # that is long, fewer tokens will do.
        tokens_per_step = recipe.train.batch_sequences * recipe.data.context
        expected_s = step_s * scored * evaluation_effort(recipe) / (3 * tokens_per_step)
        fewer = max(1, int(scored * min(1.0, budget_s / expected_s)))
        brief_train = recipe.train.model_copy(update={"evaluate_tokens": fewer})
        brief = replace(session, recipe=recipe.model_copy(update={"train": brief_train}))
        evaluation_s = timed(brief.evaluate, device=device)
        if not recipe.objective.scores_whole_split:
            evaluation_s = evaluation_s * scored / fewer
    pace = Pace(*world.share([step_s, evaluation_s]))
    if world.is_main:
        keep(key, [pace.step_s, pace.evaluation_s])
    return pace


def keep_run_pace(recipe: ResolvedRecipe, setup: Place, step_s: float) -> None:
    """Keep the seconds per step of a finished run, other work included."""
    keep(_run_key(recipe, setup), [step_s])


def recall_run_pace(recipe: ResolvedRecipe, setup: Place) -> float | None:
    """Return the seconds per step of the last run of equal computation; None without one."""
    cached = recall(_run_key(recipe, setup), 1)
    return None if cached is None else cached.values[0]


def _run_key(recipe: ResolvedRecipe, setup: Place) -> str:
    """Return the key of a run's pace: the size of a step, not its data and weights."""
    train = recipe.train
    sizes = [
        recipe.model.model_dump_json(),
        recipe.objective.model_dump_json(),
        recipe.optimizer.kind,
        str(recipe.data.context),
        str((train.batch_sequences, train.micro_batch_sequences, train.precision)),
        str((train.threads, train.replicas, train.recompute, train.compile)),
    ]
    return _key("run", setup, "\n".join(sizes))


def _key(kind: str, setup: Place, text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{kind} on {setup.device}, {setup.world.size} processes: {digest}"


def resolve(
    unresolved: Recipe, data: Data, setup: Place, *, steps: int | None = None
) -> ResolvedRecipe:
    """Derive all unset fields of a recipe, as ``resolve_run`` does."""
    recipe, _ = resolve_run(unresolved, data, setup, steps=steps)
    return recipe


def resolve_run(
    unresolved: Recipe,
    data: Data,
    setup: Place,
    *,
    steps: int | None = None,
    oldest_s: float = PACE_LIVES_S,
    say: Say = say_nothing,
    pretrained: StartModel | None = None,
) -> tuple[ResolvedRecipe, Pace | None]:
    """Derive all unset fields of a recipe; ``steps`` replaces its length.

    Also return the pace that converted minutes to steps; None if the length needed no measurement.
    ``pretrained`` is the starting model, if the caller continues to use it. A pace measured up to
    ``oldest_s`` seconds ago is reused; a new measurement is reported. Raises ConfigError if
    settings contradict each other or the data.
    """
    train = unresolved.train
    world = setup.world
    if train.compile and setup.device.type == "cpu":
        raise ConfigError(
            "train.compile = true gains nothing on a CPU, and its first step takes 20 s there: "
            "leave it out"
        )
    if train.patience is not None and data.valid is None:
        raise ConfigError(
            f"train.patience = {train.patience} waits for a better evaluation, but data.split = "
            f"{unresolved.data.split} has no validation part: leave it out, or give another split"
        )
    threads = run_threads(train, cores() // world.size)
    torch.set_num_threads(threads)
    shaped = family_of(unresolved.objective).shape_model(unresolved, data)
    model = resolve_model(
        shaped, vocab_size=data.tokenizer.vocab_size, context=unresolved.data.context
    )
    precision = train.precision
    if precision == "auto":
        with stage("measuring which precision is faster"):
            precision = fastest_precision(setup.device, model.d_model)
    named = train.model_copy(update={"precision": precision, "threads": threads})
    fixed = unresolved.model_copy(update={"train": named})

    def at_length(length: Length) -> ResolvedRecipe:
        resolved = resolve_train(
            fixed,
            steps=length.steps,
            valid_tokens=None if data.valid is None else len(data.valid.ids),
            is_gpu=setup.device.type != "cpu",
            threads=threads,
            n_evaluations=length.n_evaluations,
            evaluate_tokens=length.evaluate_tokens,
            n_processes=world.size,
        )
        optimizer = resolve_optimizer(unresolved.optimizer, steps=length.steps)
        return fixed.resolved(model, resolved, optimizer)

    if steps is None:
        epoch_tokens = family_of(unresolved.objective).epoch_tokens(unresolved, data.train)
        steps = run_steps(unresolved, train_tokens=epoch_tokens)
        if steps is not None:
            train.check_keep_steps(steps)
    if steps is not None:
        recipe, pace = at_length(Length(steps)), None
    else:
        measured = at_length(Length(provisional_steps(unresolved)))
        pace = find_pace(measured, data, setup, pretrained, oldest_s)
        try:
            recipe = at_length(_length_in_minutes(unresolved, measured, pace))
        except ConfigError:
            if not pace.age_s:
                raise
            # No run is refused for an old measurement.
            pace = find_pace(measured, data, setup, pretrained, -1.0)
            recipe = at_length(_length_in_minutes(unresolved, measured, pace))
        say(pace.describe_length(train.minutes or 0.0, recipe.train.steps))
    check_place(recipe, setup)
    return recipe, pace


def provisional_steps(recipe: Recipe) -> int:
    """Return a length that fits the warm-up, to measure a recipe or resolve its other fields."""
    return max(_PROVISIONAL_STEPS, recipe.optimizer.warmup_steps or 0)


def _length_in_minutes(recipe: Recipe, measured: ResolvedRecipe, pace: Pace) -> Length:
    """Return the length that fits a recipe's minutes, at a pace."""
    train = recipe.train
    assert train.minutes is not None, "only minutes leave the steps to a measurement"
    is_fixed = train.evaluate_tokens is not None or recipe.objective.scores_whole_split
    length = length_in(
        train.minutes,
        pace.step_s,
        pace.evaluation_s,
        evaluate_steps=train.evaluate_steps,
        scored_tokens=None if is_fixed else measured.train.evaluate_tokens,
    )
    train.check_keep_steps(length.steps)
    return length
