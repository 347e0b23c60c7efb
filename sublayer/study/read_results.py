"""Results read from folders, without training anything: of a study, or of finished runs.

Those of finished runs are in a folder of their own, with scores where a run had none.
"""

import hashlib
import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.config.catalog import HEADINGS
from sublayer.config.data import DataConfig
from sublayer.config.load import LoadedRecipe
from sublayer.config.messages import setting_in_words, show_path
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.config.run_recipe import DERIVED, read_derived, recipe_of
from sublayer.config.sources import RUN_RECIPE
from sublayer.config.supervised import SupervisedObjective
from sublayer.config.train import OF_A_RUN
from sublayer.counts import count
from sublayer.data.prepare import Data
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.files.checkpoints import RECORD
from sublayer.files.parsing import parse_toml, read_json_object
from sublayer.files.paths import resolved
from sublayer.files.storage import write_json
from sublayer.objective.families import family_of
from sublayer.objective.metric import Metric
from sublayer.runs.folder import RECIPE, RunFolder, folders_named
from sublayer.runs.items import write_items
from sublayer.runs.lengthening import read_lengthenings
from sublayer.runs.session import prepare_data
from sublayer.statistics.difference import FEWEST_SEEDS
from sublayer.statistics.looks import Looks, fixed
from sublayer.study.arms import LONGEST_PART, Arm, in_path, name_arms, planned_trials
from sublayer.study.chain_file import Kept, read_chain_file
from sublayer.study.collect import collect_results, read_baselines
from sublayer.study.columns import Column, list_columns, metric_columns, primary_column
from sublayer.study.definition import Study, other_settings
from sublayer.study.evidence import Looking, StudyJudge, scored_elsewhere
from sublayer.study.jobs.run import TEST, Outcome, read_test, score_run
from sublayer.study.notes import (
    explain_collapses,
    explain_stage_choices,
    list_caveats,
    list_differing_machines,
    list_notes,
    list_text_caveats,
    time_caveats,
)
from sublayer.study.plan_file import PLAN, Plan, read_plan, sealing_of, study_of
from sublayer.study.results import RESULTS, Results
from sublayer.study.runs import ArmFacts, StageRuns, asked_arms, describe_arm, of_seeds, read_runs
from sublayer.study.samples import with_kept
from sublayer.study.scoring import Scoring
from sublayer.study.seal import Sealing
from sublayer.study.stages import PRETRAINING, explain_nesting, is_within, n_compared
from sublayer.study.verdicts import look_reached
from sublayer.system.lock import held
from sublayer.system.stages import note


def results_of_folder(folder: Path, *, command: str = "") -> Results:
    """Build the results of the comparison in a folder, of the runs that have ended.

    Missing runs are named in the first note. With a ``command``, which makes the results again, all
    notes are new; without, those that a finished study has are kept. No text is read. Raises
    ConfigError where the folder is damaged, or where the baseline has no run that has ended, and
    CheckpointError where a run is damaged.
    """
    plan = read_plan(folder)
    earlier = {} if command else _earlier(folder)
    command = command or earlier.get("reproduction", {}).get("command") or plan.command
    if plan.asked.stages is None:
        return _results_of_arms(folder, plan, earlier, command)
    return _results_of_stages(folder, plan, command)


