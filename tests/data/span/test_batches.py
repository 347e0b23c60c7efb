"""Batches of corrupted pieces: a pure function of seed, epoch and piece."""

from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest

from sublayer.config.objectives.span import SpanObjective
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.span.batches import EpochPieces, RandomPieces, ScoredPieces
from sublayer.data.span.examples import CorruptionRule
from sublayer.data.span.masks import MASKS
from sublayer.errors import DataError
from tests.data.span.restoring import restore

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


@pytest.mark.parametrize("noise", MASKS)
@pytest.mark.parametrize("kind", ["random", "epoch", "respect"])
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
