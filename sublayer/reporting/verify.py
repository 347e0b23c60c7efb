"""Verification of a study: do its results follow from its sealed plan and the items of its runs?"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.config.catalog import HEADINGS
from sublayer.config.messages import show
from sublayer.config.recipe import Recipe
from sublayer.config.run_recipe import read_derived, recipe_of
from sublayer.config.sources import RUN_RECIPE
from sublayer.config.train import LENGTHS
from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.files.checkpoints import RECORD, read_record
from sublayer.files.parsing import parse_toml, read_json_object, read_toml
from sublayer.objective.families import family_of
from sublayer.reporting.files import results_to_json
from sublayer.runs.finetuning import SCORES
from sublayer.runs.folder import INPUTS, RunFolder
from sublayer.runs.inputs import read_began
from sublayer.runs.items import ITEMS, items_file, read_items
from sublayer.runs.record import code_sha256
from sublayer.study.arms import NO_TRIAL, make_trials, trial_at
from sublayer.study.chain_file import Kept, read_chain_file
from sublayer.study.finished_runs import RUNS
from sublayer.study.folder import arm_folder
from sublayer.study.jobs.run import TEST, VALID, read_outcome, read_test, read_trial
from sublayer.study.plan_file import (
    PLAN,
    Plan,
    describe_strangers,
    group_strangers,
    kept_seal,
    read_plan,
    run_folders,
    sealing_of,
)
from sublayer.study.read_results import results_of_folder
from sublayer.study.results import REPORT, RESULTS
from sublayer.study.runs import asked_arms
from sublayer.study.seal import (
    ADDED,
    PARTS,
    SHOWN_DIGITS,
    Seal,
    Sealing,
    list_additions,
    list_alterations,
    shown_date,
)
from sublayer.study.stages import PRETRAINING

_TOLERANCE = 1e-6
"""Relative tolerance of recomputed numbers."""
_NOT_JUDGED = ("report", "notes", "reproduction", "plan")
"""Keys of ``results.json`` about the machine and the command."""
_SHOWN_CHANGES = 3
_FIRST = ("verdict", "mean", "low", "high", "values")
"""Of the changes of an entry, those that are named first."""


@dataclass(frozen=True)
class Deviation:
    """Something in a study's folder that does not follow from the rest."""

    kind: str
    """Such as ``margin altered``."""
    where: str
    """The file or folder, within that of the study."""
    what: str


@dataclass(frozen=True)
class Verification:
    """The verification of a study: counts, and deviations."""

    folder: Path
    sealing: Sealing
    deviations: tuple[Deviation, ...]
    n_runs: int
    """Runs that have begun, those that tune included."""
    n_values: int
    """Scores that were computed again from items."""
    judged_by_other_code: str = ""
    """Where the results were judged by other code than this: which."""

    @property
    def follows(self) -> bool:
        """Whether results follow from plan and items."""
        return not self.deviations


@dataclass(frozen=True)
class _Planned:
    """A run of the plan."""

    arm: str
    is_compared: bool = True
    recipe: Mapping[str, Any] | None = None
    """Its settings, by table and field; None where they follow from other runs."""
    reads_texts: bool = True
    """Whether it is trained on the arm's own texts."""


