"""Batches: windows, gaps of spans and examples packed by best fit, functions of seed and step."""

import math
from collections import Counter
from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sublayer.config.objective import SpanObjective
from sublayer.data import span
from sublayer.data.batches import Batch, PackedSequence, Unpacked, Windows, best_fit, pack_examples
from sublayer.data.counter_rng import Purpose, seeds
from sublayer.data.span import MASKS, EpochPieces, corrupt
from sublayer.data.store import Split, TokenStore
from sublayer.data.tasks.batches import ExampleBatches
from sublayer.data.tokenizers.base import ByteTokenizer
from sublayer.data.translation_batches import BatchRule, TranslationBatches
from tests.answerers import draw_examples, rule_of, split_of
from tests.breadth import examples
from tests.data.test_masked import LENGTHS as TEXT_LENGTHS
from tests.data.test_masked import batches_of as pairs_of
from tests.data.test_parallel import random_split
from tests.packed_rows import unpack
from tests.stories import numbered

END, PAD, FIRST_TOKEN = 1, 0, 10
SENTINELS = tuple(range(99_999, 99_899, -1))
WIDTH, WRITTEN_WIDTH, FIRST_ID = 12, 6, 1
ROOM = (12, 6)
SIZES = st.lists(st.tuples(st.integers(1, 15), st.integers(0, 6)), min_size=1, max_size=30)


def make_split(ids, *, document_starts=(0,), source_starts=(0,), weights=None):
    starts = [np.array(each) for each in (document_starts, source_starts)]
    rest = {"n_bytes": len(ids), "sha256": "0" * 64, "is_lossless": True}
    store = TokenStore(np.array(ids, dtype=np.uint16), *starts, **rest)
    names = tuple(f"source {index}" for index in range(len(source_starts)))
    return Split("train", store, ByteTokenizer(), names, weights)


def restore(inputs, targets, sentinels):
    """Put the text of an input and its target, both without their ends, together again."""
    if not sentinels:
        return [*inputs, *targets]
    names, parts = set(sentinels), [[]]
    for id_ in targets:
        if id_ in names:
            parts.append([])
        else:
            parts[-1].append(id_)
    # Where the input begins with what is not noise, so does the target with its sentinel.
    rest = iter(parts if inputs[:1] and inputs[0] in names else parts[1:])
    return list(chain.from_iterable(next(rest, []) if id_ in names else [id_] for id_ in inputs))


def draw(n_rows, length, objective):
    return MASKS[objective.noise](seeds(0, Purpose.NOISE, 0, n_rows), length, objective)


def runs(row):
    return [len(run) for run in "".join("x" if noise else " " for noise in row).split()]


@pytest.mark.parametrize(("length", "density", "mean_span"), [(568, 0.15, 3.0), (9, 0.9, 2.0)])
def test_every_mask_has_exactly_its_noise_and_its_spans(length, density, mean_span):
    objective = SpanObjective(noise_density=density, mean_span=mean_span)
    n_noise, n_spans = objective.spans(length)
    for row in draw(20, length, objective):
        assert (sum(runs(row)), len(runs(row))) == (n_noise, n_spans)
        assert not row[0] and row[-1]


def test_noise_is_drawn_evenly():
    # Of 12 tokens 6 are noise, in 3 spans: 10 ways to divide 6 into 3 parts.
    objective = SpanObjective(noise_density=0.5, mean_span=2.0)
    counts = Counter(tuple(runs(row)) for row in draw(20_000, 12, objective))
    assert len(counts) == 10
    assert all(abs(count - 2000) < 5 * math.sqrt(2000) for count in counts.values())
    # Chance takes each token with the density, and a prefix has any length.
    masks = draw(2000, 100, SpanObjective(noise="iid", noise_density=0.25))
    assert abs(masks.mean() - 0.25) < 0.005 and abs(masks[:, 0].mean() - 0.25) < 0.05
    assert abs((masks[:, 1:] & masks[:, :-1]).mean() - 0.0625) < 0.005
    masks = draw(9000, 10, SpanObjective(noise="prefix"))
    assert (np.diff(masks.astype(int), axis=1) >= 0).all()
    counts = Counter((~masks).sum(1).tolist())
    assert set(counts) == set(range(1, 10))
    assert all(abs(count - 1000) < 160 for count in counts.values())


