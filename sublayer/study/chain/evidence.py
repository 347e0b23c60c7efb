"""What the items of a chain's runs say of its columns: how much each moves a score."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from sublayer.evaluation.items import FromItems, Items
from sublayer.objective.supervised.items import SCORE, moved_by
from sublayer.runs.items import read_items
from sublayer.statistics.items import Effects
from sublayer.study.chain.columns import Column
from sublayer.study.chain.gathering import StageRuns
from sublayer.study.chain.stages import Chain
from sublayer.study.execution.finetuned_run import BEST
from sublayer.study.items.item_effects import TestUnits, item_effects

Runs = Mapping[tuple[str, str], StageRuns]


def column_units(
    chain: Chain,
    runs: Runs,
    arms: Sequence[str],
    columns: Sequence[Column],
    column: Column,
    *,
    within: bool,
) -> Mapping[str, Mapping[int, TestUnits]]:
    """Return how much each test unit moves a column, by arm and by the seed that is compared.

    Of a pre-training that is the mean over its fine-tunings, and of an average that of its members,
    one after another. An arm is missing where its runs kept no items, or others than the first
    arm's.
    """
    by_name = {each.name: each for each in columns}
    found: dict[str, dict[int, TestUnits]] = {}
    shape = None
    for arm in arms:
        own = _of_arm(chain, runs, arm, column, by_name, within=within)
        if not own:
            continue
        marks = {mark for _, mark in own.values()}
        shape = shape or min(marks)
        if marks == {shape}:
            found[arm] = {seed: units for seed, (units, _) in own.items()}
    return found


def has_items(chain: Chain, column: Column) -> bool:
    """Return whether intervals of a column allow for other test items."""
    return bool(column.members) or _rule_of(chain, column, "") is not None


_Marked = tuple[TestUnits, str]
"""Test units, and the checksum of their items."""


def _of_arm(
    chain: Chain,
    runs: Runs,
    arm: str,
    column: Column,
    by_name: Mapping[str, Column],
    *,
    within: bool,
) -> dict[int, _Marked]:
    if not column.members:
        return _of_column(chain, runs, arm, column, "", within=within)
    parts: list[tuple[float, dict[int, _Marked]]] = []
    for member in column.members:
        names = (member,) if isinstance(member, str) else member
        for name in names:
            title, _, metric = name.partition(":")
            known = by_name.get(name)
            if known is None:
                known = by_name.get(title)
            else:
                metric = ""
            if known is None:
                return {}
            share = 1.0 / len(column.members) / len(names)
            parts.append((share, _of_column(chain, runs, arm, known, metric, within=within)))
    seeds = set.intersection(*(set(part) for _, part in parts)) if parts else set()
    joined = {}
    for seed in sorted(seeds):
        units = [part[seed][0] for _, part in parts]
        pieces = [share * part[seed][0].effects for share, part in parts]
        counts = [each.n_documents for each in units]
        whole = replace(
            units[0],
            effects=np.concatenate(pieces),
            n_items=sum(each.n_items for each in units),
            n_documents=None if None in counts else sum(each or 0 for each in counts),
            shares=_joined_shares([share for share, _ in parts], units),
        )
        joined[seed] = whole, " ".join(part[seed][1] for _, part in parts)
    return joined


def _joined_shares(weights: Sequence[float], units: Sequence[TestUnits]) -> Effects | None:
    """Return the share of each unit in a mean over tests; None where all are equal."""
    sizes = []
    for weight, each in zip(weights, units, strict=True):
        n_units = len(each.effects)
        own = np.full(n_units, 1.0 / n_units) if each.shares is None else each.shares
        sizes.append(weight * own)
    joined: Effects = np.concatenate(sizes)
    return None if np.allclose(joined, joined[0], rtol=1e-9) else joined / joined.sum()


def _of_column(
    chain: Chain, runs: Runs, arm: str, column: Column, metric: str, *, within: bool
) -> dict[int, _Marked]:
    """Return the effects on a column of one stage, or on a ``metric`` of it."""
    own = runs.get((arm, column.stage))
    rule = _rule_of(chain, column, metric)
    if own is None or rule is None:
        return {}
    return _of_stage(own, rule, chain, within=within)


def _rule_of(chain: Chain, column: Column, metric: str) -> FromItems | None:
    """Return how a column of one stage follows from its items; None where it does not."""
    stages = {stage.name: stage for stage in chain.stages}
    if column.stage not in stages or not stages[column.stage].finetunes:
        return column.metric.from_items
    table, _, usual = column.key.partition(":")
    is_kept = table and not table.startswith(BEST)
    return moved_by(metric or usual or SCORE, table) if is_kept else None


def _of_stage(own: StageRuns, rule: FromItems, chain: Chain, *, within: bool) -> dict[int, _Marked]:
    """Return the effects of a stage's items by the seed that is compared."""
    by_seed: dict[int, list[_Marked]] = {}
    for seed, outcomes in own.outcomes.items():
        for number, outcome in enumerate(outcomes):
            if outcome.test is None:
                continue
            marked = _of_run(outcome.path, rule)
            if marked is None:
                return {}
            is_alone = len(outcomes) == 1
            compared = (range(chain.n_seeds) if is_alone else (number,)) if within else (seed,)
            for each in compared:
                by_seed.setdefault(each, []).append(marked)
    found = {}
    for seed, marked_runs in by_seed.items():
        marks = {mark for _, mark in marked_runs}
        if len(marks) != 1:
            return {}
        mean = np.mean([units.effects for units, _ in marked_runs], axis=0)
        found[seed] = replace(marked_runs[0][0], effects=mean), min(marks)
    return found


def _of_run(path: Path, rule: FromItems) -> _Marked | None:
    items = _items(path)
    table = items.tables.get(rule.table) if items is not None else None
    if table is None:
        return None
    try:
        units = item_effects(table, rule)
    except KeyError:
        return None  # the run has no such metric
    return None if units is None else (units, table.digest)


@lru_cache(maxsize=256)
def _items(path: Path) -> Items | None:
    return read_items(path)
