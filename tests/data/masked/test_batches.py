"""The global batch is a pure function of (seed, step), and a pass uses every example once."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
import torch

from sublayer.config.objectives.masked import MaskedObjective
from sublayer.data.masked.batches import PairBatches
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.parallel.batch_plan import BatchRule
from sublayer.data.split import Split
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.objective.masked.batches import pair_settings
from tests.data.masked.test_packing import Row, unpacked
from tests.stories import Numbers, numbered, split_of

CONTEXT, N_SEQUENCES = 24, 7

LENGTHS = [np.random.default_rng(n).integers(1, 9, 20).tolist() for n in range(6)]

UNMASKED = {"p_mask": 0.0, "p_random": 0.0}

WHOLE = {**UNMASKED, "p_short": 0.0}


def batches_of(
    split: Split, seed: int = 0, *, context: int = CONTEXT, n: int = N_SEQUENCES, **fields: Any
) -> PairBatches:
    objective = MaskedObjective.model_validate({"sentence": "sop", **fields})
    settings = pair_settings(objective, split.tokenizer, context=context)
    return PairBatches(split, settings, context=context, batch_sequences=n, seed=seed)


def rows(batches: PairBatches, first: int, n: int) -> list[Row]:
    """Give the examples of ``n`` positions of the endless row, one after another."""
    return [
        unpacked(batches.examples(range(position, position + 1)))[0]
        for position in range(first, first + n)
    ]


def text_of(row: Row) -> list[int]:
    """Give the positions in the text of what is not special."""
    return [id_ - Numbers.first for id_ in row[0] if id_ >= Numbers.first]


def equal(one: PackedBatch, other: PackedBatch) -> bool:
    def parts(batch: PackedBatch) -> list[torch.Tensor]:
        own = [batch.segments, batch.predicted_ids, batch.readouts, batch.labels]
        return [batch.read.tokens, batch.read.sequence_ids, *own]

    pairs = zip(parts(one), parts(other), strict=True)
    return one.read.lengths == other.read.lengths and all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("sentence", ["none", "sop", "nsp"])
def test_a_batch_depends_on_seed_and_step_alone(sentence: str) -> None:
    split = numbered(LENGTHS)
    steps = [0, 1, 17, 3, 40, 17, 2]
    in_order = {
        step: batches_of(split, sentence=sentence).batch(step) for step in sorted(set(steps))
    }
    others = batches_of(split, sentence=sentence)
    for step in steps:
        assert equal(others.batch(step), in_order[step])
        assert others.n_tokens(step) == in_order[step].n_tokens
    # Step 40 is many passes later.
    assert batches_of(split, sentence=sentence).n_in_passes(1) < 40 * N_SEQUENCES / 3
    assert not equal(batches_of(split, seed=1, sentence=sentence).batch(0), in_order[0])
    assert not equal(in_order[1], in_order[0])


@pytest.mark.parametrize("world", [2, 7])
def test_processes_share_a_batch_out(world: int) -> None:
    batches = batches_of(numbered(LENGTHS), sentence="nsp")
    for step in (0, 9):
        shares = [batches.batch(step, rank, world) for rank in range(world)]
        assert sorted(chain.from_iterable(map(unpacked, shares))) == sorted(
            unpacked(batches.batch(step))
        )


def test_every_example_is_used_once_in_each_pass() -> None:
    # Sentences of 7 tokens in a budget of 21: examples of three, and every token of the text in one
    # of them.
    split = numbered([[7] * 9, [7] * 6, [7] * 12])
    batches = batches_of(split, n=4, **WHOLE)
    assert batches.n_in_passes(1) == 9
    seen = [rows(batches, 9 * number, 9) for number in range(4)]
    for examples in seen:
        assert sorted(chain.from_iterable(map(text_of, examples))) == list(range(len(split.ids)))
    orders = [[min(text_of(example)) for example in examples] for examples in seen]
    assert len({tuple(order) for order in orders}) == 4
    # Steps of four run on from one pass into the next.
    steps = chain.from_iterable(unpacked(batches.batch(step)) for step in range(9))
    assert sorted(steps) == sorted(chain.from_iterable(seen))


def test_static_copies_repeat_after_so_many_passes() -> None:
    split = numbered(LENGTHS)
    batches = batches_of(split, static_copies=2)
    n_examples = [0]
    while len(n_examples) < 6:
        n_examples.append(n_examples[-1] + count_pass(batches, n_examples[-1]))
    passes = [rows(batches, start, stop - start) for start, stop in pairwise(n_examples)]
    assert sorted(passes[0]) == sorted(passes[2]) == sorted(passes[4])
    assert sorted(passes[1]) == sorted(passes[3])
    assert not set(passes[0]) & set(passes[1])
    assert passes[0] != passes[2], "each pass has an order of its own"
    assert rows(batches_of(split), 0, 5) == passes[0][:5]


def count_pass(batches: PairBatches, start: int) -> int:
    (source,) = batches._sources
    epoch, place = source.locate(start)
    assert place == 0
    return source.count(epoch)


@pytest.mark.parametrize("weights", [(1.0, 3.0), (0.5, 0.2, 0.3)], ids=str)
def test_a_mixture_gives_its_shares_in_every_stretch_and_passes_through_each_source(
    weights: tuple[float, ...],
) -> None:
    split, firsts = mixture(weights)
    texts: list[list[list[int]]] = [[] for _ in weights]
    sources = []
    for row in rows(batches_of(split, **WHOLE), 0, 240):
        text = text_of(row)
        sources.append(int(np.searchsorted(firsts, text[0], side="right")) - 1)
        texts[sources[-1]].append(text)
    for start in (0, 60, 131):
        for n in (20, 100):
            counts = Counter(sources[start : start + n])
            for number, weight in enumerate(weights):
                assert abs(counts[number] - n * weight / sum(weights)) <= len(weights) - 0.99
    for start, stop, examples in zip(firsts, [*firsts[1:], len(split.ids)], texts, strict=True):
        n_in_pass = (stop - start) // 21
        assert len(examples) >= 2 * n_in_pass
        for first in range(0, len(examples) - n_in_pass + 1, n_in_pass):
            tokens = chain.from_iterable(examples[first : first + n_in_pass])
            assert sorted(tokens) == list(range(start, stop))


def mixture(weights: Sequence[float]) -> tuple[Split, list[int]]:
    """Two documents a source, of 4, 6, 8, ... examples in all, and where each source begins."""
    lengths = [[7] * 3 * (number // 2 + 2) for number in range(2 * len(weights))]
    starts = list(range(0, 2 * len(weights), 2))
    split = numbered(lengths, source_starts=starts, weights=tuple(weights))
    return split, split.store.source_starts.tolist()


@pytest.mark.parametrize("sentence", ["none", "sop", "nsp"])
def test_an_input_is_class_a_separator_b_separator(sentence: str) -> None:
    split = numbered(LENGTHS)
    documents = split.document_starts
    seen = Counter[int]()
    for ids, segments, _, _, (label,) in rows(
        batches_of(split, sentence=sentence, **UNMASKED), 0, 80
    ):
        ends = [place for place, id_ in enumerate(ids) if id_ == Numbers.sep_id]
        assert ids[0] == Numbers.cls_id
        assert ends[-1] == len(ids) - 1 < CONTEXT
        a, b = (
            np.array(part) - Numbers.first for part in (ids[1 : ends[0]], ids[ends[0] + 1 : -1])
        )
        assert segments == (0,) * (ends[0] + 1) + (1,) * (len(ids) - ends[0] - 1)
        assert len(a) > 0 and (np.diff(a) == 1).all() and (np.diff(b) == 1).all() and a.min() >= 0
        assert len(ends) == (2 if len(b) else 1)
        if len(b):
            of_a, of_b = (int(np.searchsorted(documents, part[0], side="right")) for part in (a, b))
            is_apart = {"none": False, "sop": b[0] < a[0], "nsp": of_a != of_b}[sentence]
            assert label == (-1 if sentence == "none" else is_apart)
            assert of_a == of_b or sentence == "nsp"
        else:
            assert label == -1
        seen[label] += 1
    assert set(seen) == {-1} if sentence == "none" else set(seen) >= {0, 1}
    assert seen[0] + seen[1] > 0 or sentence == "none"


@pytest.mark.parametrize("sentence", ["none", "nsp"])
def test_pairs_of_sentences_have_each_but_the_last_as_a_once_a_pass(sentence: str) -> None:
    split = numbered(LENGTHS)
    assert split.sentence_starts is not None
    bounds = [*split.sentence_starts.tolist(), len(split.ids)]
    sentences = [tuple(range(start, stop)) for start, stop in pairwise(bounds)]
    n_pairs = len(sentences) - 1
    batches = batches_of(split, pairs="sentences", sentence=sentence, **UNMASKED)
    assert batches.n_in_passes(1) == n_pairs
    for first in (0, n_pairs):
        firsts, seconds = [], []
        for ids, segments, _, _, (label,) in rows(batches, first, n_pairs):
            parts = ([], [])
            for id_, segment in zip(ids, segments, strict=True):
                if id_ >= Numbers.first:
                    parts[segment].append(id_ - Numbers.first)
            a, b = (sentences.index(tuple(part)) for part in parts)
            assert label == (-1 if sentence == "none" else b != a + 1)
            firsts.append(a)
            seconds.append(b)
        assert sorted(firsts) == list(range(n_pairs))
        assert sorted(seconds) == list(range(1, n_pairs + 1))


def filled(split: Split, rule: BatchRule) -> PairBatches:
    objective = MaskedObjective.model_validate(
        {"pairs": "sentences", "sentence": "nsp", **UNMASKED}
    )
    settings = pair_settings(objective, split.tokenizer, context=CONTEXT)
    filling = replace(settings, steps=rule)
    return PairBatches(split, filling, context=CONTEXT, batch_sequences=N_SEQUENCES, seed=0)


def test_steps_are_filled_with_pairs_of_similar_length_each_once_a_pass() -> None:
    split = numbered(LENGTHS)
    alone = filled(split, BatchRule(tokens=64, multiple=2))
    together = filled(split, BatchRule(tokens=64, multiple=2, parts=3))
    n_pairs = alone.n_in_passes(1)

    def lengths(batches: PairBatches, step: int) -> list[int]:
        return [len(ids) for ids, *_ in unpacked(batches.batch(step))]

    for batches, parts in ((alone, 1), (together, 3)):
        firsts: list[int] = []
        n_taken = []
        while sum(n_taken) < 2 * n_pairs:
            step = len(n_taken)
            rows_of = unpacked(batches.batch(step))
            n_taken.append(len(rows_of))
            firsts += [min(text_of(row)) for row in rows_of]
            assert batches.n_tokens(step) == sum(lengths(batches, step)) <= 64 * parts
        # A pass ends with a step, and the next has all pairs anew.
        n_steps = int(np.searchsorted(np.cumsum(n_taken), n_pairs)) + 1
        assert sum(n_taken[:n_steps]) == n_pairs
        assert sum(n_taken) == 2 * n_pairs
        assert firsts[:n_pairs] != firsts[n_pairs:]
    spreads = [np.ptp(lengths(alone, step)) for step in range(20)]
    assert np.mean(spreads) < 3 < np.mean([np.ptp(lengths(together, n)) for n in range(10)])
    n_odd = sum(len(lengths(alone, step)) % 2 for step in range(20))
    assert n_odd <= 1, "only the last run of a pass may have an odd number of pairs"
    # Any step is found at once, and shared by processes.
    fresh = filled(split, BatchRule(tokens=64, multiple=2, parts=3))
    later = 2 * len(n_taken)
    assert equal(fresh.batch(later), together.batch(later))
    shares = [unpacked(fresh.batch(later, rank, 3)) for rank in range(3)]
    assert sorted(chain.from_iterable(shares)) == sorted(unpacked(fresh.batch(later)))


def test_a_process_without_a_pair_of_a_step_is_given_one_that_does_not_count() -> None:
    batches = filled(numbered([[20, 20]]), BatchRule(tokens=CONTEXT))
    whole = batches.batch(0)
    assert len(whole.labels) == 1
    assert whole.predicted_ids.numel() > 0
    spare = batches.batch(0, rank=1, world=2)
    assert spare.read.tokens.tolist() == batches.batch(0, rank=2, world=3).read.tokens.tolist()
    assert spare.predicted_ids.numel() == 0
    assert spare.labels.tolist() == [-1]
    assert equal(batches.batch(0, rank=0, world=2), whole)


def test_texts_and_tokenizers_without_examples_are_refused() -> None:
    bpe = train_tokenizer("bpe", [b"one two three"], vocab_size=260)
    settings = pair_settings(MaskedObjective(), numbered(LENGTHS).tokenizer, context=CONTEXT)
    split = split_of([["one two"]], bpe)
    with pytest.raises(ConfigError, match=r"the tokenizer of source 0 has no \[PAD\], no \[CLS"):
        PairBatches(split, settings, context=CONTEXT, batch_sequences=1, seed=0)
    with pytest.raises(DataError, match="next-sentence pairs need two documents"):
        batches_of(numbered([[3, 4, 5]]), sentence="nsp").batch(0)
    with pytest.raises(DataError, match="no document gives a pair of sentences"):
        batches_of(numbered([[3], [4]]), single_sentence="drop").batch(0)
    # Two documents whose short examples, one pass in a few, leave nothing but single sentences.
    batches = batches_of(numbered([[10, 10], [9, 8]]), single_sentence="drop", p_short=0.5)
    assert all(len(batches.batch(step).labels) > 0 for step in range(100))


def test_sources_of_one_shape_are_paired_differently() -> None:
    lengths = [[3, 4, 5, 2, 6, 3]] * 8
    split = numbered(lengths * 2, source_starts=[0, 8], weights=(0.5, 0.5))
    settings = pair_settings(MaskedObjective(sentence="sop"), split.tokenizer, context=CONTEXT)
    batches = PairBatches(split, settings, context=CONTEXT, batch_sequences=4, seed=0)
    first, second = (source._pairs(0) for source in batches._sources)
    assert (
        first.label.tolist() != second.label.tolist()
        or first.a_stop.tolist() != second.a_stop.tolist()
    )
