"""Batches of examples: each once an epoch, by seed and step alone, shared by processes."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from sublayer.data.tasks.batches import ExampleBatches
from sublayer.errors import DataError
from tests.answerers import draw_examples, rule_of, split_of
from tests.packed_rows import unpack

N = 23


def batches_of(
    examples=None, format_="pair", *, size=5, seed=1, orders="given", context=48, **mixed
):
    split = split_of(examples or {"mrpc": draw_examples("mrpc", N)}, format_, **mixed)
    rule = rule_of(split, context)
    return ExampleBatches(split, rule=rule, batch_sequences=size, seed=seed, orders=orders)


def same(one, other):
    return one.numbers == other.numbers and torch.equal(one.read.tokens, other.read.tokens)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_every_example_is_used_once_an_epoch_without_a_gap(size):
    batches = batches_of(size=size)
    n_epochs = 3
    used = []
    for step in range(math.ceil(n_epochs * N / size)):
        chosen = batches.chosen(step).tolist()
        assert sorted(batches.batch(step).numbers) == sorted(chosen)
        assert len(chosen) == size
        used += chosen
    orders = [tuple(used[epoch * N : (epoch + 1) * N]) for epoch in range(n_epochs)]
    assert all(sorted(order) == list(range(N)) for order in orders)
    assert len(set(orders)) == n_epochs


@pytest.mark.parametrize("orders", ["given", "random", "both"])
def test_a_batch_follows_from_seed_and_step_and_is_shared_by_processes(orders):
    batches, others = batches_of(orders=orders), batches_of(orders=orders)
    for step in reversed(range(7)):
        whole = batches.batch(step)
        assert whole.weights.tolist() == [1.0] * 5
        assert same(others.batch(6 - step), batches_of(orders=orders).batch(6 - step))
        for world in (2, 5):
            shares = [batches.batch(step, rank, world) for rank in range(world)]
            ids = [row.ids.tolist() for share in shares for row in unpack(share)]
            assert sorted(ids) == sorted(row.ids.tolist() for row in unpack(whole))
            assert sum(int(share.weights.sum()) for share in shares) == 5
    assert batches_of(seed=2).chosen(0).tolist() != batches.chosen(0).tolist()
    # A process without an example has one that does not count.
    small = batches_of(size=2)
    weights = [small.batch(3, rank, 4).weights.tolist() for rank in range(4)]
    assert weights == [[1.0], [1.0], [0.0], [0.0]]


def texts_read(batches, n_steps):
    """How often each row was read in each order, by its ids between the marks."""
    read = Counter()
    for step in range(n_steps):
        batch = batches.batch(step)
        numbers = [batch.numbers[owner] for owner in batch.owners]
        for number, sequence in zip(numbers, unpack(batch), strict=True):
            n_first = int((sequence.segments == 0).sum())
            ids = sequence.ids.tolist()
            read[number, tuple(ids[1 : n_first - 1]), tuple(ids[n_first:-1])] += 1
    return read


def test_both_orders_are_two_examples_of_an_epoch():
    batches = batches_of(orders="both", size=2)
    assert batches.n_epoch == 2 * N
    read = texts_read(batches, N)
    assert len(read) == 2 * N and set(read.values()) == {1}
    assert all(read[number, second, first] == 1 for number, first, second in read)


def test_an_order_by_chance_is_drawn_anew_for_every_use():
    batches = batches_of(orders="random", size=10)
    assert batches.n_epoch == N
    given = texts_read(batches_of(size=1), N).keys()
    n_epochs = 20
    read = texts_read(batches, n_epochs * N // 10)
    n_given = sum(read[key] for key in given)
    # Of 460 draws; six standard deviations are 64.
    assert abs(n_given - n_epochs * N / 2) < 64
    assert sum(read.values()) == n_epochs * N
    assert all(0 < read[key] < n_epochs for key in given)


@pytest.mark.parametrize(
    "orders",
    [
        "both",
    ],
)
def test_texts_of_a_task_that_is_not_symmetric_stay_in_their_order(orders):
    examples = {"mnli": draw_examples("mnli", N)}
    batches = batches_of(examples, orders=orders, size=1)
    assert batches.n_epoch == N
    assert texts_read(batches, N) == texts_read(batches_of(examples, size=1), N)


def test_a_weight_of_one_task_alone_changes_nothing():
    examples = {"mrpc": draw_examples("mrpc", N)}
    weighted = batches_of(examples, orders="both", size=1, weights={"mrpc": 3.0})
    read = texts_read(weighted, 2 * N)
    assert len(read) == 2 * N and set(read.values()) == {1}
    batch = batches_of({"stsb": draw_examples("stsb", N)}).batch(2)
    labels = [example.label for example in draw_examples("stsb", N)]
    assert batch.labels.tolist() == [labels[number] for number in batch.numbers]


MIXTURE = {"sst2": 40, "rte": 10, "cb": 6}


def mixture(weights=None, size=7, size_limit=None):
    examples = {name: draw_examples(name, n) for name, n in MIXTURE.items()}
    return batches_of(examples, "text", size=size, weights=weights, size_limit=size_limit)


def drawn(batches, n_steps):
    """How often each example of each task was drawn."""
    bounds = np.cumsum([0, *MIXTURE.values()])
    counts = {name: Counter() for name in MIXTURE}
    for step in range(n_steps):
        for number in batches.chosen(step).tolist():
            task = int(np.searchsorted(bounds, number, side="right")) - 1
            counts[list(MIXTURE)[task]][number - bounds[task]] += 1
    return counts


def test_a_mixture_without_weights_draws_each_task_by_its_size():
    found = drawn(mixture(), 8)  # 56 examples, an epoch
    assert {name: sum(each.values()) for name, each in found.items()} == MIXTURE
    assert all(set(each.values()) == {1} for each in found.values())


def test_a_weighted_mixture_draws_each_task_in_proportion():
    batches = mixture({"sst2": 1.0, "rte": 2.0, "cb": 1.0})
    assert batches.n_epoch == 56
    for n_epochs in (1, 5):
        found = drawn(batches, 8 * n_epochs)
        totals = {name: sum(each.values()) for name, each in found.items()}
        assert totals == {"sst2": 14 * n_epochs, "rte": 28 * n_epochs, "cb": 14 * n_epochs}
        for name, each in found.items():
            # In turn: no example is drawn a second time more than another.
            times = [each[number] for number in range(MIXTURE[name])]
            assert max(times) - min(times) <= 1


def test_a_limit_of_sizes_bounds_the_share_of_a_large_task():
    # 8 of 40, 8 of 10 and all 6: shares of 8/22, 8/22 and 6/22.
    batches = mixture(size_limit=8, size=11)
    assert batches.n_epoch == 22
    for n_epochs in (1, 2, 5):
        found = drawn(batches, 2 * n_epochs)
        totals = [sum(counts.values()) for counts in found.values()]
        assert totals == [8 * n_epochs, 8 * n_epochs, 6 * n_epochs]
    # Five epochs are one pass over the 40, four over the 10 and five over the 6.
    assert [set(counts.values()) for counts in found.values()] == [{1}, {4}, {5}]
    first, second = batches.notes()
    assert "data.size_limit = 8" in first and "40 examples of SST-2" in first
    assert "data.size_limit = 8" in second and "10 examples of RTE" in second
    limited, plain = mixture(size_limit=40), mixture()
    assert limited.n_epoch == 56 and limited.notes() == []
    assert all(limited.chosen(step).tolist() == plain.chosen(step).tolist() for step in range(20))


@pytest.mark.parametrize(
    ("format_", "context", "kind"),
    [
        ("pair", 14, "encoder"),
        ("traversal", 14, "decoder"),
        ("text", 48, "encoder-decoder"),
        ("text", 30, "decoder"),
    ],
)
def test_the_tokens_of_a_step_are_those_of_its_batch(format_, context, kind):
    split = split_of({"mrpc": draw_examples("mrpc", N)}, format_)
    rule = rule_of(split, context, kind=kind)
    batches = ExampleBatches(split, rule=rule, batch_sequences=5, seed=1)
    for step in range(6):
        batch = batches.batch(step)
        assert batches.n_tokens(step) == batch.n_tokens
        assert batch.read.tokens.shape[1] <= context


def test_rows_that_are_cut_are_counted():
    examples = draw_examples("sst2", N)
    lengths = [len(each.fields["sentence"].split()) + 2 for each in examples]
    n_long = sum(length > 9 for length in lengths)
    batches = batches_of({"sst2": examples}, context=9)
    assert n_long > 2
    assert batches.notes() == [
        f"{n_long} rows of the train part, longer than data.context = 9, cut to it"
    ]
    assert max(max(batches.batch(step).read.lengths) for step in range(5)) <= 9
    assert batches_of({"sst2": examples}).notes() == []


def test_targets_that_are_cut_are_counted():
    split = split_of({"sst2": draw_examples("sst2", 3)}, "text")
    rule = rule_of(split, target_length=2)
    # A label is one token, and its end.
    assert ExampleBatches(split, rule=rule, batch_sequences=5, seed=1).notes() == []
    short = ExampleBatches(split, rule=replace(rule, target_length=1), batch_sequences=5, seed=1)
    assert short.notes() == [
        "3 targets of the train part, longer than objective.target_length = 1, cut to it: no such "
        "answer can be written whole"
    ]


def test_a_part_without_examples_is_refused():
    with pytest.raises(DataError, match=r"^the train part of SST-2 has no example$"):
        batches_of({"sst2": []})