def test_inputs_and_targets_are_the_released_vectors():
    mask, texts = np.array([[1, 1, 0, 0, 1, 0]], dtype=np.bool_), np.arange(10, 16)[None]
    sides = [999, 12, 13, 998, 15], [10, 11, 999, 14, 998]
    # The opposite mask gives the targets.
    for noise, expected in ((mask, sides), (~mask, sides[::-1])):
        rows = corrupt(texts, noise, (999, 998, 997))
        assert [row.tolist() for [row] in rows] == list(expected)
    # Runs beyond the sentinels are no noise.
    mask = np.array([[0, 1, 0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 0, 1, 1]], dtype=np.bool_)
    limited = span.limit_runs(mask, 3)
    assert limited.astype(int).tolist() == [[0, 1, 0, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 1, 1]]
    assert span.limit_runs(mask, 4) is mask


@pytest.mark.parametrize("noise", MASKS)
@examples(200)
@given(st.integers(2, 300), st.floats(0.01, 0.99), st.floats(1.0, 40.0), st.integers(2, 200))
def test_inputs_and_targets_give_the_text_back(noise, length, density, mean_span, n_sentinels):
    objective = SpanObjective(noise=noise, noise_density=density, mean_span=mean_span)
    pieces = np.arange(3 * length).reshape(3, length) + 10_000
    sentinels = () if noise == "prefix" else tuple(range(n_sentinels, 0, -1))
    sides = corrupt(pieces, draw(3, length, objective), sentinels)
    for piece, source, target in zip(pieces.tolist(), *sides, strict=True):
        assert restore(source.tolist(), target.tolist(), sentinels) == piece
        for row in (source, target):
            used = [id_ for id_ in row.tolist() if id_ < 10_000]
            # Counted down from the first, and none of them twice.
            assert used == list(sentinels[: len(used)])


def span_rule(context=32, **settings):
    objective = SpanObjective(**settings).resolve(context)
    rule = {name: getattr(objective, name) for name in ("raw_length", "target_length")}
    rule |= {"sentinels": () if objective.noise == "prefix" else SENTINELS, "end_id": END}
    rule |= {"draw": MASKS[objective.noise], "settings": objective, "context": context}
    return span.CorruptionRule(**rule, pad_id=PAD, first_id=PAD)


def make_text(*lengths):
    ids = range(FIRST_TOKEN, FIRST_TOKEN + sum(lengths))
    return make_split(ids, document_starts=np.cumsum([0, *lengths[:-1]]).tolist())


def pieces_of(batch):
    """Put the text of each row together again, and check how its row ends and is read."""
    pieces = []
    for number, row in enumerate(batch.read.tokens.tolist()):
        source = row[: row.index(END)]
        assert set(row[len(source) + 1 :]) <= {PAD}
        *target, last = [id_ for id_ in batch.targets[number].tolist() if id_ >= 0]
        assert last == END
        assert batch.written.tokens[number].tolist()[: len(target) + 1] == [PAD, *target]
        pieces.append(restore(source, target, SENTINELS))
    return pieces


def epoch_pieces(split, rule, **settings):
    defaults = {"batch_sequences": 3, "seed": 0, "boundaries": "ignore", "chunk_tokens": 65_536}
    return EpochPieces(split, rule, **{**defaults, **settings})