def _results_of_arms(folder: Path, plan: Plan, earlier: Mapping[str, Any], command: str) -> Results:
    """Build the results of a study whose runs are one training each."""
    about, asked = plan.about, plan.asked
    arms, runs = read_runs(folder, plan, _metric(folder, plan, earlier))
    arms = [arm for arm in arms if isinstance(arm.loaded.recipe, ResolvedRecipe)]
    runs = {(arm.name, PRETRAINING): runs[arm.name, PRETRAINING] for arm in arms}
    begun = [arm.name for arm in arms]
    without = [each.name for each in plan.settled if each.name not in begun]
    _check_baseline(folder, plan, begun)
    most = max(len(stage_runs.outcomes) for stage_runs in runs.values())
    n_seeds = plan.planned_seeds or earlier.get("planned_seeds") or most
    study = _study(folder, plan, earlier, arms)
    # An arm against itself is compared with none.
    against = about.against if about else {}
    n_awaited = sum(against.get(name) != name for name in without)
    looks = Looks(tuple(asked.looks), is_sequential=True) if asked.looks else fixed(n_seeds)
    n_tuning = len(asked.tuning_seeds)
    looking = Looking(looks, tuple(plan.reported_seeds), n_tuning=n_tuning)
    if asked.looks:
        names = [each.name for each in plan.settled]
        reached = look_reached(study, runs, names, asked.seeds, looking)
        n_seeds, missing, is_unfinished = reached.look, reached.n_missing, not reached.is_judged
    else:
        runs = of_seeds(runs, asked.seeds.compared(n_seeds))
        n_made = sum(len(stage_runs.outcomes) for stage_runs in runs.values())
        missing = n_seeds * len(plan.settled) - n_made
        is_unfinished = missing > 0
    columns = metric_columns(study)
    looking = replace(looking, is_unfinished=is_unfinished)
    judge = StudyJudge(study, columns, runs, n_seeds, looking, n_awaited)
    facts = [describe_arm(arm) for arm in arms]
    results = collect_results(judge, facts, columns[0], command=command)
    shown = with_kept(results.arms, runs, study.inspecting)
    results = replace(results, arms=shown, sealing=sealing_of(folder))
    if not missing and earlier.get("planned_seeds") == n_seeds and "looks" in earlier:
        return replace(results, notes=tuple(earlier.get("notes", ())))
    trials = planned_trials(asked.tune, plan.extended)
    notes = list_notes(results, study, runs, plan, trials)
    if missing:
        n_made = sum(len(stage_runs.outcomes) for stage_runs in runs.values())
        lacks = f"No run has ended of {', '.join(without)}." if without else ""
        notes = (_unfinished(n_made, missing, ".", lacks, plan), *notes)
    return replace(results, notes=notes)


def _results_of_stages(folder: Path, plan: Plan, command: str) -> Results:
    """Build the results of a study with stages; raise ConfigError where a score is damaged too."""
    kept, about = read_chain_file(folder, plan), plan.about
    assert about is not None, "it is written before what is kept of a chain"
    finder, chain = kept.finder(folder), kept.chain
    for stage in chain.stages:
        finder.choose(stage.name)
    runs = finder.gathered()
    _check_baseline(folder, plan, {arm for (arm, _), own in runs.items() if any(own.scored())})
    study = replace(study_of(plan, about, asked_arms(folder, plan)), chain=chain)
    n_ended = finder.n_ended()
    missing = {stage: n - n_ended.get(stage, 0) for stage, n in kept.n_runs.items()}
    missing = {stage: n for stage, n in missing.items() if n > 0}
    columns, primary = find_columns(study, kept)
    within = chain.n_seeds if is_within(chain, kept.n_seeds) else 0
    n_seeds = n_compared(chain, kept.n_seeds)
    taken = () if within else tuple(plan.reported_seeds)
    looking = Looking(fixed(n_seeds), taken, is_unfinished=bool(missing))
    judge = StudyJudge(study, columns, runs, n_seeds, looking, within=within)
    baselines = read_baselines(folder, kept.baselines, columns)
    results = collect_results(judge, kept.arms, primary, command=command, baselines=baselines)
    machines = {
        f"{arm}, {stage}": [outcome for _, outcome in stage_runs.seeded()]
        for (arm, stage), stage_runs in runs.items()
    }
    notes = [
        explain_nesting(chain, kept.n_seeds),
        *study.caveats,
        *about.layer_notes,
        *kept.cuts.values(),
        *explain_stage_choices(runs, kept.trials, kept.tuning_number),
        *explain_collapses(results),
        *time_caveats(results),
        *list_caveats(
            (),
            metric=results.metric,
            jobs=plan.jobs,
            clusters=plan.clusters,
            machines=list_differing_machines(machines),
        ),
    ]
    if missing:
        n_missing = sum(missing.values())
        of_stages = ", ".join(f"{n_runs:,} of {stage}" for stage, n_runs in missing.items())
        n_made = sum(kept.n_runs.values()) - n_missing
        notes.insert(0, _unfinished(n_made, n_missing, f"; missing are {of_stages}.", "", plan))
    return replace(results, notes=tuple(notes), sealing=sealing_of(folder, kept.stage_texts))


