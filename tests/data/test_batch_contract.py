"""Batches of every kind: a function of seed and step alone, shared out by processes."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest

from sublayer.config.objectives.masked import MaskedObjective
from sublayer.config.objectives.span import SpanObjective
from sublayer.data.batches import Batch, Windows
from sublayer.data.masked.batches import PairBatches
from sublayer.data.parallel.batch_plan import BatchRule
from sublayer.data.span.batches import EpochPieces, RandomPieces
from sublayer.data.span.examples import CorruptionRule
from sublayer.data.span.masks import MASKS
from sublayer.data.tasks.batches import ExampleBatches
from sublayer.objective.masked.batches import pair_settings
from tests.answerers import draw_examples, rule_of, split_of
from tests.packed_rows import unpack
from tests.stories import numbered

LENGTHS = [np.random.default_rng(n).integers(1, 9, 20).tolist() for n in range(6)]


def windows(seed, mode, **settings):
    fields = {"context": 7, "batch_sequences": 5, "mode": mode, **settings}
    return Windows(numbered(LENGTHS), seed=seed, **fields)


def pairs(seed, *, n=7, steps=None, **fields):
    split = numbered(LENGTHS)
    objective = MaskedObjective.model_validate(fields)
    settings = replace(pair_settings(objective, split.tokenizer, context=24), steps=steps)
    return PairBatches(split, settings, context=24, batch_sequences=n, seed=seed)


def pieces(seed, noise, boundaries=""):
    split = numbered([[50], [70], [93], [30]])
    settings = SpanObjective(noise=noise).resolve(32)
    rule = CorruptionRule(
        draw=MASKS[noise],
        settings=settings,
        context=32,
        raw_length=settings.raw_length,
        target_length=settings.target_length,
        sentinels=() if noise == "prefix" else tuple(range(99_999, 99_899, -1)),
        end_id=1,
        pad_id=0,
        first_id=0,
    )
    if not boundaries:
        return RandomPieces(split, rule, batch_sequences=4, seed=seed)
    return EpochPieces(
        split, rule, batch_sequences=4, seed=seed, boundaries=boundaries, chunk_tokens=65_536
    )


def answers(seed, orders, n=5):
    split = split_of({"mrpc": draw_examples("mrpc", 23)}, "pair")
    return ExampleBatches(split, rule=rule_of(split), batch_sequences=n, seed=seed, orders=orders)


KINDS: dict[str, Callable[[int], Any]] = {
    "random windows": lambda seed: windows(seed, "random"),
    "shuffled windows": lambda seed: windows(seed, "shuffled"),
    "masked texts": lambda seed: pairs(seed, sentence="none"),
    "pairs of segments": lambda seed: pairs(seed, sentence="nsp"),
    "steps of pairs of sentences": lambda seed: pairs(
        seed, pairs="sentences", sentence="nsp", steps=BatchRule(64, multiple=2, parts=3)
    ),
    "random pieces": lambda seed: pieces(seed, "spans"),
    "pieces of an epoch": lambda seed: pieces(seed, "iid", "ignore"),
    "pieces of documents": lambda seed: pieces(seed, "prefix", "respect"),
    "examples in given orders": lambda seed: answers(seed, "given"),
    "examples in random orders": lambda seed: answers(seed, "random"),
    "examples in both orders": lambda seed: answers(seed, "both"),
}


def rows(batch):
    """All that stands in each row, without padding, in an order that packing does not change."""
    if isinstance(batch, Batch):
        sides = zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True)
        return sorted([tokens, targets] for tokens, targets in sides)
    return sorted(
        [part.tolist() for part in sequence if part is not None] for sequence in unpack(batch)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_a_function_of_seed_and_step(kind):
    make, steps = KINDS[kind], (*range(8), 40)
    one, other = make(3), make(3)
    in_order = [rows(one.batch(step)) for step in steps]
    assert [rows(other.batch(step)) for step in reversed(steps)] == in_order[::-1]
    assert in_order != [rows(make(4).batch(step)) for step in steps]
    assert len({str(found) for found in in_order}) == len(steps)


@pytest.mark.parametrize("kind", KINDS)
def test_processes_share_a_batch_out(kind):
    batches = KINDS[kind](3)
    for step in (0, 9):
        for world in (2, 3):
            shares = [rows(batches.batch(step, rank, world)) for rank in range(world)]
            assert sorted(chain(*shares)) == rows(batches.batch(step))


@pytest.mark.parametrize(
    "batches",
    [pairs(3, pairs="sentences", sentence="nsp", steps=BatchRule(24)), answers(3, "given", n=2)],
    ids=["pairs of sentences", "examples"],
)
def test_a_process_without_an_example_is_given_one_that_does_not_count(batches):
    n = len(batches.batch(0).labels)
    shares = [rows(batches.batch(0, rank, n + 1)) for rank in range(n)]
    assert sorted(chain(*shares)) == rows(batches.batch(0))
    spare = batches.batch(0, n, n + 1)
    assert len(spare.labels) == 1
    if spare.targets is None:
        assert spare.weights.tolist() == [0.0]
    else:
        assert spare.labels.tolist() == [-1] and (spare.targets == -1).all()