def test_an_epoch_uses_every_piece_of_the_joined_documents_once():
    lengths = [50, 7, 93, 30]
    ends = set((FIRST_TOKEN + np.cumsum(lengths) - 1).tolist())
    batches = epoch_pieces(make_text(*lengths), span_rule())
    assert batches.n_pieces(0) == 5  # pieces of 34 of 180 tokens: five, and 10 left
    used = list(chain(*(pieces_of(batches.batch(step)) for step in range(5))))
    for pieces in (used[:5], used[5:10], used[10:]):
        tokens = list(chain(*pieces))
        assert len(tokens) == len(set(tokens)) == 170
        # What follows in a document follows in its pieces.
        for piece in pieces:
            assert all(later == token + 1 or token in ends for token, later in pairwise(piece))


def test_pieces_stay_within_their_documents_where_those_are_respected():
    split = make_text(50, 3, 93, 35)  # pieces of 34, 16; 3; 34, 34, 25; 34, of 35 one is left
    batches = epoch_pieces(split, span_rule(), boundaries="respect")
    assert batches.n_pieces(0) == 7
    pieces = list(chain(*(pieces_of(batches.batch(step)) for step in range(3))))
    assert Counter(map(len, pieces[:7])) == Counter([34, 16, 3, 34, 34, 25, 34])
    for piece in pieces:
        assert piece == list(range(piece[0], piece[0] + len(piece)))
    # A long document gives an epoch one of its chunks.
    settings, begins = {"boundaries": "respect", "chunk_tokens": 40}, Counter()
    batches = epoch_pieces(make_text(100, 40), span_rule(), **settings)
    for joined in (batches._epochs.plan(epoch).joined for epoch in range(60)):
        begins.update(zip(joined.firsts.tolist(), np.diff(joined.bounds).tolist(), strict=True))
    assert set(begins) == {(0, 40), (40, 40), (80, 20), (100, 40)}
    assert begins[100, 40] == 60 and min(begins.values()) > 8
    assert "each longer document: 1 of" in batches.notes()[0]


def test_scored_pieces_are_the_whole_text_and_always_the_same():
    rest = (make_text(50, 7, 93, 30), span_rule())
    scored, again, some = (
        span.ScoredPieces(*rest, batch_sequences=n, most=most, boundaries="ignore")
        for n, most in ((2, None), (5, None), (5, 3))
    )
    pieces = list(chain(*(pieces_of(scored.batch(number)) for number in range(scored.n_batches))))
    assert list(map(len, pieces)) == [34, 34, 34, 34, 34, 10]
    assert list(chain(*pieces)) == list(range(FIRST_TOKEN, FIRST_TOKEN + 180))
    assert scored.documents.tolist() == [0, 0, 2, 2, 2, 3]
    assert again.batch(0).read.tokens[:2].tolist() == scored.batch(0).read.tokens.tolist()
    assert [piece[0] for piece in pieces_of(some.batch(0))] == [10, 10 + 2 * 34, 10 + 5 * 34]


def test_windows_come_once_an_epoch_or_from_every_position():
    # 101 tokens hold 14 windows of 7 tokens with a target for each; 3 tokens are left over.
    windows = Windows(make_split(range(102)), context=7, batch_sequences=4, seed=5, mode="shuffled")
    assert windows.n_windows == 14
    starts = np.concatenate([windows.starts(step) for step in range(7)])  # [28]: two epochs
    assert sorted(starts[:14].tolist()) == sorted(starts[14:].tolist()) == list(range(0, 98, 7))
    assert starts[:14].tolist() != starts[14:].tolist()
    windows = Windows(make_split(range(20)), context=7, batch_sequences=3200, seed=0)
    # 13 positions, 3,200 draws: each expects 246, standard deviation 15.
    counts = np.bincount(windows.starts(0), minlength=13)
    assert len(counts) == 13
    assert 246 - 5 * 15 < counts.min() <= counts.max() < 246 + 5 * 15


