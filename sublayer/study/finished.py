"""Comparison of finished runs; missing scores are computed and kept in the comparison's folder."""

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.config.data import DataConfig
from sublayer.config.layers import RUN_RECIPE
from sublayer.config.load import DERIVED, LoadedRecipe, read_derived
from sublayer.config.messages import setting_in_words
from sublayer.config.recipe import HEADINGS, Recipe, ResolvedRecipe
from sublayer.config.train import OF_A_RUN
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.items import write_items
from sublayer.files.checkpoints import RECORD
from sublayer.files.parsing import Typed, read_typed
from sublayer.files.storage import held, resolved, write_json
from sublayer.objective.base import Scored, family_of
from sublayer.runs.folder import RECIPE, RunFolder, folders_named
from sublayer.runs.resume import read_lengthenings
from sublayer.runs.session import prepare_data
from sublayer.statistics.contrasts import FEWEST_SEEDS
from sublayer.statistics.looks import fixed
from sublayer.study.arms import LONGEST_PART, PRETRAINING, Arm, in_path, name_arms
from sublayer.study.collect import collect_results, list_caveats, list_text_caveats
from sublayer.study.columns import metric_columns
from sublayer.study.definition import Study, other_settings
from sublayer.study.evidence import StudyJudge
from sublayer.study.folder import is_free
from sublayer.study.jobs.run import TEST, Outcome, read_test, score_run
from sublayer.study.results import Results, Sealing
from sublayer.study.runs import StageRuns
from sublayer.system.terminal import note


@dataclass(frozen=True)
class Recorded:
    """A finished run, read from its folder."""

    path: Path
    recipe: ResolvedRecipe
    record: dict[str, Any]

    @property
    def checksums(self) -> dict[str, str]:
        """Checksums of its text's splits and of its tokenizer, by name."""
        return dict(self.record["data"]["checksums"])

    def arm(self, name: str) -> Arm:
        """Return the run's recipe as an arm; derived settings are marked by origin."""
        origins = dict.fromkeys(read_derived(self.path / RUN_RECIPE), DERIVED)
        return Arm(name, LoadedRecipe(self.recipe, origins, name, ()), {})

    def scoring_recipe(self, first: "Recorded") -> Recipe:
        """Return the scoring recipe of a run, with the first run's masked tokens and pairs."""
        if self.recipe.data.tasks is not None:
            return self.recipe
        return self.recipe.model_copy(update={"objective": first.recipe.objective})

    def find_outcome(self, first: "Recorded", folder: Path) -> Outcome:
        """Read the test scores of a run from its folder, or from the comparison's."""
        recipe, test = self.scoring_recipe(first), None
        if self.recipe.objective == recipe.objective:
            test = read_test(self.path / TEST, recipe)
        if test is None:
            try:
                is_of_record = (
                    read_typed(folder / _SCORED, dict[str, str], ConfigError) == self.mark()
                )
            except (FileNotFoundError, ConfigError):
                is_of_record = False
            test = read_test(folder / TEST, recipe) if is_of_record else None
        return Outcome(self.path, self.record, test, scored_in=folder if folder.is_dir() else None)

    def mark(self) -> dict[str, str]:
        """Return the checksum of a run's record, which changes when the run is lengthened."""
        return {"record_sha256": hashlib.sha256((self.path / RECORD).read_bytes()).hexdigest()}

    def keep_scores(self, scored: Scored, folder: Path) -> None:
        """Write its scores and items into a folder of the comparison."""
        folder.mkdir(parents=True, exist_ok=True)
        if scored.items is not None:
            write_items(folder, scored.items, family_of(self.recipe.objective).tables())
        write_json(folder / TEST, scored.scores)
        write_json(folder / _SCORED, self.mark())  # last: then its scores are complete


_OF_TOKENIZER = {
    *("tokenizer", "vocab_size", "merges", "normalization"),
    *("keep_accents", "special_tokens", "sentinels"),
}
_OF_BATCHES = {
    *("watch", "batch_multiple", "batch_order", "batch_parts"),
    *("context", "windows", "boundaries"),
}
"""Settings that affect neither a text nor its tokens."""
_NAMES = {
    "train": "training texts",
    "valid": "validation texts",
    "test": "test texts",
    "tokenizer": "tokenizers",
}
_OBJECTIVES = {
    "kind": "have different metrics",
    "format": "write examples for different kinds of model: `sublayer compare` of their recipes "
    "trains and compares both",
}
"""Objective fields that two runs must share, with the reasons."""