def verify_study(folder: Path) -> Verification:
    """Hold the plan, the runs, the results and the report of a study against each other.

    No text is read. Raises ConfigError where the folder holds no study, or its plan is damaged.
    """
    if not (folder / PLAN).is_file():
        if (folder / RUNS).is_file():
            raise ConfigError(
                f"{folder} compares runs that were there before: it has no plan to be held against"
            )
        if (folder / RUN_RECIPE).is_file():
            raise ConfigError(f"{folder} is a run: name the folder of its comparison")
        raise ConfigError(f"{folder} holds no comparison: see sublayer runs")
    plan = read_plan(folder)
    content = read_toml(folder / PLAN, ConfigError)
    kept = None if plan.asked.stages is None else read_chain_file(folder, plan)
    stage_texts = None if kept is None else kept.stage_texts
    seals = plan.seals or []
    paths = run_folders(folder)
    if kept is None:
        planned = _planned_runs(folder, plan, seals)
    else:
        planned = _planned_of_chain(folder, plan, kept, seals)
    try:
        results = read_json_object(folder / RESULTS, CheckpointError)
    except FileNotFoundError:
        results = None
    deviations = [
        *_of_plan(content, seals, stage_texts),
        *_of_seals(folder, paths, seals),
        *_of_number(folder, plan, seals, paths, planned, results),
    ]
    n_values = 0
    for path in paths:
        where = str(path.relative_to(folder))
        try:
            deviations += _of_run(path, where, planned.get(path), seals)
            n_computed, altered = _of_items(path, where)
        except (CheckpointError, ConfigError, DataError, OSError) as error:
            deviations.append(Deviation("run altered", where, str(error)))
            continue
        n_values += n_computed
        deviations += altered
    deviations += _of_results(folder, results)
    sealing = sealing_of(folder, stage_texts)
    if sealing.hash and (folder / REPORT).is_file():
        shown = sealing.hash[:SHOWN_DIGITS]
        if shown not in (folder / REPORT).read_text(encoding="utf-8", errors="replace"):
            text = f"it does not name the plan {shown}: write it again"
            deviations.append(Deviation("report of another plan", REPORT, text))
    code = seals[-1].plan.get("code", {}) if seals else {}
    other_code = ""
    if code and code.get("sha256") != code_sha256():
        other_code = f"{code.get('version')} ({str(code.get('sha256'))[:SHOWN_DIGITS]})"
    return Verification(
        folder=folder,
        sealing=sealing,
        deviations=tuple(dict.fromkeys(deviations)),
        n_runs=len(paths),
        n_values=n_values,
        judged_by_other_code=other_code,
    )


def _of_plan(
    content: Mapping[str, Any],
    seals: Sequence[Seal],
    stage_texts: Mapping[str, Mapping[str, str]] | None,
) -> Iterator[Deviation]:
    """Yield changes of the plan that are not sealed, or that were sealed after the first run."""
    if not seals:
        return
    for part, text in list_alterations(content, seals, stage_texts):
        kind = f"{PARTS.get(part, part)} altered" if part else "seal altered"
        yield Deviation(kind, PLAN, text)
    for part, text in list_additions(seals):
        if part not in ADDED:
            kind = f"{PARTS.get(part, part)} changed after the first run"
            yield Deviation(kind, PLAN, text)


def _of_seals(folder: Path, paths: Sequence[Path], seals: Sequence[Seal]) -> Iterator[Deviation]:
    """Yield runs that began under another plan than the sealed one, or under none."""
    began: dict[str, Mapping[str, Any] | None] = {}
    for path in paths:
        where = str(path.relative_to(folder))
        try:
            began[where] = kept_seal(path)
        except CheckpointError as error:
            yield Deviation("run altered", where, str(error))
    strangers = group_strangers(began, seals)
    if not seals and not any(group.seal for group in strangers):
        why = "begun by a version of sublayer that sealed no plans: nothing says what was planned"
        yield Deviation("not sealed", PLAN, why)
        return
    for group in strangers:
        parts, text = describe_strangers(group, seals)
        where = group.runs[0] if len(group.runs) == 1 else str(Path(group.runs[0]).parts[0])
        if group.seal is None:
            yield Deviation("run without the plan", where, text)
        elif not seals:
            yield Deviation("seal removed", PLAN, text)
        elif not group.seal.is_whole:
            yield Deviation("plan of a run altered", where, text)
        else:
            names = dict.fromkeys(PARTS.get(part, part) for part in parts)
            kinds = [f"{', '.join(names)} altered"] if names else []
            if group.seal.hash not in {seal.hash for seal in seals}:
                kinds.append("plan sealed again")
            yield Deviation(" and ".join(kinds), PLAN, text)