def _check_baseline(folder: Path, plan: Plan, begun: Collection[str]) -> None:
    baseline = plan.settled[0].name
    if baseline not in begun:
        raise ConfigError(
            f"{folder}: no run of the baseline, {baseline}, has ended: "
            "there is nothing to report yet"
        )


def _unfinished(n_ended: int, n_missing: int, which: str, lacks: str, plan: Plan) -> str:
    """Say how many runs are missing, and the command that makes them."""
    text = f"Unfinished: {n_ended:,} of {count(n_ended + n_missing, 'run')} have ended{which}"
    resume = f"To resume: {plan.command}" if plan.command else ""
    return " ".join(filter(None, [text, lacks, resume]))


def _earlier(folder: Path) -> dict[str, Any]:
    try:
        return read_json_object(folder / RESULTS, CheckpointError)
    except FileNotFoundError:
        return {}


def _metric(folder: Path, plan: Plan, earlier: Mapping[str, Any]) -> Metric | None:
    """Return the metric that trials are chosen by; None: their loss, as was before seeds tuned."""
    if plan.asked.tuning_seeds == [0]:
        return None
    place = str(folder / PLAN)
    text = next(iter(plan.asked.recipes.values()))
    recipe = recipe_of(parse_toml(text, place, ConfigError), place)
    metrics = family_of(recipe.objective).metrics
    named = (plan.about.metric if plan.about else "") or earlier.get("metric")
    return next((metric for metric in metrics if metric.name == named), metrics[0])


def _study(folder: Path, plan: Plan, earlier: Mapping[str, Any], arms: Sequence[Arm]) -> Study:
    """Return the study as it was kept, or as its results have it."""
    own = tuple(arms)
    if plan.about is not None:
        return study_of(plan, plan.about, own)
    scoring = Scoring.model_validate(plan.asked.score or {})
    against = {}
    compared = {each["arm"]: each["baseline"] for each in earlier.get("differences", ())}
    for arm in own[1:]:
        # An arm without a difference is a control: it is compared with none.
        other = compared.get(arm.name, arm.name) if compared else own[0].name
        if other != own[0].name:
            against[arm.name] = other
    own = tuple(replace(arm, against=against.get(arm.name)) for arm in own)
    name = earlier.get("name") or folder.absolute().name
    title = earlier.get("title", "")
    metric = earlier.get("metric")
    return Study(name, title, "", plan.asked.match, None, own, metric=metric, scoring=scoring)


def find_columns(study: Study, kept: Kept) -> tuple[list[Column], Column]:
    """Return the columns of a chain's scores, and the one that decides.

    Raises ConfigError as ``list_columns`` and ``primary_column`` do.
    """
    columns = list_columns(study.name, kept.chain, kept.parts, kept.kinds)
    return columns, primary_column(study.name, columns, study.metric)


@dataclass(frozen=True)
class Recorded:
    """A run that has ended, as its folder has it."""

    path: Path
    recipe: ResolvedRecipe
    record: dict[str, Any]

    @property
    def checksums(self) -> dict[str, str]:
        """The checksums of its text's splits and of its tokenizer, by name."""
        return dict(self.record["data"]["checksums"])

    def arm(self, name: str) -> Arm:
        """Return the run's recipe as an arm; derived settings have that origin."""
        origins = dict.fromkeys(read_derived(self.path / RUN_RECIPE), DERIVED)
        return Arm(name, LoadedRecipe(self.recipe, origins, name, ()), {})


_OF_TOKENIZER = {
    *("tokenizer", "vocab_size", "merges", "normalization"),
    *("keep_accents", "special_tokens", "sentinels"),
}
_OF_BATCHES = {
    *("watch", "batch_multiple", "batch_order", "batch_parts"),
    *("context", "windows", "boundaries"),
}
"""Settings that change neither a text nor its tokens."""
_NAMES = {
    "train": "training texts",
    "valid": "validation texts",
    "test": "test texts",
    "tokenizer": "tokenizers",
}