@pytest.mark.parametrize("weights", [(1.0, 3.0), None])
def test_sources_are_drawn_by_weight_or_by_size(weights):
    ids = [*range(100), *range(1000, 1030)] if weights else [0] * 100 + [1000] * 300
    split = make_split(ids, source_starts=(0, 100), weights=weights)
    batch = Windows(split, context=7, batch_sequences=4000, seed=0).batch(0)
    # 4,000 draws at 3/4: standard deviation 27.
    assert abs(int((batch.tokens[:, 0] >= 1000).sum()) - 3000) < 5 * 27
    # A window is of one source.
    assert weights is None or (batch.targets - batch.tokens == 1).all()


def test_respected_boundaries_hide_targets_in_other_documents():
    split = make_split(range(14), document_starts=(0, 3, 10))
    settings = {"context": 12, "batch_sequences": 2, "seed": 0, "mode": "shuffled"}
    batch = Windows(split, **settings, boundaries="respect", n_ahead=2).batch(0)
    assert batch.targets[0].tolist() == [1, 2, -1, 4, 5, 6, 7, 8, 9, -1, 11, 12]
    assert batch.further[0, 0].tolist() == [2, -1, -1, 5, 6, 7, 8, 9, -1, -1, 12, 13]
    assert batch.document_ids.tolist() == [[0] * 3 + [1] * 7 + [2] * 2] * 2
    assert torch.equal(batch[1:2].document_ids, batch.document_ids[1:2])
    ignored = Windows(split, **settings).batch(0)
    assert ignored.targets.tolist() == [list(range(1, 13))] * 2 and ignored.document_ids is None
    one = Windows(make_split(range(14)), **settings, boundaries="respect").batch(0)
    assert one.document_ids is None, "one document has no boundaries"


def with_lengths(lengths, *, writes=False, predicts=False):
    """Examples of sequences of so many tokens, whose ids tell all apart: 100, 101 and so on."""
    next_id, examples = 100, []
    for number, of_example in enumerate(lengths):
        sequences = []
        for length in of_example:
            ids = np.arange(next_id, next_id + length)
            next_id += length
            more = {"written": -ids[:WRITTEN_WIDTH] if writes else None}
            more["targets"] = np.append(ids[1:], -1) if predicts else None
            sequences.append(PackedSequence(ids, ids % 2, length - 1, (0, length - 1), **more))
        examples.append(Unpacked(sequences, number / 2, float(number % 2), number))
    return examples


def packed(examples):
    widths = {"width": WIDTH, "written_width": WRITTEN_WIDTH}
    return pack_examples(examples, **widths, pad_id=PAD, first_id=FIRST_ID)


def check(batch, examples):
    """Every sequence of these examples stands in the batch as it was given."""
    by_number = {each.number: each for each in examples}
    assert sorted(batch.numbers) == sorted(by_number)
    own = [by_number[number] for number in batch.numbers]
    assert [*zip(batch.labels, batch.weights, strict=True)] == [(e.label, e.weight) for e in own]
    assert batch.owners.tolist() == [n for n, each in enumerate(own) for _ in each.sequences]
    expected = [sequence for each in own for sequence in each.sequences]
    assert len(expected) == batch.read.n_sequences
    places = zip(batch.readouts.tolist(), batch.spans.tolist(), strict=True)
    for found, given_, ((row, column), ends) in zip(unpack(batch), expected, places, strict=True):
        assert found.ids.tolist() == given_.ids.tolist()
        assert found.segments.tolist() == given_.segments.tolist()
        wanted = given_.targets if given_.written is None else given_.written
        if given_.written is not None:
            assert found.written.tolist() == [FIRST_ID, *wanted.tolist()[:-1]]
        assert np.array_equal(found.targets, wanted)
        assert batch.read.tokens[row, column] == given_.ids[given_.readout]
        assert batch.read.tokens[row, ends].tolist() == given_.ids[list(given_.span)].tolist()
    for side in (batch.read, batch.written):
        if side is not None:
            assert side.lengths == tuple((side.sequence_ids >= 0).sum(1).tolist())
            assert side.tokens.shape[1] == max(side.lengths)
            assert (side.mask is None) == bool((side.sequence_ids >= 0).all())
            assert (side.document_ids is None) == (int(side.sequence_ids.max()) == 0)


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=4), min_size=1, max_size=12),
    *(st.sampled_from(["none", "writes", "predicts"]), st.integers(1, 5)),
)
def test_a_batch_and_its_slices_hold_every_example_as_it_was_given(lengths, kind, size):
    examples = with_lengths(lengths, **({} if kind == "none" else {kind: True}))
    batch = packed(examples)
    check(batch, examples)
    for side, room in ((batch.read, WIDTH), (batch.written, WRITTEN_WIDTH)):
        assert side is None or max(side.lengths) <= room
    by_number = {each.number: each for each in examples}
    parts = [batch[start : start + size] for start in range(0, len(batch), size)]
    for part in (*parts, parts[0][:1]):
        check(part, [by_number[number] for number in part.numbers])
    assert [len(part) for part in parts[:-1]] == [size] * (len(parts) - 1)
    assert tuple(number for part in parts for number in part.numbers) == batch.numbers
    assert sum(part.n_tokens for part in parts) == batch.n_tokens