def _planned_runs(folder: Path, plan: Plan, seals: Sequence[Seal]) -> dict[Path, _Planned]:
    """Return the runs that a study without stages may have, by their folders."""
    arms = asked_arms(folder, plan)
    trials = [NO_TRIAL]
    if plan.asked.tune:
        trials = make_trials(arms, plan.asked.tune)
        if len(trials) < 2 and not plan.extended:
            trials = [NO_TRIAL, *trials]
        trials += [trial_at(trials, value) for value in plan.extended]
    seeds = {seed for seal in seals for seed in seal.plan.get("seeds", [])}
    if not seals:
        most = max([plan.planned_seeds, *plan.reported_seeds, *plan.asked.looks])
        seeds = set(plan.asked.seeds.compared(most))
    planned = {}
    for position, (arm, settled) in enumerate(zip(arms, plan.settled, strict=True)):
        for trial in trials:
            runs = arm_folder(folder, position, arm.name) / (trial.folder if trial.name else "")
            tuning = dict.fromkeys(plan.asked.tuning_seeds, False) if trial.name else {}
            for seed, is_compared in {**tuning, **dict.fromkeys(sorted(seeds), True)}.items():
                settings = {**settled.settings, **trial.settings, "train.seed": seed}
                recipe = _laid_over(arm.loaded.recipe, settings)
                planned[runs / f"seed-{seed}"] = _Planned(arm.name, is_compared, recipe)
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


def _planned_of_chain(
    folder: Path, plan: Plan, kept: Kept, seals: Sequence[Seal]
) -> dict[Path, _Planned]:
    """Return the runs that a study with stages may have, by their folders."""
    recipes = {arm.name: arm.loaded.recipe for arm in asked_arms(folder, plan)}
    settled = {arm.name: arm.settings for arm in plan.settled}
    most = max([kept.n_seeds, *(len(seal.plan.get("seeds", [])) for seal in seals)])
    finder = kept.model_copy(update={"n_seeds": most}).finder(folder)
    planned = {}
    for arm in kept.arms:
        for seed in range(most) if kept.chain.of(arm.name).pretrains else ():
            if not finder.lost(arm.name, PRETRAINING, seed):
                path = finder.path(arm.name, PRETRAINING, seed)
                recipe = None
                if not kept.chain.of(arm.name).start:
                    settings = {**settled[arm.name], "train.seed": seed}
                    recipe = _laid_over(recipes[arm.name], settings)
                planned[path] = _Planned(arm.name, seed < kept.n_seeds, recipe)
    for stage in kept.chain.stages:
        finder.choose(stage.name)
        trials = kept.trials[stage.name]
        for arm in kept.arms:
            for trial in trials if len(trials) > 1 else ():
                path = finder.path(arm.name, stage.name, 0, kept.tuning_number, trial)
                planned.setdefault(path, _Planned(arm.name, False, reads_texts=False))
            is_chosen = (arm.name, stage.name) in finder.chosen
            numbers = range(kept.chain.n_runs(stage)) if is_chosen else ()
            for seed, number in itertools.product(range(most), numbers):
                if not finder.lost(arm.name, stage.name, seed, number):
                    path = finder.path(arm.name, stage.name, seed, number)
                    planned[path] = _Planned(arm.name, seed < kept.n_seeds, reads_texts=False)
    return planned


