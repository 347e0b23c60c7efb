"""Runs of any trainer, judged: tables, folders and arrays read, differences, and the exit code."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.errors import ConfigError, DataError
from sublayer.files.storage import describe_absence, describe_url
from sublayer.judging.layout import (
    KNOWN,
    RunName,
    SourceRecords,
    check_one_metric,
    direction_of,
    understand_tables,
)
from sublayer.judging.ledger import LedgerLook, LedgerPlan, open_ledger, runs_of
from sublayer.judging.runs import ROLES, JudgingOptions, Records, ScoredRuns, assemble
from sublayer.judging.tables import Coded, RunTable, read_table, table_of_rows
from sublayer.numbers import count
from sublayer.statistics.contrasts import (
    FEWEST_SEEDS,
    Difference,
    RunScores,
    Verdict,
    against_baseline,
)
from sublayer.statistics.judge import ContrastFamily
from sublayer.values import is_frame, plain

EXIT_CODES: Mapping[Verdict, int] = {
    "better": 0,
    "no difference that matters": 10,
    "cannot tell": 11,
    "no verdict": 11,
    "worse": 12,
}
FEWEST_ITEMS = 10
"""Number of items from which on they are judged."""
_OF_SAMPLES = ("task", "filter")
_OF_TABLES = ("arm", "seed", "item", "step")


def read_paths(paths: Sequence[Path], options: JudgingOptions) -> SourceRecords:
    """Read files and folders as records, and describe their interpretation.

    Raises DataError for unreadable sources, ConfigError for ambiguous ones.
    """
    namer = RunName.of(options.names)
    twice = next((path for path, n in Counter(map(os.path.abspath, paths)).items() if n > 1), None)
    if twice is not None:
        raise ConfigError(f"{os.path.relpath(twice)} is given twice: name each source once")
    parts: list[SourceRecords] = []
    tables: list[RunTable] = []
    for path in paths:
        if not path.exists():
            if url := describe_url(path):
                raise ConfigError(f"{url}; from a page of W&B, export a chart as CSV")
            raise ConfigError(f"{describe_absence(path)}: name a table or a folder of runs")
        if path.is_dir() or path.name.startswith("samples_"):
            # Slower to import than the code that tables need.
            from sublayer.judging.folders import read_folder

            parts += read_folder(path, options, namer)
        else:
            tables.append(read_table(path))
    if tables:
        parts += understand_tables(tables, options, n_sources=len(paths))
    else:
        options.refuse(*_OF_TABLES, why="applies only to tables, and none is given")
    if len(tables) == len(paths):
        options.refuse(*_OF_SAMPLES, why="applies only to samples, and none are given")
    return _together(parts, [str(path) for path in paths])


def _together(parts: Sequence[SourceRecords], paths: Sequence[str]) -> SourceRecords:
    """Join the records of sources, in order; without items if some source has none."""
    splits = dict.fromkeys(part.split for part in parts if part.split)
    if len(splits) > 1:
        raise ConfigError(
            f"runs were scored on different splits, {' and '.join(splits)}: score all on one, as "
            "sublayer compare RUN RUN does"
        )
    check_one_metric((part.metric, record.source) for part in parts for record in part.records[:1])
    notes = list(dict.fromkeys(line for part in parts for line in part.said))
    records = [record for part in parts for record in part.records]
    if len({record.item is None for record in records}) > 1 and any(
        part.without_items for part in parts
    ):
        records = [record for part in parts for record in part.without_items or part.records]
        notes.append("items are not used, as some sources have none")

    def position(record: Records) -> int:
        above = [record.source, *map(str, Path(record.source).parents)]
        return next((paths.index(path) for path in above if path in paths), 0)

    records.sort(key=position)
    directed = next((part for part in parts if part.is_lower_better is not None), parts[0])
    return SourceRecords(
        tuple(records), directed.metric, tuple(notes), directed.is_lower_better, directed.why
    )


def read_objects(scored: Sequence[Any], options: JudgingOptions) -> SourceRecords:
    """Read Python objects: paths, DataFrames, arrays ``[seed]`` or ``[seed, item]``, mappings.

    A single mapping is of arms to such arrays, others of seeds to numbers or items; with a known or
    named column it is a table. The index of a Series holds its seeds. Several objects are arms, the
    first ``base``, the next ``new``. Raises as ``read_paths`` does.
    """
    options.check()
    kinds = {_kind(source, options) for source in scored}
    if len(kinds) != 1:
        raise ConfigError(
            f"{' and '.join(sorted(kinds)) or 'no'} scores are given: give scores of two arms or "
            "more, all of one kind"
        )
    if kinds == {"path"}:
        return read_paths([Path(source) for source in scored], options)
    names = ["base", "new", *(f"new {number}" for number in range(2, len(scored)))]
    arms = dict(zip(names, scored, strict=False))
    if kinds == {"table"}:
        tables = [table_of_rows(name, rows) for name, rows in arms.items()]
        return _together(understand_tables(tables, options), names)
    if len(scored) == 1:
        if not isinstance(scored[0], Mapping) or not scored[0]:
            raise ConfigError(
                f"{type(scored[0]).__name__} is given alone: give scores of two arms or more, or a "
                "mapping of arms to scores"
            )
        arms = {str(name): scores for name, scores in scored[0].items()}
    options.refuse(*ROLES, "value", "names", *_OF_SAMPLES, why="has no effect on arrays")
    records = [_of_array(name, scores) for name, scores in arms.items()]
    what = "one value per seed and item" if records[0].item else "one value per seed"
    return SourceRecords(tuple(records), "value", (f"arrays: {what}",))


def _kind(source: Any, options: JudgingOptions) -> str:
    if isinstance(source, str | Path):
        return "path"
    if isinstance(source, Mapping):
        named = {getattr(options, role) for role in (*ROLES, "value")} - {""}
        usual_names = {name for names in KNOWN.values() for name in names}
        is_table = any(
            key in named or (isinstance(key, str) and key.lower() in usual_names) for key in source
        )
        return "table" if is_table else "array"
    is_rows = isinstance(source, list | tuple) and any(isinstance(row, Mapping) for row in source)
    return "table" if is_rows or is_frame(source) else "array"


def _of_array(name: str, scores: Any) -> Records:
    """Read the scores of an arm; raise DataError, with the position, unless all are numbers."""
    if hasattr(scores, "to_dict") and hasattr(scores, "index"):  # a Series of pandas
        if not scores.index.is_unique:
            raise DataError(f"{name}: the index names a seed twice: give one value for each")
        scores = scores.to_dict()
    seeds: Sequence[Any] = list(scores) if isinstance(scores, Mapping) else []
    listed = plain([*scores.values()] if isinstance(scores, Mapping) else scores)
    if not isinstance(listed, list | tuple) or not listed:
        raise DataError(f"{name} holds no scores: give an array [seed], or [seed, item]")
    is_of_items = isinstance(plain(listed[0]), list | tuple)
    values, places, by_seed, by_item = [], [], [], []
    for seed, row in zip(seeds or range(len(listed)), map(plain, listed), strict=True):
        numbers = row if isinstance(row, list | tuple) else [row]
        if not numbers:
            raise DataError(
                f"{name}, seed {seed} has no items: leave the seed out of all arms, or give its "
                "scores"
            )
        for item, number in enumerate(numbers):
            places.append(f"{name}, seed {seed}" + (f", item {item}" if is_of_items else ""))
            by_seed.append(str(seed))
            by_item.append(str(item))
            try:
                values.append(float(number if isinstance(number, int | float) else ""))
            except (OverflowError, ValueError):
                raise DataError(
                    f"{places[-1]}: {number!r:.40} is not a number: give numbers, and nan for a "
                    "run that failed"
                ) from None
    items = Coded.of(by_item) if is_of_items else None
    seed_of, locate = Coded.of(by_seed), places.__getitem__
    arm = Coded.of([name] * len(values))
    return Records(name, arm, seed_of, np.array(values), locate, item=items)


@dataclass(frozen=True)
class RunsVerdict:
    """The verdict on runs, with the judged runs and options."""

    asked: JudgingOptions
    metric: str
    is_lower_better: bool
    baseline: str
    runs: ScoredRuns
    comparisons: tuple[Difference, ...]
    level: float
    """The probability of a false verdict that this look spends."""
    said: tuple[str, ...] = ()
    """Interpretations of the sources, a line each."""
    in_loop: LedgerLook | None = None
    """The look's entry in the ledger."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the chosen arm, or on all: better if any is."""
        verdicts = {difference.arm: difference.verdict for difference in self.comparisons}
        if self.asked.new:
            return verdicts[self.asked.new]
        kinds = set(verdicts.values())
        if "better" in kinds:
            return "better"
        if kinds == {"worse"}:
            return "worse"
        is_open = kinds & {"cannot tell", "no verdict"}
        return "cannot tell" if is_open else "no difference that matters"

    @property
    def exit_code(self) -> int:
        """The exit code: 0 better, 10 no difference that matters, 11 cannot tell, 12 worse."""
        return EXIT_CODES[self.verdict]

    @property
    def is_of_items(self) -> bool:
        """True with one run per arm, so that only items vary."""
        return len(self.runs.seeds) == 1

    def mean_of(self, arm: str) -> float | None:
        """Return the mean of an arm's runs that did not fail."""
        values = self.runs.values[self.runs.arms.index(arm)]
        finite = values[np.isfinite(values)]
        return float(finite.mean()) if finite.size else None