def test_an_example_that_does_not_fit_a_row_has_one_for_each_sequence():
    batch = packed(with_lengths([[5, 7, 6], [4], [3, 2]]))
    # Three rows of the first example are a unit, the others share a row.
    assert (batch.unit_rows, batch.read.lengths) == ((0, 3, 4), (5, 7, 6, 9))
    assert (batch.unit_examples, batch.numbers) == ((0, 1, 3), (0, 2, 1))
    # Both sequences of an example could be read in one row, but not written.
    batch = packed(with_lengths([[5, 5], [2]], writes=True))
    assert (batch.unit_rows, batch.read.lengths) == ((0, 2, 3), (5, 5, 2))
    assert batch.written.lengths == (5, 5, 2)
    # 7 and 6 begin rows, which leave 5 and 6; 5 fits the first exactly, 4 then the second.
    assert best_fit([(4, 0), (6, 0), (5, 0), (7, 0)], ROOM) == [[3, 2], [1, 0]]


@given(SIZES)
@example([(12, 0), (12, 0), (5, 6), (5, 6), (2, 0)])
def test_every_item_stands_in_one_row_within_its_room_the_fullest_first(sizes):
    rows = best_fit(sizes, ROOM)
    assert sorted(index for row in rows for index in row) == list(range(len(sizes)))
    for side, room in enumerate(ROOM):
        assert all(len(row) == 1 or sum(sizes[i][side] for i in row) <= room for row in rows)
    keys = [(len(row) > 1, -sum(sizes[index][0] for index in row)) for row in rows]
    assert keys == sorted(keys)
    # Whatever was begun later did not fit into a row that was there.
    for one, other in pairwise(best_fit([(read, 0) for read, _ in sizes], ROOM)):
        assert sum(sizes[index][0] for index in one + other) > ROOM[0]


@pytest.mark.parametrize("mode", ["random", "shuffled"])
def test_windows_are_runs_of_the_text_with_the_tokens_ahead(mode):
    least = Windows(make_split(range(8)), context=7, batch_sequences=3, seed=0, mode=mode)
    assert least.n_windows == 1 and least.starts(2).tolist() == [0, 0, 0]
    split = make_split(range(500))
    batch = Windows(split, context=7, batch_sequences=11, seed=3, mode=mode, n_ahead=3).batch(5)
    assert (batch.tokens == batch.tokens[:, :1] + torch.arange(7)).all()
    assert (batch.targets == batch.tokens + 1).all()
    assert torch.equal(batch.further, torch.stack([batch.tokens + 2, batch.tokens + 3]))
    assert torch.equal(batch[1:3].further, batch.further[:, 1:3])
    assert torch.equal(batch[1:3].tokens, batch.tokens[1:3])
    batch.tokens.zero_()
    assert split.ids.tolist() == list(range(500)), "a batch is a copy"