def check_agree(runs: Sequence[Recorded]) -> None:
    """Raise ConfigError where two runs do not compare, with the settings that keep them apart."""
    first = runs[0]
    for run in runs[1:]:
        both = f"{first.path} and {run.path} do not compare"
        kinds = first.recipe.objective.kind, run.recipe.objective.kind
        if kinds[0] != kinds[1]:
            raise ConfigError(
                f"{both}: objective.kind = {kinds[0]} and {kinds[1]} have other metrics"
            )
        formats = _format(first), _format(run)
        if formats[0] != formats[1]:
            raise ConfigError(
                f"{both}: objective.format = {formats[0]} and {formats[1]} write examples for "
                "other kinds of model: `sublayer compare` of their recipes trains and compares both"
            )
        before, now = first.checksums, run.checksums
        for name, what in _NAMES.items():
            if before.get(name) != now.get(name):
                raise ConfigError(f"{both}: their {what} differ, {_why(first, run, name)}")


def _format(run: Recorded) -> str:
    objective = run.recipe.objective
    return objective.format if isinstance(objective, SupervisedObjective) else ""


def _why(first: Recorded, second: Recorded, name: str) -> str:
    """Say in which settings two runs differ, those first that decide what differs."""
    names = [field for field in DataConfig.model_fields if field not in _OF_BATCHES]
    of_tokenizer = [field for field in names if field in _OF_TOKENIZER]
    of_text = [field for field in names if field not in _OF_TOKENIZER]
    # A tokenizer is trained on the text.
    for part in (of_tokenizer, of_text) if name == "tokenizer" else (of_text,):
        values = {
            field: tuple(getattr(run.recipe.data, field) for run in (first, second))
            for field in part
        }
        values = {field: pair for field, pair in values.items() if pair[0] != pair[1]}
        if len(values) == 1:
            [(field, (before, now))] = values.items()
            if before is not None:  # the field is named once
                return f"data.{field} = {show_path(before)} and {show_path(now)}"
        if values:
            sides = []
            for side in (0, 1):
                shown = {
                    field: setting_in_words(f"data.{field}", pair[side])
                    for field, pair in values.items()
                }
                given = [text for field, text in shown.items() if values[field][side] is not None]
                sides.append(", ".join(given or shown.values()))
            return " and ".join(sides)
    return "though their settings are equal: a file has changed between them"


RUNS = "runs.json"
"""The file that lists the runs of a comparison, in its folder."""
_SCORED = "scored.json"
"""The mark of the record that the scores beside it are of."""
_ONE_RUN = (
    "A verdict takes three runs of each arm: name further runs of the same recipes, with other "
    "seeds (train.seed=1), too."
)
_UNSEALED = Sealing(why_not="its runs were there before they were compared")
_NO_MATTER = (*OF_A_RUN, "keep_steps")
"""Settings of ``[train]`` that runs of one arm may differ in."""
Arms = Mapping[str, Mapping[int, Recorded]]
"""The runs of each arm by seed."""