def check_agree(runs: Sequence[Recorded]) -> None:
    """Raise ConfigError, with the differing settings, for two runs that cannot be compared."""
    first, *others = runs
    for run in others:
        both = f"{first.path} and {run.path} cannot be compared"
        for field, why in _OBJECTIVES.items():
            before, now = (getattr(record.recipe.objective, field, "") for record in (first, run))
            if before != now:
                raise ConfigError(f"{both}: objective.{field} = {before} and {now} {why}")
        sides = first.recipe.data, run.recipe.data
        differing = [
            name
            for name in DataConfig.model_fields
            if name not in _OF_BATCHES and getattr(sides[0], name) != getattr(sides[1], name)
        ]
        for name, what in _NAMES.items():
            if first.checksums.get(name) == run.checksums.get(name):
                continue
            of_tokenizer = name == "tokenizer"
            decisive = [key for key in differing if (key in _OF_TOKENIZER) == of_tokenizer]
            if of_tokenizer:
                decisive = decisive or differing  # a tokenizer is trained on the text
            why = " and ".join(
                ", ".join(setting_in_words(f"data.{key}", getattr(side, key)) for key in decisive)
                for side in sides
            )
            if not decisive:
                why = "though their settings are equal: a file has changed between them"
            raise ConfigError(f"{both}: their {what} differ, {why}")


RUNS = "runs.json"
"""File in the folder of a comparison that lists its runs."""
_SCORED = "scored.json"
"""File with the checksum of the record of the scored run."""
_ONE_RUN = (
    "A verdict requires three runs of each arm: name further runs of the same recipes, with "
    "other seeds (train.seed=1)."
)
_UNSEALED = Sealing(why_not="its runs precede the comparison")
_NO_MATTER = (*OF_A_RUN, "keep_steps")
"""Settings of ``[train]`` that may differ within an arm."""


class _FinishedRuns(Typed):
    """The content of ``runs.json``."""

    runs: list[str]
    texts: list[str] | None = None
    """Notes on their text; None before it is read."""


