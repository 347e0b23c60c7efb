"""Spans of noise drawn evenly, texts given back, and batches that follow from the seed."""

import math
from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.objectives.noise import spans_of
from sublayer.config.objectives.span import SpanObjective
from sublayer.data.arrays import Bools
from sublayer.data.counter_rng import Purpose, seeds
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.span.batches import EpochPieces, RandomPieces, ScoredPieces
from sublayer.data.span.corruption import corrupt, limit_runs
from sublayer.data.span.examples import CorruptionRule
from sublayer.data.span.masks import MASKS, chance_mask, prefix_mask, span_mask
from sublayer.errors import DataError
from tests.breadth import examples
from tests.data.span.restoring import restore, split_at_sentinels

T5 = SpanObjective()


def draw(n_rows: int, length: int, objective: SpanObjective = T5, seed: int = 0) -> Bools:
    bits = seeds(seed, Purpose.NOISE, 0, n_rows)
    return MASKS[objective.noise](bits, length, objective)


def runs(row: Bools) -> list[int]:
    """Return the lengths of a mask's runs of noise."""
    return [len(run) for run in "".join("x" if noise else " " for noise in row).split()]


@pytest.mark.parametrize("length", [9, 568])
@pytest.mark.parametrize(("density", "mean_span"), [(0.15, 3.0), (0.9, 2.0)])
def test_every_mask_has_exactly_its_noise_and_its_spans(
    length: int, density: float, mean_span: float
) -> None:
    objective = SpanObjective(noise_density=density, mean_span=mean_span)
    n_noise, n_spans = spans_of(objective, length)
    for row in draw(20, length, objective):
        assert sum(runs(row)) == n_noise
        assert len(runs(row)) == n_spans
        assert not row[0]
        assert row[-1]


def test_every_division_of_the_noise_is_as_likely() -> None:
    # Of 12 tokens 6 are noise, in 3 spans: 10 ways to divide 6 into 3 parts.
    objective = SpanObjective(noise_density=0.5, mean_span=2.0)
    counts = Counter(tuple(runs(row)) for row in draw(20_000, 12, objective))
    assert len(counts) == 10
    expected = 2000
    deviation = math.sqrt(expected)
    assert all(abs(count - expected) < 5 * deviation for count in counts.values())


def test_chance_takes_each_token_with_the_density() -> None:
    objective = SpanObjective(noise="iid", noise_density=0.25)
    masks = draw(2000, 100, objective)
    assert abs(masks.mean() - 0.25) < 0.005
    assert abs(masks[:, 0].mean() - 0.25) < 0.05
    both = (masks[:, 1:] & masks[:, :-1]).mean()
    assert abs(both - 0.0625) < 0.005


def test_a_prefix_is_of_any_length_as_often() -> None:
    masks = draw(9000, 10, SpanObjective(noise="prefix"))
    assert (np.diff(masks.astype(int), axis=1) >= 0).all()
    counts = Counter((~masks).sum(1).tolist())
    assert set(counts) == set(range(1, 10))
    assert all(abs(count - 1000) < 160 for count in counts.values())


@pytest.mark.parametrize("mask", [span_mask, chance_mask, prefix_mask])
def test_a_row_depends_on_its_own_seed_alone(mask) -> None:
    bits = seeds(3, Purpose.NOISE, 0, 8)
    together = mask(bits, 70, T5)
    for number in range(8):
        assert (mask(bits[number : number + 1], 70, T5)[0] == together[number]).all()


def test_runs_beyond_the_sentinels_are_not_noise() -> None:
    mask = np.array([[0, 1, 0, 1, 1, 0, 1, 0], [1, 1, 0, 0, 0, 0, 1, 1]], dtype=np.bool_)
    limited = limit_runs(mask, 3)
    assert limited.astype(int).tolist() == [[0, 1, 0, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 1, 1]]
    assert limit_runs(mask, 4) is mask


RELEASED = tuple(range(999, 899, -1))


@pytest.mark.parametrize(
    ("mask", "sentinels", "inputs", "targets"),
    [
        # The released vectors: the same function on the opposite mask gives the targets.
        ([1, 1, 0, 0, 1, 0], RELEASED, [999, 12, 13, 998, 15], [10, 11, 999, 14, 998]),
        # A piece that begins as it is has a sentinel before each span.
        ([0, 0, 1, 1, 0, 1], RELEASED, [10, 11, 999, 14, 998], [999, 12, 13, 998, 15]),
        ([0, 0, 1, 1], (), [10, 11], [12, 13]),
    ],
)
def test_inputs_and_targets_are_the_released_vectors(mask, sentinels, inputs, targets) -> None:
    pieces = np.arange(10, 10 + len(mask))[None]
    rows = corrupt(pieces, np.array([mask], dtype=np.bool_), sentinels)
    assert [row.ids.tolist() for row in rows] == [inputs, targets]
    assert [len(row.lengths) for row in rows] == [1, 1]

    assert split_at_sentinels([5, 999, 6, 7, 998], RELEASED) == [[5], [6, 7], []]


