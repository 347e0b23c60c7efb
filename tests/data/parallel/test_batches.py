"""Batches of pairs: each pair once an epoch, none cut, within the tokens, and little padding."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from sublayer.data.parallel.batch_plan import fill
from sublayer.data.parallel.batches import TranslationBatches, side_lengths
from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.errors import DataError

END, PAD, VOCAB_SIZE = 2, 1, 60


class Vocabulary(ByteTokenizer):
    sep_id, pad_id = END, PAD


def split_of(lengths, seed=0):
    rng = np.random.default_rng(seed)
    flat = [length for pair in lengths for length in pair]
    ids = rng.integers(3, VOCAB_SIZE, sum(flat)).astype("<u2")
    starts = np.cumsum([0, *flat])[:-1].astype(np.int64)
    store = TokenStore(ids, starts[::2], np.zeros(1, dtype=np.int64), 0, "", False, starts)
    return Split("train", store, Vocabulary(), ("pairs",))


def random_split(n, longest=30):
    rng = np.random.default_rng(3)
    return split_of([tuple(rng.integers(1, longest, 2).tolist()) for _ in range(n)])


def rows(batch):
    """Take a batch apart, checking what stands around the tokens."""
    side = batch.read
    mask = torch.ones_like(side.tokens, dtype=torch.bool) if side.mask is None else side.mask
    parts = zip(side.tokens, mask, batch.written.tokens, batch.targets, strict=True)
    found = []
    for source, real, target, labels in parts:
        n_source, n_target = int(real.sum()), int((labels >= 0).sum())
        assert real[:n_source].all() and (source[n_source:] == PAD).all()
        assert source[n_source - 1] == target[0] == labels[n_target - 1] == END
        assert (target[1:n_target] == labels[: n_target - 1]).all()
        assert (target[n_target:] == PAD).all()
        texts = source[: n_source - 1].tolist(), labels[: n_target - 1].tolist()
        found.append((tuple(texts[0]), tuple(texts[1])))
    assert batch.n_predicted == int((batch.targets >= 0).sum())
    return found


def pairs_of(split):
    starts = [*split.store.sentence_starts.tolist(), len(split.ids)]
    texts = [tuple(split.ids[low:high].tolist()) for low, high in pairwise(starts)]
    return list(zip(texts[::2], texts[1::2], strict=True))


def test_every_pair_is_used_once_an_epoch_in_batches_of_the_epoch():
    split = random_split(400)
    batches = TranslationBatches(split, context=32, batch_tokens=256, seed=1)
    step, seen = 0, []
    for epoch in range(3):
        found = []
        for _ in range(batches.n_batches(epoch)):
            batch = batches.batch(step)
            assert len(batch) * batch.width <= 256
            assert batches.n_tokens(step) == batch.n_predicted
            found.append(rows(batch))
            step += 1
        assert sorted(pair for batch in found for pair in batch) == sorted(pairs_of(split))
        seen.append({frozenset(batch) for batch in found})
    assert seen[0] != seen[1] != seen[2]
    assert batches.steps(2) == batches.n_batches(0) + batches.n_batches(1)


def test_a_step_is_a_function_of_seed_and_step_shared_by_processes_and_slices():
    one, other, another = (
        TranslationBatches(random_split(100), context=32, batch_tokens=600, seed=seed)
        for seed in (4, 4, 5)
    )
    whole = one.batch(11)
    one.batch(3)
    assert rows(one.batch(11)) == rows(other.batch(11)) == rows(whole) != rows(another.batch(11))
    shares = [rows(one.batch(11, rank=rank, world=3)) for rank in range(3)]
    assert sorted(pair for share in shares for pair in share) == sorted(rows(whole))
    parts = [whole[start : start + 4] for start in range(0, len(whole), 4)]
    assert [pair for part in parts for pair in rows(part)] == rows(whole)
    assert sum(part.n_predicted for part in parts) == whole.n_predicted
    for part in parts:
        widths = [max(len(side) + 1 for side in sides) for sides in zip(*rows(part), strict=True)]
        assert [part.read.tokens.shape[1], part.written.tokens.shape[1]] == widths


def test_a_process_without_a_pair_is_given_one_that_does_not_count():
    batches = TranslationBatches(
        split_of([(9, 9), (8, 7), (9, 8)]), context=12, batch_tokens=12, seed=0
    )
    own, other = batches.batch(1, 0, 2), batches.batch(1, 1, 2)
    assert rows(own) == rows(batches.batch(1)) and len(own) == 1
    assert other.n_predicted == 0 and not (other.targets >= 0).any()
    assert len(other[0:1]) == 1 and other[0:1].written.tokens.shape[1] >= 1


def test_long_pairs_are_left_out_and_counted():
    split = split_of([(3, 9), (4, 4), (10, 1), (9, 9)])
    batches = TranslationBatches(split, context=10, batch_tokens=40, seed=0)
    assert batches.n_left_out == 1
    assert sum(len(batches.batch(step)) for step in range(batches.n_batches(0))) == 3
    with pytest.raises(DataError, match="every pair of the train .* of more than data.context = 4"):
        TranslationBatches(split_of([(4, 1), (1, 5)]), context=4, batch_tokens=40, seed=0)


def test_runs_of_a_multiple_are_those_of_fairseqs_code():
    # Worked out by hand from batch_by_size with required_batch_size_multiple = 2: three pairs of 2
    # tokens fill 7, two stay, and the third begins the next run with the pair of 3.
    assert fill(np.array([2, 2, 2, 3, 3, 9]), 7, 2) == [(0, 2), (2, 4), (4, 5), (5, 6)]
    assert fill(np.array([2, 2, 2, 3, 3, 9]), 7) == [(0, 3), (3, 5), (5, 6)]


def fairseq_batches(n=300, **settings):
    given_ = {"context": 32, "batch_tokens": 512, "seed": 4, "multiple": 8, "order": "once"}
    return TranslationBatches(random_split(n), **{**given_, **settings})


def epoch_of(batches, epoch):
    first = sum(batches.n_batches(each) for each in range(epoch))
    steps = range(first, first + batches.n_batches(epoch))
    return [frozenset(batches.places(step).tolist()) for step in steps]


def test_batches_that_are_made_once_are_sorted_and_come_in_another_order_each_epoch():
    batches = fairseq_batches()
    first, second, third = (epoch_of(batches, epoch) for epoch in range(3))
    assert set(first) == set(second) == set(third)
    assert first != second != third != first
    assert sorted(place for batch in first for place in batch) == list(range(300))
    assert sum(len(batch) % 8 != 0 for batch in first) <= 1
    # By source, and then by target.
    lengths = side_lengths(batches.split)
    sizes = sorted(sorted(map(tuple, lengths[[*places]].tolist())) for places in first)
    assert all(shorter[-1] <= longer[0] for shorter, longer in pairwise(sizes))


@pytest.mark.parametrize("order", ["anew", "once"])
def test_a_step_of_several_batches_is_their_union(order):
    one = fairseq_batches(1000, order=order, batch_tokens=128)
    four = fairseq_batches(1000, order=order, batch_tokens=512, parts=4)
    singles, grouped = epoch_of(one, 1), epoch_of(four, 1)
    assert grouped == [frozenset().union(*singles[i : i + 4]) for i in range(0, len(singles), 4)]
    assert (set(epoch_of(one, 0)) == set(singles)) == (order == "once")
    # Batches of one length are not taken together.
    sides = side_lengths(one.split)
    spreads = [
        np.median([np.ptp(sides[[*places], 0]) for places in epoch]) for epoch in (singles, grouped)
    ]
    assert spreads[1] > 2 * spreads[0]
