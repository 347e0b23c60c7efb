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
from sublayer.config.recipe import ResolvedRecipe
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
from sublayer.study.arm_runs import ArmFacts, Runs, StageRuns, describe_run
from sublayer.study.arms import LONGEST_PART, Arm, in_path, name_arms
from sublayer.study.collect import collect_results
from sublayer.study.columns import metric_columns, scored_elsewhere
from sublayer.study.definition import Study, other_settings
from sublayer.study.items import collect_items
from sublayer.study.jobs.run import TEST, Outcome, read_test, score_test
from sublayer.study.notes import list_caveats, list_text_caveats
from sublayer.study.results import Results
from sublayer.study.seal import Sealing
from sublayer.study.stages import PRETRAINING
from sublayer.study.verdicts import Looking
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
    fields = [field for field in DataConfig.model_fields if field not in _OF_BATCHES]
    of_tokenizer = [field for field in fields if field in _OF_TOKENIZER]
    of_text = [field for field in fields if field not in _OF_TOKENIZER]
    # A tokenizer is trained on the text.
    for part in (of_tokenizer, of_text) if name == "tokenizer" else (of_text,):
        differing = [each for each in part if _value(first, each) != _value(second, each)]
        if len(differing) == 1 and _value(first, differing[0]) is not None:
            # The field is named once.
            own, other = (show_path(_value(run, differing[0])) for run in (first, second))
            return f"data.{differing[0]} = {own} and {other}"
        if differing:
            return f"{_settings(first, differing)} and {_settings(second, differing)}"
    return "though their settings are equal: a file has changed between them"


def _settings(run: Recorded, names: Sequence[str]) -> str:
    """Format a run's values of some fields; the missing fields where it has none."""
    told = [setting_in_words(f"data.{name}", _value(run, name)) for name in names]
    own = [text for text, name in zip(told, names, strict=True) if _value(run, name) is not None]
    return ", ".join(own or told)


def _value(run: Recorded, name: str) -> Any:
    return getattr(run.recipe.data, name)


RUNS = "runs.json"
"""The file that lists the runs of a comparison, in its folder."""
_SCORED = "scored.json"
"""Of which record scores are, beside them: a run that was made longer has another one."""
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
    are one arm. Runs without scores on the test split are
    scored now; nothing is written into the runs' folders. Raises ConfigError where a run has not
    ended, where text, tokenizer or metric of two do not agree, and where ``out`` holds other files;
    DataError where the text has changed since.
    """
    runs = [_read(path) for path in paths]
    check_agree(runs)
    arms = _group(runs)
    folder = _find_folder(name_arms(arms), paths, out)
    with held(folder):
        data = prepare_data(runs[0].recipe)
        if data.checksums != runs[0].checksums:
            raise DataError(f"the text has changed since {paths[0]} was trained: bring it back")
        write_json(folder / RUNS, {"runs": [str(resolved(path)) for path in paths]})
        scored = _score(arms, data, folder, device)
        results = _results(arms, scored, data, paths, folder)
    return results, folder


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
    own = resolved(path)
    if own.name.startswith("seed-"):
        _, _, name = own.parent.name.partition("-")
        return name or own.name
    return own.name


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


def _score(
    arms: Arms, data: Data, folder: Path, device: str | None
) -> dict[tuple[str, str], StageRuns]:
    """Read the test scores of all runs, or score them; those are kept in ``folder``."""
    objective = next(iter(next(iter(arms.values())).values())).recipe.objective
    total = sum(map(len, arms.values()))
    done = 0
    scored = {}
    for name, runs in arms.items():
        outcomes = {}
        for seed, run in runs.items():
            done += 1
            recipe = run.recipe
            if recipe.data.tasks is None:
                recipe = recipe.model_copy(update={"objective": objective})
            test = None
            if run.recipe.objective == recipe.objective:
                test = read_test(run.path / TEST, recipe)
            kept = _kept(folder, name, seed)
            mark = {"record_sha256": _checksum(run)}
            if test is None and _read_mark(kept) == mark:
                test = read_test(kept / TEST, recipe)
            if test is None:
                note(f"[{done}/{total}] {run.path}: scoring the test split")
                found = score_test(run.path, data, recipe, device=device)
                kept.mkdir(parents=True, exist_ok=True)
                if found.items is not None:
                    write_items(kept, found.items, family_of(recipe.objective).tables())
                test = found.scores
                write_json(kept / TEST, test)
                write_json(kept / _SCORED, mark)  # last: what stands beside it is whole
            outcomes[seed] = [Outcome(run.path, run.record, test)]
        scored[name, PRETRAINING] = StageRuns(outcomes)
    return scored


def _checksum(run: Recorded) -> str:
    return hashlib.sha256((run.path / RECORD).read_bytes()).hexdigest()


def _read_mark(kept: Path) -> dict[str, Any] | None:
    """Read of which record the kept scores are; None where it is not known, or damaged."""
    try:
        return read_json_object(kept / _SCORED, ConfigError)
    except (FileNotFoundError, ConfigError):
        return None


def _describe(arms: Sequence[Arm]) -> list[ArmFacts]:
    """Describe arms, each with the share of parameters by which it exceeds the baseline."""
    facts = [describe_run(arm) for arm in arms]
    totals = [fact.parameters["total"] or 0 for fact in facts]
    return [
        each.model_copy(update={"mismatch": (total - totals[0]) / totals[0]})
        for each, total in zip(facts, totals, strict=True)
    ]


def _results(arms: Arms, scored: Runs, data: Data, paths: Sequence[Path], folder: Path) -> Results:
    names = list(arms)
    baseline = arms[names[0]].keys()
    n_pairs = max((len(baseline & arms[name].keys()) for name in names[1:]), default=0)
    # Two runs of each say too little of how far seeds spread.
    n_seeds = max(map(len, arms.values())) if n_pairs >= FEWEST_SEEDS else 1
    own = tuple(next(iter(runs.values())).arm(name) for name, runs in arms.items())
    *others, last = names
    title = f"Finished runs: {', '.join(others)} and {last}" if others else f"Finished runs: {last}"
    study = Study(name_arms(names), title, "", "none", n_seeds, own)
    command = shlex.join(["sublayer", "compare", *map(str, paths)])
    items = collect_items(_in_folder(scored, folder))
    columns = metric_columns(study)
    results = collect_results(
        study,
        _describe(own),
        scored,
        columns,
        columns[0],
        n_seeds=n_seeds,
        command=command,
        items=items,
        looking=Looking(fixed(n_seeds)),
    )
    notes = list_caveats(
        list_text_caveats(dict.fromkeys(names, data), results.metric),
        metric=results.metric,
        elsewhere=scored_elsewhere(items, results.baseline, results.metric),
    )
    first = () if results.has_verdicts else (_ONE_RUN,)
    notes = (*first, *other_settings(own), *_lengthened(arms), *notes)
    return replace(results, notes=notes, sealing=_UNSEALED)


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


def _in_folder(scored: Runs, folder: Path) -> Runs:
    """Point each outcome at the folder of its items."""
    pointed = {}
    for (name, stage), stage_runs in scored.items():
        outcomes = {}
        for seed, outcome in stage_runs.seeded():
            kept = _kept(folder, name, seed)
            outcomes[seed] = [replace(outcome, path=kept) if kept.is_dir() else outcome]
        pointed[name, stage] = StageRuns(outcomes)
    return pointed


def _kept(folder: Path, name: str, seed: int) -> Path:
    return folder / "scores" / in_path(name)[-LONGEST_PART:] / f"seed-{seed}"
