"""A comparison from beginning to end: arms, budgets, runs, verdicts, report."""

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.config.layers import LoadedRecipe
from sublayer.config.paths import anchored
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError, DataError, TrainingError
from sublayer.evaluate.masked import has_pairs
from sublayer.machine import choose_device
from sublayer.run import measure_step
from sublayer.session import Place, epoch_tokens, prepare_data, resolve_run
from sublayer.study.budget import Measures, Settled, arm_model, arm_steps, settle
from sublayer.study.collect import collect_arm, collect_failures, describe_environment
from sublayer.study.definition import DEFAULT_SEEDS, Overrides, Scale, Study, load_study
from sublayer.study.execution import ArmRuns, run_arms
from sublayer.study.folder import Request, StudyFolder
from sublayer.study.match import Rule
from sublayer.study.metrics import PAIR_METRICS, study_metrics
from sublayer.study.notes import make_notes
from sublayer.study.one_tokenizer import with_one_tokenizer
from sublayer.study.report import write_report
from sublayer.study.results import REPORT, RESULTS, Further, Reproduction, Results, results_to_json, write_json
from sublayer.study.statistics import Difference, Metric, compare_arms
from sublayer.study.tuning import make_trials
from sublayer.train.distributed import World
from sublayer.train.progress import SilentProgress

_MEASURE_SECONDS = 30.0
_OLDEST_PACE_S = 600.0


@dataclass(frozen=True)
class Options:
    """How to compare; None is the study's own, or the default. ``vary`` and ``tune`` are ``field=a,b`` texts."""

    vary: tuple[str, ...] = ()
    match: Rule | None = None
    seeds: int | None = None
    tune: tuple[str, ...] = ()
    scale: Scale | None = None
    out: Path | None = None
    device: str | None = None


def compare(
    source: str | Path,
    overrides: Overrides = (),
    *,
    vary: Sequence[str] = (),
    match: Rule | None = None,
    seeds: int | None = None,
    tune: Sequence[str] = (),
    out: str | Path | None = None,
) -> dict[str, Any]:
    """Compare the arms of a study, or of a recipe and what varies, and return what ``sublayer compare --json`` prints.

    ``vary`` and ``tune`` are texts such as ``"model.ffn=gelu,swiglu"``; ``match`` is parameters, flops, time or none.
    Raises the errors of :mod:`sublayer.errors`.
    """
    folder = Path(out) if out is not None else None
    options = Options(tuple(vary), match, seeds, tuple(tune), out=folder)
    results, report = run_study(str(source), overrides, options)
    return results_to_json(results, report)


def run_study(source: str, overrides: Overrides, options: Options) -> tuple[Results, Path]:
    """Run a study, or what is missing of it, and return its results and the path of its report.

    Runs that fail are part of the results. Raises ConfigError and DataError before anything is trained, Interrupted in
    between, and TrainingError, the report written, where no arm is left with two seeds to compare.
    """
    study = load_study(source, overrides, vary_texts=options.vary, scale=options.scale)
    rule = options.match or study.match
    n_seeds = options.seeds if options.seeds is not None else study.n_seeds or DEFAULT_SEEDS
    _check(study, n_seeds)
    trials = make_trials(study.arms, options.tune)
    folder = _folder(options.out, study.name, Request(study.arms, rule, options.tune))
    folder.check()
    measures = _Measured(options.device)
    with folder.held():
        study = replace(study, arms=with_one_tokenizer(study.arms, measures.data, folder.path))
        data = {arm.name: measures.data(anchored(arm.loaded.recipe)) for arm in study.arms}
        _check_pairs(study, data)
        settled = _settle(folder, study, rule, measures, data[study.arms[0].name].checksums)
        runs = run_arms(folder, settled, trials, data, n_seeds=n_seeds, device=options.device)
        folder.add_report(n_seeds)
        command = _command(source, overrides, options)
        results = _results(study, rule, n_seeds, runs, measures, command=command)
        n_comparisons = len(results.differences)
        notes = make_notes(folder.reported_seeds(), data, n_seeds=n_seeds, n_comparisons=n_comparisons)
        results = replace(results, notes=(*study.caveats, *notes))
        report = folder.path / REPORT
        write_report(results, report)
        write_json(folder.path / RESULTS, results_to_json(results, report))
    if all(difference.low is None for difference in results.differences):
        raise TrainingError(f"no arm has two seeds that finished beside the baseline's: see {report}")
    return results, report


