"""Verification of a study: its results must follow from its sealed plan and its runs' items."""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.config.layers import RUN_RECIPE
from sublayer.config.load import read_derived, recipe_of
from sublayer.config.recipe import HEADINGS, Recipe
from sublayer.config.train import LENGTHS
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.evaluation.items import ITEMS, items_file, read_items
from sublayer.files.checkpoints import RECORD, read_record
from sublayer.files.parsing import parse_toml, read_json_object, read_toml
from sublayer.numbers import count
from sublayer.objective.base import family_of
from sublayer.reporting.files import results_to_json
from sublayer.reporting.listing import comparison_row
from sublayer.runs.folder import INPUTS, SCORES, RunFolder
from sublayer.runs.resume import read_began
from sublayer.runs.run import code_sha256
from sublayer.study.arms import NO_TRIAL, PRETRAINING, planned_trials
from sublayer.study.collect import results_of_folder
from sublayer.study.finished import RUNS
from sublayer.study.folder import arm_folder
from sublayer.study.jobs.run import SCORED, read_outcome, read_test
from sublayer.study.plan_file import (
    ADDED,
    PARTS,
    PLAN,
    Seal,
    StudyPlan,
    describe_strangers,
    group_strangers,
    kept_seal,
    list_additions,
    list_alterations,
    read_plan,
    run_folders,
    sealing_of,
)
from sublayer.study.results import REPORT, RESULTS, SHOWN_DIGITS, shown_date
from sublayer.study.runs import asked_arms, finder_of_chain
from sublayer.study.stage_recipes import ChainPlan, read_chain_file
from sublayer.values import show

_TOLERANCE = 1e-6
"""Relative tolerance of recomputed numbers."""
_NOT_JUDGED = ("report", "notes", "reproduction", "plan")
"""Keys of ``results.json`` about the machine and the command."""
_SHOWN_CHANGES = 3
_LONGEST_VALUE = 60
_FIRST = ("verdict", "mean", "low", "high", "values")
"""Fields of an entry with changes to name first."""


@dataclass(frozen=True)
class Deviation:
    """A part of a study's folder that contradicts the rest."""

    kind: str
    """Such as ``margin altered``."""
    where: str
    """The file or folder, relative to the study's."""
    what: str


@dataclass(frozen=True)
class Verification:
    """The verification of a study, as printed by ``report --verify --json``."""

    folder: str
    follows: bool
    """True if results follow from plan and items: no deviation."""
    sealed: str | None
    """The date of the first seal."""
    hash: str | None
    additions: tuple[str, ...]
    runs: int
    """Runs begun, tuning runs included."""
    values: int
    """Scores recomputed from items."""
    judged_by_other_code: str | None
    """Version and checksum of the code that judged the results, if not this one."""
    deviations: tuple[Deviation, ...]


@dataclass(frozen=True)
class _Planned:
    """A run of the plan."""

    arm: str
    is_compared: bool = True
    recipe: Mapping[str, Any] | None = None
    """Its settings, by table and field; None if they follow from other runs."""
    reads_texts: bool = True
    """True if it is trained on the arm's texts."""