def compare_runs(
    paths: Sequence[Path], out: Path | None = None, device: str | None = None
) -> tuple[Results, Path]:
    """Compare finished runs, the first one's recipe as the baseline.

    Returns the results and the folder of their scores. Runs of one recipe with different seeds
    are one arm. Runs without scores on the test split are scored now; nothing is written into the
    runs' folders, and no text is read where all scores are there. Raises ConfigError where a run
    has not ended, where text, tokenizer or metric of two do not agree, and where ``out`` holds
    other files; DataError where a text that is read has changed since.
    """
    runs = [_read(path) for path in paths]
    check_agree(runs)
    arms = _group(runs)
    folder = _find_folder(name_arms(arms), paths, out)
    firsts = tuple(next(iter(by_seed.values())).arm(name) for name, by_seed in arms.items())
    *others, last = arms
    title = f"Finished runs: {', '.join(others)} and {last}" if others else f"Finished runs: {last}"
    study = Study(name_arms(arms), title, "", "none", None, firsts)
    columns = metric_columns(study)
    with held(folder):
        outcomes = {
            (name, seed): _find(folder, name, seed, run, runs[0])
            for name, by_seed in arms.items()
            for seed, run in by_seed.items()
        }
        texts = _text_notes(folder)
        if texts is None or not all(outcome.test for outcome in outcomes.values()):
            data = prepare_data(runs[0].recipe)
            if data.checksums != runs[0].checksums:
                raise DataError(f"the text has changed since {paths[0]} was trained: bring it back")
            texts = list_text_caveats(dict.fromkeys(arms, data), columns[0].metric)
            listed = [str(resolved(path)) for path in paths]
            write_json(folder / RUNS, {"runs": listed, "texts": texts})
            for number, ((name, seed), outcome) in enumerate(outcomes.items()):
                if outcome.test is None:
                    run = arms[name][seed]
                    note(f"[{number + 1}/{len(outcomes)}] {run.path}: scoring the test split")
                    kept = _kept(folder, name, seed)
                    test = _score(run, data, _scored(run, runs[0]), kept, device)
                    outcomes[name, seed] = replace(outcome, test=test, scored_in=kept)
        scored = {
            (name, PRETRAINING): StageRuns({seed: [outcomes[name, seed]] for seed in by_seed})
            for name, by_seed in arms.items()
        }
        baseline, *compared = (by_seed.keys() for by_seed in arms.values())
        n_pairs = max((len(baseline & seeds) for seeds in compared), default=0)
        # Two runs of each say too little of how far seeds spread.
        n_seeds = max(map(len, arms.values())) if n_pairs >= FEWEST_SEEDS else 1
        judge = StudyJudge(study, columns, scored, n_seeds, Looking(fixed(n_seeds)))
        command = shlex.join(["sublayer", "compare", *map(str, paths)])
        results = collect_results(judge, _describe(firsts), columns[0], command=command)
        elsewhere = scored_elsewhere(scored, results.baseline, results.metric)
    notes = (
        *(() if results.has_verdicts else (_ONE_RUN,)),
        *other_settings(firsts),
        *_lengthened(arms),
        *list_caveats(texts, metric=results.metric, elsewhere=elsewhere),
    )
    return replace(results, notes=notes, sealing=_UNSEALED), folder


def read_paths(folder: Path) -> list[Path]:
    """Read which runs a comparison of finished runs is of. Raises ConfigError where damaged."""
    content = read_json_object(folder / RUNS, ConfigError)
    runs = content.get("runs")
    if not isinstance(runs, list) or not all(isinstance(run, str) for run in runs):
        raise ConfigError(f"{folder / RUNS} is damaged: it lists no runs")
    return [Path(run) for run in runs]


def _read(path: Path) -> Recorded:
    folder = RunFolder(path)
    record = folder.record()
    if record is None:
        raise ConfigError(
            f"{path} has not ended: resume it with sublayer train {shlex.quote(str(path))} "
            "--resume, then compare"
        )
    if record.get("stopped_early"):
        raise ConfigError(
            f"{path} ended early, at step {record['step']}, as its train.patience says: its budget "
            "is not that of the others; train it without, or score it by sublayer evaluate"
        )
    return Recorded(path, folder.recipe(), record)


def _group(runs: Sequence[Recorded]) -> dict[str, dict[int, Recorded]]:
    """Gather the runs of one recipe, but for the seed, under a name for each."""
    by_recipe: dict[str, dict[int, Recorded]] = {}
    for run in runs:
        arm = by_recipe.setdefault(_meaning(run), {})
        seed = run.recipe.train.seed
        if seed in arm:
            raise ConfigError(
                f"{arm[seed].path} and {run.path} are of one recipe with one seed, {seed}: "
                "name one of them"
            )
        arm[seed] = run
    firsts = [next(iter(arm.values())).path for arm in by_recipe.values()]
    short = [_short_name(path) for path in firsts]
    is_distinct = len(set(short)) == len(short)
    names = short if is_distinct else [str(path) for path in firsts]
    return dict(zip(names, by_recipe.values(), strict=True))


def _meaning(run: Recorded) -> str:
    content = run.recipe.model_dump(mode="json", exclude=set(HEADINGS))
    for name in _NO_MATTER:
        content["train"].pop(name, None)
    return json.dumps(content, sort_keys=True)