@pytest.mark.parametrize("noise", MASKS)
@examples(200)
@given(
    length=st.integers(2, 300),
    density=st.floats(0.01, 0.99),
    mean_span=st.floats(1.0, 40.0),
    seed=st.integers(0, 2**63 - 1),
    n_sentinels=st.integers(2, 200),
)
def test_inputs_and_targets_give_the_text_back(
    noise: str, length: int, density: float, mean_span: float, seed: int, n_sentinels: int
) -> None:
    objective = SpanObjective(noise=noise, noise_density=density, mean_span=mean_span)
    mask = MASKS[noise](seeds(seed, Purpose.NOISE, 0, 3), length, objective)
    pieces = np.arange(3 * length).reshape(3, length) + 10_000
    sentinels = () if noise == "prefix" else tuple(range(n_sentinels, 0, -1))
    inputs, targets = corrupt(pieces, mask, sentinels)
    input_rows = np.split(inputs.ids, np.cumsum(inputs.lengths)[:-1])
    target_rows = np.split(targets.ids, np.cumsum(targets.lengths)[:-1])
    for piece, source, target in zip(pieces.tolist(), input_rows, target_rows, strict=True):
        assert restore(source.tolist(), target.tolist(), sentinels) == piece
        for row in (source, target):
            used = [id_ for id_ in row.tolist() if id_ < 10_000]
            # Counted down from the first, and none of them twice.
            assert used == list(sentinels[: len(used)])


END, PAD = 1, 0

SENTINELS = tuple(range(99_999, 99_899, -1))

FIRST_TOKEN = 10


def rule_of(context: int = 32, **settings: object) -> CorruptionRule:
    objective = SpanObjective(**settings).resolve(context)  # type: ignore[arg-type]
    assert objective.raw_length is not None and objective.target_length is not None
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


def pieces_of(batch: PackedBatch) -> list[list[int]]:
    """Put the text of each row together again, and check how its row ends and is read."""
    pieces = []
    for number, row in enumerate(batch.read.tokens.tolist()):
        source = row[: row.index(END)]
        assert set(row[len(source) + 1 :]) <= {PAD}
        labels = [id_ for id_ in batch.targets[number].tolist() if id_ >= 0]
        assert labels[-1] == END
        target = labels[:-1]
        assert batch.written.tokens[number].tolist()[: len(labels)] == [PAD, *target]
        pieces.append(restore(source, target, SENTINELS))
    return pieces


def epoch_pieces(split, rule, **settings) -> EpochPieces:
    defaults = {"batch_sequences": 3, "seed": 0, "boundaries": "ignore", "chunk_tokens": 65_536}
    return EpochPieces(split, rule, **{**defaults, **settings})


