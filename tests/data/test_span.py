"""Spans of noise drawn evenly, texts given back, and pieces that are a text once."""

import math
from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.objectives.noise import spans_of
from sublayer.config.objectives.span import SpanObjective
from sublayer.data.counter_rng import Purpose, seeds
from sublayer.data.span.batches import EpochPieces, RandomPieces, ScoredPieces
from sublayer.data.span.corruption import corrupt, limit_runs
from sublayer.data.span.examples import CorruptionRule
from sublayer.data.span.masks import MASKS
from tests.breadth import examples

END, PAD, FIRST_TOKEN = 1, 0, 10
SENTINELS = tuple(range(99_999, 99_899, -1))


def restore(inputs, targets, sentinels):
    """Put the text of an input and its target together again; neither has its end.

    A sentinel of the input for which the target has nothing leaves a gap without text.
    """
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
    """Return the lengths of a mask's runs of noise."""
    return [len(run) for run in "".join("x" if noise else " " for noise in row).split()]


@pytest.mark.parametrize(("length", "density", "mean_span"), [(568, 0.15, 3.0), (9, 0.9, 2.0)])
def test_every_mask_has_exactly_its_noise_and_its_spans(length, density, mean_span):
    objective = SpanObjective(noise_density=density, mean_span=mean_span)
    n_noise, n_spans = spans_of(objective, length)
    for row in draw(20, length, objective):
        assert (sum(runs(row)), len(runs(row))) == (n_noise, n_spans)
        assert not row[0] and row[-1]


def test_every_division_of_the_noise_is_as_likely():
    # Of 12 tokens 6 are noise, in 3 spans: 10 ways to divide 6 into 3 parts.
    objective = SpanObjective(noise_density=0.5, mean_span=2.0)
    counts = Counter(tuple(runs(row)) for row in draw(20_000, 12, objective))
    assert len(counts) == 10
    assert all(abs(count - 2000) < 5 * math.sqrt(2000) for count in counts.values())


def test_chance_takes_each_token_with_the_density_and_a_prefix_has_any_length():
    masks = draw(2000, 100, SpanObjective(noise="iid", noise_density=0.25))
    assert abs(masks.mean() - 0.25) < 0.005
    assert abs(masks[:, 0].mean() - 0.25) < 0.05
    assert abs((masks[:, 1:] & masks[:, :-1]).mean() - 0.0625) < 0.005
    masks = draw(9000, 10, SpanObjective(noise="prefix"))
    assert (np.diff(masks.astype(int), axis=1) >= 0).all()
    counts = Counter((~masks).sum(1).tolist())
    assert set(counts) == set(range(1, 10))
    assert all(abs(count - 1000) < 160 for count in counts.values())


def test_runs_beyond_the_sentinels_are_not_noise():
    mask = np.array([[0, 1, 0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 0, 1, 1]], dtype=np.bool_)
    limited = limit_runs(mask, 3)
    assert limited.astype(int).tolist() == [[0, 1, 0, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 1, 1]]
    assert limit_runs(mask, 4) is mask


@pytest.mark.parametrize(
    ("mask", "inputs", "targets"),
    [
        # The released vectors: the same function on the opposite mask gives the targets.
        ([1, 1, 0, 0, 1, 0], [999, 12, 13, 998, 15], [10, 11, 999, 14, 998]),
        # A piece that begins as it is has a sentinel before each span.
        ([0, 0, 1, 1, 0, 1], [10, 11, 999, 14, 998], [999, 12, 13, 998, 15]),
    ],
)
def test_inputs_and_targets_are_the_released_vectors(mask, inputs, targets):
    rows = corrupt(np.arange(10, 16)[None], np.array([mask], dtype=np.bool_), (999, 998, 997))
    assert [row.ids.tolist() for row in rows] == [inputs, targets]


@pytest.mark.parametrize("noise", MASKS)
@examples(200)
@given(
    length=st.integers(2, 300),
    density=st.floats(0.01, 0.99),
    mean_span=st.floats(1.0, 40.0),
    n_sentinels=st.integers(2, 200),
)
def test_inputs_and_targets_give_the_text_back(noise, length, density, mean_span, n_sentinels):
    objective = SpanObjective(noise=noise, noise_density=density, mean_span=mean_span)
    pieces = np.arange(3 * length).reshape(3, length) + 10_000
    sentinels = () if noise == "prefix" else tuple(range(n_sentinels, 0, -1))
    sides = corrupt(pieces, draw(3, length, objective), sentinels)
    divided = [np.split(side.ids, np.cumsum(side.lengths)[:-1]) for side in sides]
    for piece, source, target in zip(pieces.tolist(), *divided, strict=True):
        assert restore(source.tolist(), target.tolist(), sentinels) == piece
        for row in (source, target):
            used = [id_ for id_ in row.tolist() if id_ < 10_000]
            # Counted down from the first, and none of them twice.
            assert used == list(sentinels[: len(used)])