def verify_study(folder: Path) -> Verification:
    """Verify the plan, the runs, the results and the report of a study against each other.

    No text is read. Raises ConfigError if the folder holds no study, if the study has not ended, or
    if its plan is damaged.
    """
    if not (folder / PLAN).is_file():
        text = f"{folder} holds no comparison: see sublayer runs"
        if (folder / RUN_RECIPE).is_file():
            text = f"{folder} is a run: name the folder of its comparison"
        if (folder / RUNS).is_file():
            text = f"{folder} compares runs that existed before it, so it has no plan to verify"
        raise ConfigError(text)
    plan = read_plan(folder)
    chain_plan = None if plan.asked.stages is None else read_chain_file(folder, plan)
    seals = plan.seals or []
    paths = {path: str(path.relative_to(folder)) for path in run_folders(folder)}
    planned = _planned_runs(folder, plan, chain_plan, seals)
    try:
        results = read_json_object(folder / RESULTS, CheckpointError)
    except FileNotFoundError:
        results = None
    # Recorded seeds may have been added to the plan since the results were written.
    n_sealed = len(seals[-1].plan.get("seeds", ())) if seals and not plan.asked.looks else 0
    if results is None or n_sealed > max(
        [results.get("planned_seeds", n_sealed), *plan.reported_seeds]
    ):
        row = comparison_row(folder)
        command = row.resume or plan.command or "sublayer compare --resume"
        on = "it is running now" if row.state == "running" else f"resume it with {command}"
        n_runs = count(row.planned or 0, "planned run")
        raise ConfigError(
            f"{folder} has not ended, with {row.finished or 0} of {n_runs}: {on}; then verify it"
        )
    stage_texts = None if chain_plan is None else chain_plan.stage_texts
    deviations = []
    if seals:  # changes of the plan without a seal, or sealed after the first run
        content = read_toml(folder / PLAN, ConfigError)
        for part, text in list_alterations(content, seals, stage_texts):
            deviations.append(Deviation(f"{PARTS.get(part, part) or 'seal'} altered", PLAN, text))
        for part, text in list_additions(seals):
            if part not in ADDED:
                kind = f"{PARTS.get(part, part)} changed after the first run"
                deviations.append(Deviation(kind, PLAN, text))
    deviations += _of_seals(paths, seals)
    deviations += _of_number(folder, plan, seals, paths, planned, results)
    n_values = 0
    for path, where in paths.items():
        try:
            deviations += _of_run(path, where, planned.get(path), seals)
            n_computed, altered = _of_items(path, where)
        except (CheckpointError, ConfigError, DataError, OSError) as error:
            deviations.append(Deviation("run altered", where, str(error)))
            continue
        n_values += n_computed
        deviations += altered
    # Judged again from the runs.
    try:
        again = results_of_folder(folder)
        rejudged = results_to_json(again, folder / REPORT)
    except (CheckpointError, ConfigError, DataError) as error:
        text = f"they cannot be judged again: {error}"
        deviations.append(Deviation("results altered", RESULTS, text))
    else:
        rejudged = {key: value for key, value in rejudged.items() if key not in _NOT_JUDGED}
        changes = _differing(results, rejudged)
        for _, of_entry in itertools.groupby(changes, lambda change: change[0][0]):
            texts = [
                f"{'.'.join(place)} {_short(old)}, judged again {_short(new)}"
                for place, old, new in of_entry
            ]
            more = len(texts) - _SHOWN_CHANGES
            text = "; ".join(texts[:_SHOWN_CHANGES]) + (f"; and {more} more" if more > 0 else "")
            deviations.append(Deviation("results altered", RESULTS, text))
        noted = (results.get("plan") or {}).get("hash", "")
        sealed = "" if again.sealing is None else again.sealing.hash
        if noted != sealed:
            named = noted[:SHOWN_DIGITS] or "none"
            text = f"made under plan {named}, and the plan is {sealed[:SHOWN_DIGITS] or 'none'}"
            deviations.append(Deviation("results of another plan", RESULTS, text))
    sealing = sealing_of(folder, stage_texts)
    shown = sealing.hash[:SHOWN_DIGITS]
    report = folder / REPORT
    if shown and report.is_file() and shown not in report.read_text("utf-8", errors="replace"):
        text = f"it does not name the plan {shown}: write the report again"
        deviations.append(Deviation("report of another plan", REPORT, text))
    code = seals[-1].plan.get("code", {}) if seals else {}
    other_code = f"{code.get('version')} ({str(code.get('sha256'))[:SHOWN_DIGITS]})"
    return Verification(
        folder=str(folder),
        follows=not deviations,
        sealed=sealing.date or None,
        hash=sealing.hash or None,
        additions=sealing.additions,
        runs=len(paths),
        values=n_values,
        judged_by_other_code=(other_code if code and code.get("sha256") != code_sha256() else None),
        deviations=tuple(dict.fromkeys(deviations)),
    )