def compare_runs(
    paths: Sequence[Path], out: Path | None = None, device: str | None = None
) -> tuple[Results, Path]:
    """Compare finished runs; the recipe of the first is the baseline.

    Returns the results and the folder of their scores. Runs of one recipe with different seeds are
    one arm. Runs without test scores are scored now; nothing is written into the runs' folders, and
    no text is read if all scores exist. Raises ConfigError if a run has not ended, if text,
    tokenizer or metric of two disagree, and if ``out`` holds other files; DataError if a text that
    is read has changed.
    """
    runs = [_read(path) for path in paths]
    check_agree(runs)
    arms = _group(runs)
    wanted = [resolved(path) for path in paths]

    def is_usable(folder: Path) -> bool:
        return read_paths(folder) == wanted if (folder / RUNS).is_file() else is_free(folder)

    if out is not None and not is_usable(out):
        raise ConfigError(f"{out} holds other files: give another --out")
    folder = out or next(filter(is_usable, folders_named(name_arms(arms))))
    firsts = tuple(next(iter(by_seed.values())).arm(name) for name, by_seed in arms.items())
    *others, last = arms
    title = f"Finished runs: {', '.join(others)} and {last}" if others else f"Finished runs: {last}"
    study = Study(name_arms(arms), title, "", "none", None, firsts)
    columns = metric_columns(study)

    with held(folder):
        score_folders = {
            (name, seed): folder / "scores" / in_path(name)[-LONGEST_PART:] / f"seed-{seed}"
            for name, by_seed in arms.items()
            for seed in by_seed
        }

        def find(name: str, seed: int) -> Outcome:
            return arms[name][seed].find_outcome(runs[0], score_folders[name, seed])

        unscored = {index: key for index, key in enumerate(score_folders, 1) if not find(*key).test}
        try:
            texts = read_typed(folder / RUNS, _FinishedRuns, ConfigError).texts
        except (FileNotFoundError, ConfigError):
            texts = None
        if texts is None or unscored:
            data = prepare_data(runs[0].recipe)
            if data.checksums != runs[0].checksums:
                raise DataError(f"the text has changed since {paths[0]} was trained: bring it back")
            texts = list_text_caveats(dict.fromkeys(arms, data), columns[0].metric)
            listed = _FinishedRuns(runs=list(map(str, wanted)), texts=texts)
            write_json(folder / RUNS, listed.model_dump())
            for position, (name, seed) in unscored.items():
                run = arms[name][seed]
                note(f"[{position}/{len(score_folders)}] {run.path}: scoring the test split")
                scored = score_run(run.path, data, run.scoring_recipe(runs[0]), device=device)
                run.keep_scores(scored, score_folders[name, seed])
        outcomes = {
            (name, PRETRAINING): StageRuns({seed: [find(name, seed)] for seed in by_seed})
            for name, by_seed in arms.items()
        }
        baseline, *compared = (by_seed.keys() for by_seed in arms.values())
        n_pairs = max((len(baseline & seeds) for seeds in compared), default=0)
        # Two runs of each are too few for the variance over seeds.
        n_seeds = max(map(len, arms.values())) if n_pairs >= FEWEST_SEEDS else 1
        judge = StudyJudge(study, columns, outcomes, n_seeds, fixed(n_seeds))
        command = shlex.join(["sublayer", "compare", *map(str, paths)])
        facts = [arm.facts() for arm in firsts]
        usual, *_ = (arm.parameters["total"] or 0 for arm in facts)
        for number, arm in enumerate(facts):
            mismatch = ((arm.parameters["total"] or 0) - usual) / usual
            facts[number] = arm.model_copy(update={"mismatch": mismatch})
        results = collect_results(judge, facts, command=command)
        elsewhere = judge.elsewhere
    notes = [*(() if results.has_verdicts else (_ONE_RUN,)), *other_settings(firsts)]
    for name, by_seed in arms.items():
        for seed, run in by_seed.items():
            which = name if len(by_seed) == 1 else f"{name}, seed {seed},"
            notes += [
                f"{which} was lengthened from {event.from_steps:,} to {event.to_steps:,} steps at "
                f"step {event.at_step:,}, and keeps the warm-up and the evaluations of the shorter "
                "run."
                for event in read_lengthenings(run.path / RECIPE)
            ]
    notes += list_caveats(texts, results.metric, elsewhere)
    return replace(results, notes=tuple(notes), sealing=_UNSEALED), folder


def read_paths(folder: Path) -> list[Path]:
    """Read the paths of the runs of a comparison. Raises ConfigError if the file is damaged."""
    return list(map(Path, read_typed(folder / RUNS, _FinishedRuns, ConfigError).runs))


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
            f"{path} was stopped by train.patience at step {record['step']}, so its budget "
            "differs from the others': train it without train.patience, or score it with "
            "sublayer evaluate"
        )
    return Recorded(path, folder.recipe(), record)


def _group(runs: Sequence[Recorded]) -> dict[str, dict[int, Recorded]]:
    """Group runs into arms: recipes that differ only in the seed."""
    by_recipe: dict[str, dict[int, Recorded]] = {}
    for run in runs:
        content = run.recipe.model_dump(mode="json", exclude=set(HEADINGS))
        for name in _NO_MATTER:
            content["train"].pop(name, None)
        arm = by_recipe.setdefault(json.dumps(content, sort_keys=True), {})
        seed = run.recipe.train.seed
        if seed in arm:
            raise ConfigError(
                f"{arm[seed].path} and {run.path} have the same recipe and the same seed, "
                f"{seed}: name one of them"
            )
        arm[seed] = run
    firsts = [next(iter(arm.values())).path for arm in by_recipe.values()]
    names = []
    for path in map(resolved, firsts):
        # A study's run is named by its arm, any other by its folder.
        _, _, name = path.parent.name.partition("-")
        names.append(name if name and path.name.startswith("seed-") else path.name)
    if len(set(names)) < len(names):
        names = list(map(str, firsts))
    return dict(zip(names, by_recipe.values(), strict=True))