def rule_of(context=32, **settings):
    objective = SpanObjective(**settings).resolve(context)
    return CorruptionRule(
        draw=MASKS[objective.noise],
        settings=objective,
        context=context,
        raw_length=objective.raw_length,
        target_length=objective.target_length,
        sentinels=() if objective.noise == "prefix" else SENTINELS,
        end_id=END,
        pad_id=PAD,
        first_id=PAD,
    )


@pytest.fixture
def make_text(make_split):
    def make(lengths):
        """Make a split of documents whose tokens count up through all of them."""
        starts = np.cumsum([0, *lengths[:-1]])
        return make_split(
            range(FIRST_TOKEN, FIRST_TOKEN + sum(lengths)), document_starts=starts.tolist()
        )

    return make


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


def test_an_epoch_uses_every_piece_of_the_joined_documents_once(make_text):
    lengths = [50, 7, 93, 30]
    ends = set((FIRST_TOKEN + np.cumsum(lengths) - 1).tolist())
    batches = epoch_pieces(make_text(lengths), rule_of())
    assert batches.n_pieces(0) == 5  # pieces of 34 of 180 tokens: five, and 10 left
    used = list(chain(*(pieces_of(batches.batch(step)) for step in range(5))))
    for pieces in (used[:5], used[5:10], used[10:]):
        tokens = list(chain(*pieces))
        assert len(tokens) == len(set(tokens)) == 170
        # What follows in a document follows in its pieces.
        for piece in pieces:
            assert all(later == token + 1 or token in ends for token, later in pairwise(piece))


def test_pieces_stay_within_their_documents_where_those_are_respected(make_text):
    split = make_text([50, 3, 93, 35])  # pieces of 34, 16; 3; 34, 34, 25; 34, of 35 one is left
    batches = epoch_pieces(split, rule_of(), boundaries="respect")
    assert batches.n_pieces(0) == 7
    pieces = list(chain(*(pieces_of(batches.batch(step)) for step in range(3))))
    assert Counter(map(len, pieces[:7])) == Counter([34, 16, 3, 34, 34, 25, 34])
    for piece in pieces:
        assert piece == list(range(piece[0], piece[0] + len(piece)))


def test_a_long_document_gives_an_epoch_one_of_its_chunks(make_text):
    split = make_text([100, 40])
    batches = epoch_pieces(split, rule_of(), boundaries="respect", chunk_tokens=40)
    begins = Counter()
    for epoch in range(60):
        joined = batches._pieces(epoch).joined
        for first, length in zip(joined.firsts, np.diff(joined.bounds), strict=True):
            begins[int(first), int(length)] += 1
    assert set(begins) == {(0, 40), (40, 40), (80, 20), (100, 40)}
    assert begins[100, 40] == 60 and min(begins.values()) > 8
    assert "each longer document: 1 of" in batches.notes()[0]


def test_all_rows_of_spans_are_as_long_and_nothing_is_padded(make_text):
    split = make_text([700, 400])
    for batches in (
        epoch_pieces(split, rule_of(128)),
        RandomPieces(split, rule_of(128), batch_sequences=3, seed=0),
    ):
        batch = batches.batch(1)
        assert batch.read.tokens.shape == (3, 128) and batch.read.mask is None
        assert batch.targets.shape == batch.written.tokens.shape == (3, 29)
        assert batch.n_predicted == 3 * 29 and batches.n_tokens(1) == 3 * 128
        assert all(len(piece) == 141 for piece in pieces_of(batch))


def test_scored_pieces_are_the_whole_text_and_always_the_same(make_text):
    split = make_text([50, 7, 93, 30])
    scored, again, some = (
        ScoredPieces(split, rule_of(), batch_sequences=n, boundaries="ignore", most=most)
        for n, most in ((2, None), (5, None), (5, 3))
    )
    pieces = list(chain(*(pieces_of(scored.batch(number)) for number in range(scored.n_batches))))
    assert list(map(len, pieces)) == [34, 34, 34, 34, 34, 10]
    assert list(chain(*pieces)) == list(range(FIRST_TOKEN, FIRST_TOKEN + 180))
    assert scored.documents.tolist() == [0, 0, 2, 2, 2, 3]
    assert again.batch(0).read.tokens[:2].tolist() == scored.batch(0).read.tokens.tolist()
    assert [piece[0] for piece in pieces_of(some.batch(0))] == [10, 10 + 2 * 34, 10 + 5 * 34]