class _Measured:
    """What the study reads and measures, each text once."""

    def __init__(self, device: str | None) -> None:
        self._device = device
        self._data: dict[str, Data] = {}
        self._resolved: dict[str, Recipe] = {}

    def data(self, recipe: Recipe) -> Data:
        key = f"{recipe.data.model_dump_json()} {recipe.init.run}"
        if key not in self._data:
            self._data[key] = prepare_data(recipe)
        return self._data[key]

    def measures(self, n_arms: int, *, is_new: bool = False) -> Measures:
        chosen = choose_device(self._device)
        place = Place(chosen, World(rank=0, size=1))

        def step_s(loaded: LoadedRecipe) -> float:
            return measure_step(loaded, _MEASURE_SECONDS / n_arms, self._device)

        def resolve_once(recipe: Recipe) -> Recipe:
            key = recipe.model_dump_json()
            if key not in self._resolved:
                # Nothing checks a study's length later, so no pace of another day will do.
                oldest_s = _OLDEST_PACE_S if is_new else math.inf
                found = resolve_run(recipe, self.data(recipe), place, oldest_s=oldest_s, say=SilentProgress().note)
                self._resolved[key] = found.recipe
            return self._resolved[key]

        return Measures(
            vocab_size=lambda recipe: self.data(recipe).tokenizer.vocab_size,
            train_tokens=lambda recipe: epoch_tokens(recipe, self.data(recipe)),
            resolve=resolve_once,
            step_s=step_s,
        )


def _check(study: Study, n_seeds: int) -> None:
    study_metrics(study)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("compare runs in one process: start it without torchrun")
    if n_seeds < 2:
        raise ConfigError(f"--seeds {n_seeds} is too few to compare: an interval needs at least 2")
    if len(study.arms) < 2:
        raise ConfigError(
            f"{study.name} alone has nothing to be compared with: say what varies, --vary model.ffn=gelu,swiglu"
        )
    if study.arms[0].loaded.origins.get("train.seed") == "command line":
        raise ConfigError("train.seed has no effect on a comparison: its seeds are 0 to N - 1, with --seeds N")


def _check_pairs(study: Study, data: Mapping[str, Data]) -> None:
    if study.metric in PAIR_METRICS:
        for arm in study.arms:
            if not has_pairs(data[arm.name].test):
                raise DataError(f"metric = {study.metric}: no document of the test split has two sentences")


def _folder(out: Path | None, name: str, request: Request) -> StudyFolder:
    if out is not None:
        return StudyFolder(out, request)
    folder, number = StudyFolder(Path("runs") / name, request), 2
    while not folder.is_usable():
        folder, number = StudyFolder(Path("runs") / f"{name}-{number}", request), number + 1
    return folder


def _settle(
    folder: StudyFolder, study: Study, rule: Rule, measured: _Measured, checksums: Mapping[str, str]
) -> list[Settled]:
    folder.check_text(checksums)
    settled = folder.settled(study.arms)
    if settled is None:
        settled = settle(study.arms, rule, measured.measures(len(study.arms), is_new=True))
        folder.begin(settled, checksums)
    return settled


def _results(
    study: Study, rule: Rule, n_seeds: int, runs: Sequence[ArmRuns], measured: _Measured, *, command: str
) -> Results:  # fmt: skip
    measures, metrics = measured.measures(len(runs)), study_metrics(study)
    arms = tuple(
        collect_arm(
            each, arm_model(each.settled.loaded, measures), metrics, steps=arm_steps(each.settled.loaded, measures)
        )
        for each in runs
    )
    baseline = arms[0].name
    values = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in arms}

    def differences(metric: Metric, values: Mapping[str, Mapping[int, float]]) -> tuple[Difference, ...]:
        return tuple(compare_arms(baseline, values, metric, planned_seeds=n_seeds, against=study.against))

    return Results(
        name=study.name,
        title=study.title,
        metric=metrics[0],
        split="test",
        match=rule,
        baseline=baseline,
        n_seeds=n_seeds,
        arms=arms,
        differences=differences(metrics[0], values),
        failures=collect_failures(runs),
        reproduction=Reproduction(command, *describe_environment(runs)),
        further=tuple(
            Further(metric, differences(metric, {arm.name: arm.further[metric.name] for arm in arms}))
            for metric in metrics[1:]
            if any(arm.further[metric.name] for arm in arms)
        ),
    )


def _command(source: str, overrides: Overrides, options: Options) -> str:
    words = ["sublayer", "compare", source]
    words += [f"{key}={value}" for key, value in overrides.items()] if isinstance(overrides, Mapping) else overrides
    words += [word for text in options.vary for word in ("--vary", text)]
    words += [word for text in options.tune for word in ("--tune", text)]
    for name, value in (
        ("match", options.match),
        ("seeds", options.seeds),
        ("scale", options.scale),
        ("device", options.device),
    ):
        words += [f"--{name}", str(value)] if value is not None else []
    return shlex.join(words)
