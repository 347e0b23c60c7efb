"""A comparison of runs that exist: their test scores, kept beside them, and its results."""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.config.catalog import HEADINGS
from sublayer.config.data import DataConfig
from sublayer.config.load import LoadedRecipe
from sublayer.config.messages import setting_in_words, show_path
from sublayer.config.recipe import Recipe, ResolvedRecipe
from sublayer.config.run_recipe import DERIVED, read_derived
from sublayer.config.sources import RUN_RECIPE
from sublayer.config.supervised import SupervisedObjective
from sublayer.config.train import OF_A_RUN
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError, DataError
from sublayer.files.checkpoints import RECORD
from sublayer.files.parsing import read_json_object
from sublayer.files.paths import resolved
from sublayer.files.storage import write_json
from sublayer.objective.families import family_of
from sublayer.runs.folder import RECIPE, RunFolder, folders_named
from sublayer.runs.items import write_items
from sublayer.runs.lengthening import read_lengthenings
from sublayer.runs.session import prepare_data
from sublayer.statistics.difference import FEWEST_SEEDS
from sublayer.statistics.looks import fixed
from sublayer.study.arms import LONGEST_PART, Arm, in_path, name_arms
from sublayer.study.collect import collect_results
from sublayer.study.columns import metric_columns
from sublayer.study.definition import Study, other_settings
from sublayer.study.evidence import Looking, StudyJudge, scored_elsewhere
from sublayer.study.jobs.run import TEST, Outcome, read_test, score_run
from sublayer.study.notes import list_caveats, list_text_caveats
from sublayer.study.results import Results
from sublayer.study.runs import ArmFacts, StageRuns, describe_arm
from sublayer.study.seal import Sealing
from sublayer.study.stages import PRETRAINING
from sublayer.system.lock import held
from sublayer.system.stages import note


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