def windows(seed, mode):
    return Windows(numbered(TEXT_LENGTHS), context=7, batch_sequences=5, seed=seed, mode=mode)


def pairs(seed, **fields):
    return pairs_of(numbered(TEXT_LENGTHS), seed, **fields)


def sentences(seed, rule):
    return pairs(seed, pairs="sentences", sentence="nsp", steps=rule)


def translations(seed, n=600):
    return TranslationBatches(random_split(400), context=32, batch_tokens=n, seed=seed)


def pieces(seed, noise, boundaries=""):
    split, rule = numbered([[50], [70], [93], [30]]), span_rule(noise=noise)
    if not boundaries:
        return span.RandomPieces(split, rule, batch_sequences=4, seed=seed)
    return epoch_pieces(split, rule, batch_sequences=4, seed=seed, boundaries=boundaries)


def answers(seed, orders, n=5, *, fills_rows=False):
    split = split_of({"mrpc": draw_examples("mrpc", 23)}, "pair")
    rule = replace(rule_of(split), fills_rows=fills_rows)
    return ExampleBatches(split, rule=rule, batch_sequences=n, seed=seed, orders=orders)


KINDS = {
    "random windows": lambda seed: windows(seed, "random"),
    "shuffled windows": lambda seed: windows(seed, "shuffled"),
    "masked texts": lambda seed: pairs(seed, sentence="none"),
    "pairs of segments": lambda seed: pairs(seed, sentence="nsp"),
    "steps of pairs of sentences": lambda seed: sentences(seed, BatchRule(64, multiple=2, parts=3)),
    "pairs of languages": translations,
    "random pieces": lambda seed: pieces(seed, "spans"),
    "pieces of an epoch": lambda seed: pieces(seed, "iid", "ignore"),
    "pieces of documents": lambda seed: pieces(seed, "prefix", "respect"),
    "examples in given orders": lambda seed: answers(seed, "given"),
    "examples in random orders": lambda seed: answers(seed, "random"),
    "examples in both orders": lambda seed: answers(seed, "both"),
    "rows of examples": lambda seed: answers(seed, "both", fills_rows=True),
}


def rows(batch):
    """All that stands in each row, without padding, in an order that packing does not change."""
    if isinstance(batch, Batch):
        sides = zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True)
        return sorted([tokens, targets] for tokens, targets in sides)
    parts = ([part for part in sequence if part is not None] for sequence in unpack(batch))
    return sorted([part.tolist() for part in each] for each in parts)


@pytest.mark.parametrize("kind, label", [("sentences", -1), ("languages", 0), ("answers", None)])
def test_a_process_without_an_example_is_given_one_that_does_not_count(kind, label):
    made = {"sentences": sentences(3, BatchRule(24)), "languages": translations(3, 70)}
    batches = made.get(kind) or answers(3, "given", n=2)
    n = len(batches.batch(0).labels)
    shares = [rows(batches.batch(0, rank, n + 1)) for rank in range(n)]
    assert sorted(chain(*shares)) == rows(batches.batch(0))
    spare = batches.batch(0, n, n + 1)
    if label is None:
        assert spare.weights.tolist() == [0.0]
    else:
        assert spare.labels.tolist() == [label] and (spare.targets == -1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_a_function_of_seed_and_step_and_is_shared_by_processes(kind):
    make, steps = KINDS[kind], (*range(8), 40)
    one, other = make(3), make(3)
    in_order = [rows(one.batch(step)) for step in steps]
    assert [rows(other.batch(step)) for step in reversed(steps)] == in_order[::-1]
    assert in_order != [rows(make(4).batch(step)) for step in steps]
    assert len({str(found) for found in in_order}) == len(steps)
    for step, world in ((0, 2), (0, 3), (7, 3)):
        shares = [rows(one.batch(step, rank, world)) for rank in range(world)]
        assert sorted(chain(*shares)) == in_order[step]