def _short_name(path: Path) -> str:
    """Name a run by its folder; one of a comparison by its arm."""
    folder = resolved(path)
    if folder.name.startswith("seed-"):
        _, _, name = folder.parent.name.partition("-")
        return name or folder.name
    return folder.name


def _find_folder(name: str, paths: Sequence[Path], out: Path | None) -> Path:
    wanted = [resolved(path) for path in paths]
    if out is not None:
        if not _is_usable(out, wanted):
            raise ConfigError(f"{out} holds other files: give another --out")
        return out
    return next(path for path in folders_named(name) if _is_usable(path, wanted))


def _is_usable(folder: Path, wanted: Sequence[Path]) -> bool:
    """Return whether a folder is free, or holds the comparison of these runs."""
    if (folder / RUNS).is_file():
        return read_paths(folder) == list(wanted)
    if not folder.is_dir():
        return not folder.exists()
    return not any(not path.name.startswith(".") for path in folder.iterdir())


def _scored(run: Recorded, first: Recorded) -> Recipe:
    """Return the recipe by which a run is scored: on the first one's masked tokens and pairs."""
    recipe: Recipe = run.recipe
    if recipe.data.tasks is None:
        recipe = recipe.model_copy(update={"objective": first.recipe.objective})
    return recipe


def _find(folder: Path, name: str, seed: int, run: Recorded, first: Recorded) -> Outcome:
    """Read a run's test scores: its own, or those that are kept in a comparison's folder."""
    recipe, kept = _scored(run, first), _kept(folder, name, seed)
    test = None
    if run.recipe.objective == recipe.objective:
        test = read_test(run.path / TEST, recipe)
    if test is None:
        try:
            is_whole = read_json_object(kept / _SCORED, ConfigError) == _mark(run)
        except (FileNotFoundError, ConfigError):
            is_whole = False
        test = read_test(kept / TEST, recipe) if is_whole else None
    return Outcome(run.path, run.record, test, scored_in=kept if kept.is_dir() else None)


def _score(
    run: Recorded, data: Data, recipe: Recipe, kept: Path, device: str | None
) -> Mapping[str, float]:
    """Score a run on the test split, and keep scores and items in ``kept``."""
    found = score_run(run.path, data, recipe, device=device)
    kept.mkdir(parents=True, exist_ok=True)
    if found.items is not None:
        write_items(kept, found.items, family_of(recipe.objective).tables())
    write_json(kept / TEST, found.scores)
    write_json(kept / _SCORED, _mark(run))  # last: what stands beside it is whole
    return found.scores


def _mark(run: Recorded) -> dict[str, str]:
    """Say of which record kept scores are: a run that was made longer has another one."""
    return {"record_sha256": hashlib.sha256((run.path / RECORD).read_bytes()).hexdigest()}


def _text_notes(folder: Path) -> list[str] | None:
    """Read the notes on the text of a comparison; None where they are not known."""
    try:
        texts = read_json_object(folder / RUNS, ConfigError).get("texts")
    except (FileNotFoundError, ConfigError):
        return None
    return texts if isinstance(texts, list) and all(isinstance(x, str) for x in texts) else None


def _describe(arms: Sequence[Arm]) -> list[ArmFacts]:
    """Describe arms, each with the share of parameters by which it exceeds the baseline."""
    facts = [describe_arm(arm) for arm in arms]
    totals = [fact.parameters["total"] or 0 for fact in facts]
    return [
        each.model_copy(update={"mismatch": (total - totals[0]) / totals[0]})
        for each, total in zip(facts, totals, strict=True)
    ]


def _lengthened(arms: Arms) -> Iterator[str]:
    """Say of each run that was lengthened what its steps do not say."""
    for name, runs in arms.items():
        for seed, run in runs.items():
            which = name if len(runs) == 1 else f"{name}, seed {seed},"
            for each in read_lengthenings(run.path / RECIPE):
                yield (
                    f"{which} was lengthened from {each.from_steps:,} to {each.to_steps:,} steps "
                    f"at step {each.at_step:,}, and keeps the warm-up and the evaluations of the "
                    "shorter run."
                )


def _kept(folder: Path, name: str, seed: int) -> Path:
    return folder / "scores" / in_path(name)[-LONGEST_PART:] / f"seed-{seed}"