def _of_number(
    folder: Path,
    plan: Plan,
    seals: Sequence[Seal],
    paths: Sequence[Path],
    planned: Mapping[Path, _Planned],
    results: Mapping[str, Any] | None,
) -> Iterator[Deviation]:
    """Yield runs that no plan has, and runs of the plan that have not ended."""
    ended = set()
    for path in paths:
        if path not in planned:
            where = str(path.relative_to(folder))
            yield Deviation("run added", where, "the plan has no such run")
            continue
        read = read_outcome if planned[path].is_compared else read_trial
        try:
            if read(path) is not None:
                ended.add(path)
        except (CheckpointError, ConfigError):
            ended.add(path)  # its damage is a deviation of the run
    compared = {path: run.arm for path, run in planned.items() if run.is_compared}
    if plan.asked.stages is not None:
        for path in compared:
            if path not in ended:
                text = "the plan has it, and it has not ended here"
                yield Deviation("run missing", str(path.relative_to(folder)), text)
        return
    # A study that stops where it is decided has the seeds that its results name.
    seeds = set(seals[-1].plan["seeds"]) if seals and not plan.asked.looks else set()
    reported: dict[str, set[int]] = {}
    for arm in (results or {}).get("arms", ()):
        reported[str(arm["name"])] = set(arm["seeds"])
    for failure in (results or {}).get("failures", ()):
        reported.setdefault(str(failure["arm"]), set()).add(failure["seed"])
    trials: dict[tuple[str, int], list[Path]] = {}
    for path, arm in compared.items():
        seed = int(path.name.removeprefix("seed-"))
        if seed in seeds | reported.get(arm, set()):
            trials.setdefault((arm, seed), []).append(path)
    for (arm, seed), of_trials in trials.items():
        if not ended.intersection(of_trials):
            where = str(of_trials[0].relative_to(folder))
            yield Deviation("run missing", where, f"{arm}, seed {seed}, has not ended here")


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
        for key, value, other in _differing(planned.recipe, recipe, derived):
            yield Deviation("arms altered", where, f"the plan has {key} = {value}, the run {other}")
    if began is None:
        return
    origin = str(path / INPUTS)
    first = recipe_of(parse_toml(began.recipe, origin, CheckpointError), origin)
    tables = first.model_dump(mode="json")
    if first.init.run is not None:
        tables["data"].pop("tokenizer")  # the start's, which recipe.toml does not repeat
    for key, value, other in _differing(tables, recipe, ()):
        yield Deviation("run altered", where, f"it began with {key} = {value}, and has {other} now")
    sealed = seals[-1].plan.get("texts", {}) if seals else {}
    texts = sealed.get(planned.arm, {}) if planned is not None and planned.reads_texts else {}
    for name, known in texts.items():
        now = began.inputs.get(name)
        if now not in (None, known):
            text = f"{name} has the SHA-256 {now[:SHOWN_DIGITS]}, the plan {known[:SHOWN_DIGITS]}"
            yield Deviation("texts altered", where, text)
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
        yield Deviation("code altered", where, f"made by code {shown}, which no seal names")


