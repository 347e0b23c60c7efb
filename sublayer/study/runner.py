"""A comparison from beginning to end: arms, budgets, runs, verdicts, report."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.data.prepare import Data
from sublayer.errors import ConfigError, DataError, TrainingError
from sublayer.objective.families import family_of
from sublayer.study.budget.budget import MatchedArm, match_budgets
from sublayer.study.budget.match import Rule
from sublayer.study.budget.shared_tokenizer import share_tokenizer
from sublayer.study.collect import collect_items, collect_results, scored_elsewhere
from sublayer.study.definition import DEFAULT_SEEDS, Overrides, Study, load_study
from sublayer.study.execution.arm_runs import run_arms
from sublayer.study.execution.jobs import check_jobs, shared_threads
from sublayer.study.execution.shares import describe_share
from sublayer.study.facts import StudyFacts
from sublayer.study.folder import Request, StudyFolder
from sublayer.study.items.file_header import STUDY_ITEMS
from sublayer.study.items.writing import write_study_items
from sublayer.study.metrics import study_metrics
from sublayer.study.report.caveats import explain_one_seed, list_caveats
from sublayer.study.report.html import write_report
from sublayer.study.results import (
    REPORT,
    RESULTS,
    Results,
    results_to_json,
    write_json,
)
from sublayer.study.tuning import make_trials
from sublayer.system.launch import n_launched
from sublayer.training.progress import SilentProgress


@dataclass(frozen=True)
class Options:
    """How to compare; None means the study's own, or the default.

    ``vary`` and ``tune`` are ``field=a,b`` texts.
    """

    vary: tuple[str, ...] = ()
    match: Rule | None = None
    seeds: int | None = None
    tune: tuple[str, ...] = ()
    scale: str | None = None
    out: Path | None = None
    device: str | None = None
    jobs: int = 1
    """Runs that are made at a time."""


def compare(
    source: str | Path,
    overrides: Overrides = (),
    *,
    vary: Sequence[str] = (),
    match: Rule | None = None,
    seeds: int | None = None,
    tune: Sequence[str] = (),
    out: str | Path | None = None,
    jobs: int = 1,
) -> dict[str, Any]:
    """Run a comparison of a study's arms, or a recipe's, and return what ``--json`` prints.

    ``vary`` and ``tune`` are texts such as ``"model.ffn=gelu,swiglu"``; ``match`` is parameters,
    flops, time or none; ``jobs`` runs are made at a time, each in a process of its own. Raises the
    errors of :mod:`sublayer.errors`.
    """
    folder = Path(out) if out is not None else None
    options = Options(tuple(vary), match, seeds, tuple(tune), out=folder, jobs=jobs)
    results, report = run_study(str(source), overrides, options)
    return results_to_json(results, report)


def run_study(source: str, overrides: Overrides, options: Options) -> tuple[Results, Path]:
    """Run a study, or what is missing of it, and return its results and the path of its report.

    Runs that fail are part of the results. Raises ConfigError and DataError before anything is
    trained, Interrupted in between, and TrainingError, the report written, where no arm is left
    with two seeds to compare, or with the one that was planned.
    """
    study = load_study(source, overrides, vary_texts=options.vary, scale=options.scale)
    rule = options.match or study.match
    n_seeds = options.seeds
    if n_seeds is None:
        n_seeds = study.n_seeds or DEFAULT_SEEDS
    _check(study, n_seeds)
    check_jobs(options.jobs, study.arms, rule)
    trials = make_trials(study.arms, options.tune)
    folder = _folder(options.out, study.name, Request(study.arms, rule, options.tune))
    folder.check()
    facts = StudyFacts(options.device)
    with folder.held():
        study = replace(study, arms=share_tokenizer(study.arms, facts.data, folder.path))
        data = {arm.name: facts.data(arm.loaded.recipe) for arm in study.arms}
        _check_pairs(study, data)
        n_runs = len(study.arms) * (len(trials) + n_seeds - 1)
        matched_arms = _settle(folder, study, rule, facts, data, options=options, n_runs=n_runs)
        runs = run_arms(
            folder,
            matched_arms,
            trials,
            data,
            n_seeds=n_seeds,
            device=options.device,
            jobs=options.jobs,
        )
        folder.add_report(n_seeds)
        command = _command(source, overrides, options)
        measures = facts.measures(len(runs))
        results = collect_results(study, rule, n_seeds, runs, measures, command=command)
        items, without_items = collect_items(runs)
        notes = list_caveats(
            folder.reported_seeds(),
            data,
            n_seeds=n_seeds,
            n_comparisons=len(results.differences),
            metric=results.metric,
            elsewhere=scored_elsewhere(items, results.baseline, results.metric),
            jobs=folder.jobs(),
        )
        if not results.has_verdicts:
            notes = (explain_one_seed(results, folder.reported_seeds()), *notes)
        results = replace(results, notes=(*study.caveats, *notes))
        report = folder.path / REPORT
        write_report(results, report)
        write_json(folder.path / RESULTS, results_to_json(results, report))
        if items:
            tables = family_of(study.arms[0].loaded.recipe.objective).tables()
            path = folder.path / STUDY_ITEMS
            write_study_items(path, study.name, items, tables, missing=without_items)
    _check_compared(results, report)
    return results, report


def _check_compared(results: Results, report: Path) -> None:
    differences = results.differences
    if results.has_verdicts:
        is_compared = any(difference.low is not None for difference in differences)
        needed = "two seeds that finished beside the baseline's"
    else:
        is_compared = any(difference.mean is not None for difference in differences)
        needed = "a seed that finished beside the baseline's"
    if not is_compared:
        raise TrainingError(f"no arm has {needed}: see {report}")


def _check(study: Study, n_seeds: int) -> None:
    study_metrics(study)
    if n_launched() > 1:
        raise ConfigError("compare runs in one process: start it without torchrun")
    if n_seeds < 1:
        raise ConfigError(f"--seeds {n_seeds} is too few to compare: give at least 1")
    if len(study.arms) < 2:
        raise ConfigError(
            f"{study.name} alone has nothing to be compared with: "
            "say what varies, --vary model.ffn=gelu,swiglu"
        )
    if study.arms[0].loaded.origins.get("train.seed") == "command line":
        raise ConfigError(
            "train.seed has no effect on a comparison: its seeds are 0 to N - 1, with --seeds N"
        )


def _check_pairs(study: Study, data: Mapping[str, Data]) -> None:
    if study.metric is None:
        return
    metric = study_metrics(study)[0]
    for arm in study.arms:
        test = data[arm.name].test
        if not metric.has_items(test):
            raise DataError(f"metric = {metric.name}: {metric.items}")


def _folder(out: Path | None, name: str, request: Request) -> StudyFolder:
    """Return the folder that is named, else the first of the study's that it may go on in."""
    if out is not None:
        return StudyFolder(out, request)
    runs = Path("runs")
    folder = StudyFolder(runs / name, request)
    number = 2
    while not folder.is_usable():
        folder = StudyFolder(runs / f"{name}-{number}", request)
        number += 1
    return folder