def _of_seals(paths: Mapping[Path, str], seals: Sequence[Seal]) -> Iterator[Deviation]:
    """Yield runs that began under another plan than the sealed one, or under none."""
    began: dict[str, Seal | None] = {}
    for path, where in paths.items():
        try:
            began[where] = kept_seal(path)
        except CheckpointError as error:
            yield Deviation("run altered", where, str(error))
    strangers = group_strangers(began, seals)
    if not seals and not any(seal for seal, _ in strangers):
        why = "begun by a version of sublayer that sealed no plans: the original plan is unknown"
        yield Deviation("not sealed", PLAN, why)
        return
    for seal, runs in strangers:
        parts, text = describe_strangers(seal, runs, seals)
        where = runs[0] if len(runs) == 1 else Path(runs[0]).parts[0]
        if seal is None:
            yield Deviation("run without the plan", where, text)
        elif not seals:
            yield Deviation("seal removed", PLAN, text)
        elif not seal.is_whole:
            yield Deviation("plan of a run altered", where, text)
        else:
            names = ", ".join(dict.fromkeys(PARTS.get(part, part) for part in parts))
            kinds = [f"{names} altered"] if names else []
            if seal.hash not in {own.hash for own in seals}:
                kinds.append("plan sealed again")
            yield Deviation(" and ".join(kinds), PLAN, text)


def _planned_runs(
    folder: Path, plan: StudyPlan, chain_plan: ChainPlan | None, seals: Sequence[Seal]
) -> dict[Path, _Planned]:
    """Return the runs that a study may have, by folder; ``kept`` is of a study with stages."""
    planned = {}
    sealed_seeds = [seal.plan.get("seeds", []) for seal in seals]
    arms = list(zip(asked_arms(folder, plan), plan.settled, strict=True))
    if chain_plan is None:
        trials = planned_trials(plan.asked.tune, plan.extended)
        if len(trials) < 2:
            trials = [NO_TRIAL, *trials]
        seeds = {*itertools.chain.from_iterable(sealed_seeds)}
        if not seals:
            most = max([plan.planned_seeds, *plan.reported_seeds, *plan.asked.looks])
            seeds = set(plan.asked.seeds.compared(most))
        for (position, (arm, settled)), trial in itertools.product(enumerate(arms), trials):
            runs = arm_folder(folder, position, arm.name) / (trial.folder if trial.name else "")
            tuning = plan.asked.tuning_seeds if trial.name else []
            for seed in (*tuning, *sorted(seeds)):
                settings = {**settled.settings, **trial.settings, "train.seed": seed}
                recipe = _laid_over(arm.loaded.recipe, settings)
                planned[runs / f"seed-{seed}"] = _Planned(arm.name, seed in seeds, recipe)
        return planned
    most = max([chain_plan.n_seeds, *map(len, sealed_seeds)])
    finder = finder_of_chain(folder, chain_plan.model_copy(update={"n_seeds": most}))
    for stage in chain_plan.chain.stages:
        finder.choose(stage.name)
        tried = chain_plan.trials[stage.name]
        for fact, trial in itertools.product(chain_plan.arms, tried if len(tried) > 1 else ()):
            path = finder.path(fact.name, stage.name, 0, chain_plan.tuning_number, trial)
            planned[path] = _Planned(fact.name, False, reads_texts=False)
    # A selected trial is compared, too.
    for arm, settled in arms:
        part = chain_plan.chain.of(arm.name)
        numbers = [(PRETRAINING, 0)] if part.pretrains else []
        for stage in chain_plan.chain.stages:
            if (arm.name, stage.name) in finder.chosen:
                numbers += [
                    (stage.name, number) for number in range(chain_plan.chain.n_runs(stage))
                ]
        for seed, (name, number) in itertools.product(range(most), numbers):
            if finder.lost(arm.name, name, seed, number):
                continue
            is_first, settings = name == PRETRAINING, {**settled.settings, "train.seed": seed}
            laid_over = _laid_over(arm.loaded.recipe, settings)
            follows = not is_first or bool(part.start)
            path = finder.path(arm.name, name, seed, number)
            planned[path] = _Planned(
                arm.name, seed < chain_plan.n_seeds, None if follows else laid_over, is_first
            )
    return planned