def judge_runs(sources: SourceRecords, options: JudgingOptions) -> RunsVerdict:
    """Judge the runs of sources.

    The better direction is the option's, the source's, or follows from the metric's name. Raises
    ConfigError if none of them states it, and for unknown arms; DataError as ``assemble`` does, and
    for too few runs.
    """
    metric, is_lower_better, why = sources.metric, sources.is_lower_better, sources.why
    if options.lower_is_better is not None:
        is_lower_better, why = options.lower_is_better, "as asked"
    elif is_lower_better is None:
        is_lower_better, why = direction_of(metric), f"by its name, {metric}"
    if is_lower_better is None:
        raise ConfigError(
            f"the better direction of {metric} is unknown: give --lower-is-better or "
            "--higher-is-better"
        )
    runs = assemble(sources.records, options)
    for option, name in (("--baseline", options.baseline), ("--new", options.new)):
        if name and name not in runs.arms:
            raise ConfigError(f"{option} {name} is not an arm: the arms are {', '.join(runs.arms)}")
    others = [arm for arm in runs.arms if arm != options.new]
    baseline = options.baseline or next(iter(others), "")
    if options.new and options.new == baseline:
        raise ConfigError(f"--baseline and --new are both {baseline}: name two arms")
    if len(runs.arms) < 2:
        raise DataError(f"there is only one arm, {runs.arms[0]}: give another to judge against it")
    n_seeds = len(runs.seeds)
    if 1 < n_seeds < FEWEST_SEEDS:
        raise DataError(
            f"{n_seeds} seeds per arm are too few for a verdict: run {FEWEST_SEEDS} or more"
        )
    if n_seeds == 1 and runs.n_items < FEWEST_ITEMS:
        raise DataError(
            f"one run per arm with {count(runs.n_items, 'item')} is too little for a verdict: "
            f"give at least {FEWEST_SEEDS} seeds of each arm, or the scores of at least "
            f"{FEWEST_ITEMS} test items"
        )
    if n_seeds == 1 and runs.failed.any():
        failed = runs.arms[int(runs.failed[:, 0].argmax())]
        raise DataError(f"the only run of {failed} failed, so nothing can be judged over items")
    has_items = runs.effects is not None and runs.n_items >= FEWEST_ITEMS
    scores = RunScores(
        runs.arms,
        tuple(range(n_seeds)),
        runs.values,
        runs.failed,
        runs.effects if has_items else None,
        runs.n_items or None,
        runs.n_documents,
        runs.shares,
    )

    def differences(level: float) -> tuple[Difference, ...]:
        # Over seeds, and known items; single runs only over items.
        family = ContrastFamily(
            scores,
            against_baseline(runs.arms, baseline),
            is_lower_better=is_lower_better,
            n_seeds=n_seeds,
            level=level,
            margin=options.margin,
            resolution=runs.resolution,
            over_items=n_seeds == 1,
        )
        return family.judge().differences

    look, level = None, options.level
    if options.ledger is None:
        comparisons = differences(level)
    else:
        described = []
        for arm, values, failed in zip(runs.arms, runs.values.tolist(), runs.failed, strict=True):
            pairs = zip(runs.seeds, values, failed, strict=True)
            by_seed = {seed: None if is_failed else value for seed, value, is_failed in pairs}
            effects = None
            if runs.effects is not None:
                arm_effects = runs.effects[runs.arms.index(arm)]
                effects = dict(zip(runs.seeds, arm_effects, strict=True))
            described.append(runs_of(arm, by_seed, effects))
        champion = described.pop(runs.arms.index(baseline))
        plan = LedgerPlan(metric, is_lower_better, options.margin, options.looks)
        with open_ledger(options.ledger, plan) as ledger:
            level = ledger.level_for(described, champion)
            comparisons = differences(level)
            look = ledger.record(comparisons)
    direction = "lower" if is_lower_better else "higher"
    lines = (*sources.said, f"{direction} is better, {why}", *runs.said)
    return RunsVerdict(
        options, metric, is_lower_better, baseline, runs, comparisons, level, lines, look
    )