def _settle(
    folder: StudyFolder,
    study: Study,
    rule: Rule,
    facts: StudyFacts,
    data: Mapping[str, Data],
    *,
    options: Options,
    n_runs: int,
) -> list[MatchedArm]:
    """Return what the study settled for its arms when it began, or settle it now."""
    checksums = data[study.arms[0].name].checksums
    folder.check_text(checksums)
    settled = folder.matched_arms(study.arms)
    matched_arms = settled
    jobs = options.jobs
    if matched_arms is None:
        measures = facts.measures(len(study.arms), is_new=True)
        threads = shared_threads(min(jobs, n_runs)) if jobs > 1 else None
        matched_arms = match_budgets(study.arms, rule, measures, threads=threads)
    if jobs > 1:
        text = describe_share(
            matched_arms, data, n_runs=n_runs, jobs=jobs, device=options.device, folder=folder.path
        )
        SilentProgress().note(text)
    # Nothing is settled by what is refused.
    if settled is None:
        folder.begin(matched_arms, checksums)
    folder.add_jobs(jobs)
    return matched_arms


def _command(source: str, overrides: Overrides, options: Options) -> str:
    words = ["sublayer", "compare", source]
    if isinstance(overrides, Mapping):
        words += [f"{key}={value}" for key, value in overrides.items()]
    else:
        words += overrides
    for text in options.vary:
        words += ["--vary", text]
    for text in options.tune:
        words += ["--tune", text]
    single = {
        "--jobs": options.jobs if options.jobs > 1 else None,
        "--match": options.match,
        "--seeds": options.seeds,
        "--scale": options.scale,
        "--device": options.device,
    }
    for name, value in single.items():
        if value is not None:
            words += [name, str(value)]
    return shlex.join(words)