def test_an_epoch_uses_every_piece_of_the_joined_documents_once(make_text) -> None:
    lengths = [50, 7, 93, 30]
    ends = set((FIRST_TOKEN + np.cumsum(lengths) - 1).tolist())
    batches = epoch_pieces(make_text(lengths), rule_of())
    assert batches.n_pieces(0) == 5  # pieces of 34 of 180 tokens: five, and 10 left
    for epoch in range(3):
        pieces = []
        for row in range(5 * epoch, 5 * epoch + 5):
            pieces.append(pieces_of(batches.batch(row // 3))[row % 3])
        tokens = [token for piece in pieces for token in piece]
        assert len(tokens) == len(set(tokens)) == 170
        # What follows in a document follows in its pieces.
        for piece in pieces:
            assert all(later == token + 1 or token in ends for token, later in pairwise(piece))


def test_pieces_stay_within_their_documents_where_those_are_respected(make_text) -> None:
    split = make_text([50, 3, 93, 35])  # pieces of 34, 16; 3; 34, 34, 25; 34, of 35 one is left
    batches = epoch_pieces(split, rule_of(), boundaries="respect")
    assert batches.n_pieces(0) == 7
    pieces = pieces_of(batches.batch(0)) + pieces_of(batches.batch(1)) + pieces_of(batches.batch(2))
    assert Counter(map(len, pieces[:7])) == Counter([34, 16, 3, 34, 34, 25, 34])
    for piece in pieces:
        assert piece == list(range(piece[0], piece[0] + len(piece)))


def test_a_long_document_gives_an_epoch_one_of_its_chunks(make_text) -> None:
    split = make_text([100, 40])
    batches = epoch_pieces(split, rule_of(), boundaries="respect", chunk_tokens=40)
    begins = Counter()
    for epoch in range(60):
        joined = batches._pieces(epoch).joined
        for first, length in zip(joined.firsts, np.diff(joined.bounds), strict=True):
            begins[int(first), int(length)] += 1
    assert set(begins) == {(0, 40), (40, 40), (80, 20), (100, 40)}
    assert begins[100, 40] == 60
    assert min(begins.values()) > 8
    assert "each longer document: 1 of" in batches.notes()[0]


@pytest.mark.parametrize(
    ("noise", "kind"), list(zip(MASKS, ("random", "epoch", "respect"), strict=True))
)
def test_a_batch_is_a_function_of_seed_and_step_and_is_shared_by_processes(
    make_text, noise: str, kind: str
) -> None:
    split, rule = make_text([50, 70, 93, 30]), rule_of(noise=noise)

    def make(seed: int) -> EpochPieces | RandomPieces:
        if kind == "random":
            return RandomPieces(split, rule, batch_sequences=4, seed=seed)
        boundaries = "respect" if kind == "respect" else "ignore"
        return epoch_pieces(split, rule, batch_sequences=4, seed=seed, boundaries=boundaries)

    def rows(batch: PackedBatch) -> list[list[int]]:
        sides = zip(batch.read.tokens.tolist(), batch.targets.tolist(), strict=True)
        return [
            [id_ for id_ in row if id_ != PAD] + [id_ for id_ in labels if id_ >= 0]
            for row, labels in sides
        ]

    in_order = [rows(make(3).batch(step)) for step in range(8)]
    one = make(3)
    backwards = [rows(one.batch(step)) for step in reversed(range(8))]
    assert in_order == backwards[::-1]
    assert in_order != [rows(make(4).batch(step)) for step in range(8)]
    assert len({str(step) for step in in_order}) == 8
    for step in range(3):
        shares = [rows(one.batch(step, rank, 2)) for rank in range(2)]
        assert [shares[row % 2][row // 2] for row in range(4)] == in_order[step]


def test_all_rows_of_spans_are_as_long_and_nothing_is_padded(make_text) -> None:
    split = make_text([700, 400])
    for batches in (
        epoch_pieces(split, rule_of(128)),
        RandomPieces(split, rule_of(128), batch_sequences=3, seed=0),
    ):
        for step in range(4):
            batch = batches.batch(step)
            assert batch.read.tokens.shape == (3, 128)
            assert batch.targets.shape == batch.written.tokens.shape == (3, 29)
            assert batch.read.mask is None
            assert batch.n_predicted == 3 * 29
            assert batches.n_tokens(step) == 3 * 128
            assert all(len(piece) == 141 for piece in pieces_of(batch))


def test_targets_that_are_too_long_are_cut_before_their_end(make_text) -> None:
    rule = rule_of(64, noise="iid", noise_density=0.5, target_length=12)
    batch = epoch_pieces(make_text([700]), rule).batch(0)
    assert batch.targets.shape == (3, 12)
    assert batch.targets[:, -1].tolist() == [END] * 3


def test_scored_pieces_are_the_whole_text_and_always_the_same(make_text) -> None:
    split = make_text([50, 7, 93, 30])
    scored = ScoredPieces(split, rule_of(), batch_sequences=2, boundaries="ignore")
    pieces = [
        piece for number in range(scored.n_batches) for piece in pieces_of(scored.batch(number))
    ]
    assert list(map(len, pieces)) == [34, 34, 34, 34, 34, 10]
    assert list(chain.from_iterable(pieces)) == list(range(FIRST_TOKEN, FIRST_TOKEN + 180))
    assert scored.documents.tolist() == [0, 0, 2, 2, 2, 3]
    again = ScoredPieces(split, rule_of(), batch_sequences=5, boundaries="ignore")
    assert again.batch(0).read.tokens[:2].tolist() == scored.batch(0).read.tokens.tolist()
    some = ScoredPieces(split, rule_of(), batch_sequences=5, boundaries="ignore", most=3)
    assert [piece[0] for piece in pieces_of(some.batch(0))] == [10, 10 + 2 * 34, 10 + 5 * 34]


def test_a_text_without_a_piece_is_refused(make_text) -> None:
    split = make_text([20, 10])
    with pytest.raises(
        DataError, match="has 30 tokens, fewer than objective.raw_length = 34: give"
    ):
        epoch_pieces(split, rule_of())
    with pytest.raises(DataError, match="has 30 tokens, fewer than objective.raw_length = 34"):
        RandomPieces(split, rule_of(), batch_sequences=2, seed=0)
    assert epoch_pieces(split, rule_of(), boundaries="respect").n_pieces(0) == 2
    with pytest.raises(DataError, match="gives no piece that can be corrupted: give longer"):
        epoch_pieces(make_text([1, 1]), rule_of(), boundaries="respect")