def _laid_over(recipe: Recipe, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe by table and field with settings over it, and without another length."""
    content = recipe.model_dump(mode="json")
    tables = {name: table for name, table in content.items() if isinstance(table, dict)}
    for name in LENGTHS:
        tables["train"].pop(name, None)
    for key, value in settings.items():
        heading, _, name = key.partition(".")
        tables[heading][name] = value
    return tables


def _of_number(
    folder: Path,
    plan: StudyPlan,
    seals: Sequence[Seal],
    paths: Mapping[Path, str],
    planned: Mapping[Path, _Planned],
    results: Mapping[str, Any],
) -> Iterator[Deviation]:
    """Yield runs in no plan, and planned runs that have not ended."""
    ended = set()
    for path, where in paths.items():
        if path not in planned:
            yield Deviation("run added", where, "the plan has no such run")
            continue
        try:
            has_ended = read_outcome(path, is_scored=planned[path].is_compared) is not None
        except (CheckpointError, ConfigError):
            has_ended = True  # its damage is a deviation of the run
        if has_ended:
            ended.add(path)
    # A sequential study has the seeds that its results name.
    seeds = seals[-1].plan["seeds"] if seals and not plan.asked.looks else []
    reported = {(arm["name"], seed) for arm in results.get("arms", ()) for seed in arm["seeds"]}
    reported |= {(failure["arm"], failure["seed"]) for failure in results.get("failures", ())}
    missing: dict[object, list[Path]] = {}
    for path, run in planned.items():
        seed = int(path.name.removeprefix("seed-"))
        if run.is_compared and plan.asked.stages is not None:
            missing[path] = [path]
        elif run.is_compared and (seed in seeds or (run.arm, seed) in reported):
            # Of any of the trials.
            missing.setdefault((run.arm, seed), []).append(path)
    for first, *others in missing.values():
        if not ended.intersection([first, *others]):
            where = str(first.relative_to(folder))
            text = f"{planned[first].arm}, {first.name}, has not ended here"
            yield Deviation("run missing", where, text)


def _of_run(
    path: Path, where: str, planned: _Planned | None, seals: Sequence[Seal]
) -> Iterator[Deviation]:
    """Yield settings, texts and code of a run that differ from its start or from its plan."""
    began = read_began(path)
    if not (path / RUN_RECIPE).is_file():
        return  # an ensemble
    recipe = RunFolder(path).recipe().model_dump(mode="json")
    if str(recipe["train"]["seed"]) != path.name.removeprefix("seed-"):
        yield Deviation("run altered", where, f"its recipe has the seed {recipe['train']['seed']}")
    if planned is not None and planned.recipe is not None:
        derived = read_derived(path / RUN_RECIPE)
        for key, value, other in _settings(planned.recipe, recipe):
            if key not in derived:
                text = f"the plan has {key} = {value}, the run {other}"
                yield Deviation("arms altered", where, text)
    if began is None:
        return
    origin = str(path / INPUTS)
    first = recipe_of(parse_toml(began.recipe, origin, CheckpointError), origin)
    tables = first.model_dump(mode="json")
    if first.init.run is not None:
        tables["data"].pop("tokenizer")  # from the start, not repeated in recipe.toml
    for key, value, other in _settings(tables, recipe):
        yield Deviation("run altered", where, f"it began with {key} = {value}, and has {other} now")
    if seals and planned is not None and planned.reads_texts:
        digests = {source.name: source.digest for source in began.inputs}
        for name, planned_digest in seals[-1].plan.get("texts", {}).get(planned.arm, {}).items():
            now = digests.get(name)
            if now not in (None, planned_digest):
                text = f"{now[:SHOWN_DIGITS]}, the plan {planned_digest[:SHOWN_DIGITS]}"
                yield Deviation("texts altered", where, f"{name} has the SHA-256 {text}")
    record = read_record(path)
    if record is None:
        return
    noted = record.get("plan") or {}
    if noted.get("hash") != (began.plan or {}).get("hash"):
        shown = str(noted.get("hash", "none"))[:SHOWN_DIGITS]
        text = f"{RECORD} names the plan {shown}, and {INPUTS} has another"
        yield Deviation("run altered", where, text)
    codes = [seal.plan.get("code", {}).get("sha256") for seal in seals]
    if seals and noted and noted.get("code") not in codes:
        shown = str(noted.get("code", "none"))[:SHOWN_DIGITS]
        yield Deviation("code altered", where, f"made by code {shown}, which is in no seal")


def _settings(
    tables: Mapping[str, Any], others: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Yield the fields that differ between two recipes, with both values."""
    for table, fields in tables.items():
        if table in HEADINGS or not isinstance(fields, Mapping):
            continue
        for name, value in fields.items():
            other = others.get(table, {}).get(name)
            if value is not None and value != other:
                yield f"{table}.{name}", show(value), show(other)


def _of_items(path: Path, where: str) -> tuple[int, list[Deviation]]:
    """Compute a run's scores from its items; return their number, and the deviations."""
    scores = next((path / name for name in SCORED if (path / name).is_file()), None)
    if scores is None:
        return 0, []
    noted = read_json_object(scores, CheckpointError).get("items_sha256")
    file = items_file(path)
    if file is None:
        text = f"missing, although {scores.name} has its checksum"
        return 0, [Deviation("item altered", f"{where}/{ITEMS}", text)] if noted else []
    at = f"{where}/{file.name}"
    now = hashlib.sha256(file.read_bytes()).hexdigest()
    altered = []
    if noted not in (None, now):
        digests = f"{now[:SHOWN_DIGITS]}, and {scores.name} has {str(noted)[:SHOWN_DIGITS]}"
        altered.append(f"SHA-256 {digests}")
    try:
        items = read_items(path)
    except CheckpointError as error:
        return 0, [Deviation("item altered", at, str(error))]
    n_values = 0
    wrong = []
    if items is not None and scores.name != SCORES:
        recipe = RunFolder(path).recipe()
        test = read_test(scores, recipe) or {}
        for metric in family_of(recipe.objective).metrics:
            rule = metric.from_items
            value = None if rule is None or metric.name not in test else rule.of(items)
            if value is not None:
                n_values += 1
                if not _is_close(value, test[metric.name]):
                    score = f"{metric.name} {test[metric.name]:.9g}"
                    wrong.append(f"{score}, its items give {value:.9g}")
    if altered:
        return n_values, [Deviation("item altered", at, "; ".join([*altered, *wrong]))]
    if wrong:
        return n_values, [Deviation("score altered", f"{where}/{scores.name}", "; ".join(wrong))]
    return n_values, []


def _differing(old: Any, new: Any, *where: str) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield the differences of two JSON values, with both; missing keys are left out.

    List entries are named, as ``differences[wide against plain]`` and ``mean``.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        common = new.keys() & old.keys()
        ordered = [name for name in (*_FIRST, *new) if name in common]
        for name in dict.fromkeys(ordered):
            yield from _differing(old[name], new[name], *where, name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            entry = str(number)
            if isinstance(content := pair[1], Mapping):
                names = (content[key] for key in ("name", "arm", "metric") if content.get(key))
                against = f" against {content['baseline']}" if content.get("baseline") else ""
                entry = f"{next(names, number)}{against}"
            yield from _differing(*pair, *where[:-1], f"{where[-1]}[{entry}]")
    elif not _is_close(old, new):
        yield where, old, new


def _is_close(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=1e-12)
    return bool(one == other)


def _short(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def render_verification(result: Mapping[str, Any]) -> str:
    """Format a verification from its JSON: its deviations, a line each."""
    deviations = result["deviations"]
    summary = "the results follow from the plan and the items"
    if deviations:
        summary = count(len(deviations), "deviation")
    sealed = "not sealed"
    if result["hash"]:
        sealed = f"sealed on {shown_date(result['sealed'])}, hash {result['hash']}"
    lines = [f"{result['folder']}: {summary}", f"plan      {sealed}"]
    lines += [f"recorded  {addition}" for addition in result["additions"]]
    lines.append(
        f"checked   {count(result['runs'], 'run')}, "
        f"{count(result['values'], 'score')} computed again from items"
    )
    if result["judged_by_other_code"]:
        lines.append(
            f"note      judged with sublayer {result['judged_by_other_code']}, which is not this "
            "code and may explain differences in results.json alone"
        )
    lines += [
        f"{deviation['kind']}: {deviation['where']}: {deviation['what']}"
        for deviation in deviations
    ]
    return "\n".join(lines)