def _differing(
    planned: Mapping[str, Any], recipe: Mapping[str, Any], derived: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield the fields of two recipes that differ, with both values; none that was derived."""
    for table, fields in planned.items():
        if table in HEADINGS or not isinstance(fields, dict):
            continue
        for name, value in fields.items():
            key = f"{table}.{name}"
            other = recipe.get(table, {}).get(name)
            if key not in derived and value is not None and value != other:
                yield key, show(value), show(other)


def _of_items(path: Path, where: str) -> tuple[int, list[Deviation]]:
    """Compute a run's scores from its items; return their number, and the deviations."""
    scores = next((path / name for name in (TEST, VALID, SCORES) if (path / name).is_file()), None)
    if scores is None:
        return 0, []
    noted = read_json_object(scores, CheckpointError).get("items_sha256")
    file = items_file(path)
    at = f"{where}/{ITEMS if file is None else file.name}"
    if file is None:
        missing = Deviation("item altered", at, f"missing, and {scores.name} has its checksum")
        return 0, [] if noted is None else [missing]
    now = hashlib.sha256(file.read_bytes()).hexdigest()
    is_altered = noted not in (None, now)
    text = f"SHA-256 {now[:SHOWN_DIGITS]}, and {scores.name} has {str(noted)[:SHOWN_DIGITS]}"
    try:
        items = read_items(path)
    except CheckpointError as error:
        return 0, [Deviation("item altered", at, str(error))]
    if items is None or scores.name == SCORES:
        return 0, [Deviation("item altered", at, text)] if is_altered else []
    recipe = RunFolder(path).recipe()
    test = read_test(scores, recipe) or {}
    n_values = 0
    wrong = []
    for metric in family_of(recipe.objective).metrics:
        rule = metric.from_items
        value = None if rule is None or metric.name not in test else rule.of(items)
        if value is None:
            continue
        n_values += 1
        if not _is_close(value, test[metric.name]):
            wrong.append(f"{metric.name} {test[metric.name]:.9g}, its items give {value:.9g}")
    if is_altered:
        return n_values, [Deviation("item altered", at, "; ".join([text, *wrong]))]
    if wrong:
        return n_values, [Deviation("score altered", f"{where}/{scores.name}", "; ".join(wrong))]
    return n_values, []


def _of_results(folder: Path, earlier: Mapping[str, Any] | None) -> Iterator[Deviation]:
    """Judge the runs again, and yield where ``results.json`` differs."""
    if earlier is None:
        yield Deviation("no results", RESULTS, "missing: the comparison has not ended")
        return
    try:
        results = results_of_folder(folder)
        judged = results_to_json(results, folder / REPORT)
    except (CheckpointError, ConfigError, DataError) as error:
        yield Deviation("results altered", RESULTS, f"they cannot be judged again: {error}")
        return
    again = json.loads(json.dumps(judged))
    for name, value in again.items():
        if name in _NOT_JUDGED or name not in earlier:
            continue
        for what, changes in _by_entry(name, earlier[name], value).items():
            shown = [f"{at} {_short(old)}, judged again {_short(new)}" for at, old, new in changes]
            more = f"; and {len(shown) - _SHOWN_CHANGES} more" * (len(shown) > _SHOWN_CHANGES)
            text = f"{'; '.join(shown[:_SHOWN_CHANGES])}{more}"
            text = f"{what}: {text}" if what != name else text
            yield Deviation("results altered", RESULTS, text)
    noted = (earlier.get("plan") or {}).get("hash", "")
    sealed = "" if results.sealing is None else results.sealing.hash
    if noted != sealed:
        named = noted[:SHOWN_DIGITS] or "none"
        text = f"made under plan {named}, and the plan is {sealed[:SHOWN_DIGITS] or 'none'}"
        yield Deviation("results of another plan", RESULTS, text)


_Change = tuple[str, Any, Any]


def _by_entry(name: str, old: Any, new: Any) -> dict[str, list[_Change]]:
    """Return the changes below a key of results, by arm or difference where it is a list."""
    if not _are_entries(old) or not _are_entries(new) or len(old) != len(new):
        changes = list(_changes(name, old, new))
        return {name: changes} if changes else {}
    entries = {}
    for number, (before, now) in enumerate(zip(old, new, strict=True)):
        changes = list(_changes("", before, now))
        if changes:
            entry = now.get("name") or now.get("arm") or now.get("metric") or number + 1
            against = f" against {now['baseline']}" if now.get("baseline") else ""
            entries[f"{name}, {entry}{against}"] = changes
    return entries


def _are_entries(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _changes(where: str, old: Any, new: Any) -> Iterator[_Change]:
    """Yield the differences of two JSON values by place; keys that one lacks are left out."""
    if isinstance(old, dict) and isinstance(new, dict):
        ranks = {name: rank for rank, name in enumerate(_FIRST)}
        for name in sorted(
            new.keys() & old.keys(), key=lambda key: (ranks.get(key, len(ranks)), key)
        ):
            yield from _changes(f"{where}.{name}".lstrip("."), old[name], new[name])
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _changes(f"{where}[{number}]", one, other)
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
    return text if len(text) <= 60 else f"{text[:57]}..."


def verification_to_json(verified: Verification) -> dict[str, Any]:
    """Build the object that ``report --verify --json`` prints."""
    sealing = verified.sealing
    return {
        "folder": str(verified.folder),
        "follows": verified.follows,
        "sealed": sealing.date or None,
        "hash": sealing.hash or None,
        "additions": list(sealing.additions),
        "runs": verified.n_runs,
        "values": verified.n_values,
        "judged_by_other_code": verified.judged_by_other_code or None,
        "deviations": [
            {"kind": deviation.kind, "where": deviation.where, "what": deviation.what}
            for deviation in verified.deviations
        ],
    }


def render_verification(result: Mapping[str, Any]) -> str:
    """Format a verification as ``verification_to_json`` has it: its deviations, a line each."""
    deviations = result["deviations"]
    if deviations:
        lines = [f"{result['folder']}: {count(len(deviations), 'deviation')}"]
    else:
        lines = [f"{result['folder']}: the results follow from the plan and the items"]
    sealed = "not sealed"
    if result["hash"]:
        sealed = f"sealed on {shown_date(result['sealed'])}, hash {result['hash']}"
    lines.append(f"plan      {sealed}")
    lines += [f"recorded  {addition}" for addition in result["additions"]]
    lines.append(
        f"checked   {count(result['runs'], 'run')}, "
        f"{count(result['values'], 'score')} computed again from items"
    )
    if result["judged_by_other_code"]:
        lines.append(
            f"note      judged with sublayer {result['judged_by_other_code']}, which is not this "
            "code: what differs in results.json alone may come of that"
        )
    lines += [
        f"{deviation['kind']}: {deviation['where']}: {deviation['what']}"
        for deviation in deviations
    ]
    return "\n".join(lines)
