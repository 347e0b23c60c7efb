import numpy as np
import pytest
import torch

from sublayer.data.batches import Batch, Windows
from sublayer.errors import ConfigError, DataError


def rows(batch: Batch) -> list[tuple[list[int], list[int]]]:
    return list(zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True))


def test_targets_are_the_next_tokens(make_split):
    windows = Windows(make_split(range(100)), context=7, batch_sequences=5, seed=3)
    for tokens, targets in rows(windows.batch(11)):
        assert tokens == list(range(tokens[0], tokens[0] + 7))
        assert targets == [token + 1 for token in tokens]


@pytest.mark.parametrize("mode", ["random", "shuffled"])
def test_further_targets_are_the_tokens_after_the_next(make_split, mode):
    windows = Windows(
        make_split(range(100)), context=7, batch_sequences=5, seed=3, mode=mode, n_ahead=3
    )
    for step in range(30):
        batch = windows.batch(step)
        assert batch.further is not None
        assert torch.equal(batch.targets, batch.tokens + 1)
        assert torch.equal(batch.further, torch.stack([batch.tokens + 2, batch.tokens + 3]))
        assert torch.equal(batch[1:3].further, batch.further[:, 1:3])


def test_a_further_target_lies_in_the_document_of_its_token(make_split):
    split = make_split(range(20), document_starts=[0, 4, 5, 11])
    documents = [0] * 4 + [1] + [2] * 6 + [3] * 9
    batch = Windows(
        split, context=15, batch_sequences=8, seed=0, boundaries="respect", n_ahead=2
    ).batch(0)
    assert batch.further is not None
    for tokens, further in zip(batch.tokens.tolist(), batch.further[0].tolist(), strict=True):
        assert further == [t + 2 if documents[t + 2] == documents[t] else -1 for t in tokens]


def test_a_batch_is_a_function_of_seed_and_step_alone(make_split):
    split = make_split(range(500))
    for mode in ("random", "shuffled"):
        first = Windows(split, context=7, batch_sequences=5, seed=3, mode=mode)
        in_order = [rows(first.batch(step)) for step in range(40)]
        second = Windows(split, context=7, batch_sequences=5, seed=3, mode=mode)
        backwards = [rows(second.batch(step)) for step in reversed(range(40))]
        assert in_order == backwards[::-1]
        other = Windows(split, context=7, batch_sequences=5, seed=4, mode=mode)
        assert in_order != [rows(other.batch(step)) for step in range(40)]


def test_steps_differ(make_split):
    windows = Windows(make_split(range(1000)), context=7, batch_sequences=5, seed=0)
    assert len({str(rows(windows.batch(step))) for step in range(50)}) == 50


def test_the_ranks_rows_are_the_global_batch(make_split):
    split = make_split(range(300))
    for mode in ("random", "shuffled"):
        windows = Windows(split, context=7, batch_sequences=11, seed=1, mode=mode)
        for step in range(7):
            whole = rows(windows.batch(step))
            parts = [rows(windows.batch(step, rank=rank, world=3)) for rank in range(3)]
            assert [len(part) for part in parts] == [4, 4, 3]
            assert all(part == whole[rank::3] for rank, part in enumerate(parts))


def test_shuffled_windows_come_once_per_epoch(make_split):
    # 101 tokens hold 14 windows of 7 tokens with a target for each; 3 tokens are left over.
    windows = Windows(make_split(range(102)), context=7, batch_sequences=4, seed=5, mode="shuffled")
    assert windows.n_windows == 14
    starts = np.concatenate([windows.starts(step) for step in range(7)])  # [28]: two epochs
    assert sorted(starts[:14].tolist()) == sorted(starts[14:].tolist()) == list(range(0, 98, 7))
    assert starts[:14].tolist() != starts[14:].tolist()


def test_shuffled_targets_cover_the_split_without_overlap(make_split):
    windows = Windows(make_split(range(50)), context=7, batch_sequences=7, seed=5, mode="shuffled")
    assert sorted(windows.batch(0).targets.flatten().tolist()) == list(range(1, 50))


def test_random_windows_reach_every_position_and_none_beyond(make_split):
    windows = Windows(make_split(range(20)), context=7, batch_sequences=64, seed=0)
    starts = np.concatenate([windows.starts(step) for step in range(50)])
    # 13 positions, 3,200 draws: each expects 246, standard deviation 15.
    counts = np.bincount(starts, minlength=13)
    assert len(counts) == 13
    assert 246 - 5 * 15 < counts.min() <= counts.max() < 246 + 5 * 15


def test_the_only_window_of_a_short_split_is_used(make_split):
    for mode in ("random", "shuffled"):
        windows = Windows(make_split(range(8)), context=7, batch_sequences=3, seed=0, mode=mode)
        assert windows.n_windows == 1
        assert windows.starts(2).tolist() == [0, 0, 0]


def test_sources_are_drawn_by_weight_and_never_mixed_in_a_window(make_split):
    ids = [*range(100), *range(1000, 1030)]
    split = make_split(ids, source_starts=(0, 100), weights=(1.0, 3.0))
    windows = Windows(split, context=7, batch_sequences=50, seed=0)
    first = np.concatenate([windows.batch(step).tokens[:, 0].numpy() for step in range(80)])
    # 4,000 draws at 3/4: standard deviation 27.
    assert abs(np.count_nonzero(first >= 1000) - 3000) < 5 * 27
    for step in range(80):
        batch = windows.batch(step)
        assert bool(((batch.targets - batch.tokens) == 1).all())


def test_without_weights_sources_are_drawn_by_size(make_split):
    split = make_split([*[0] * 900, *[1] * 300], source_starts=(0, 900))
    windows = Windows(split, context=3, batch_sequences=50, seed=0)
    first = np.concatenate([windows.batch(step).tokens[:, 0].numpy() for step in range(80)])
    assert abs(first.sum() - 1000) < 5 * 27


def test_respected_boundaries_hide_targets_in_other_documents(make_split):
    split = make_split(range(14), document_starts=(0, 3, 10))
    windows = Windows(split, context=13, batch_sequences=1, seed=0, boundaries="respect")
    batch = windows.batch(0)
    assert batch.targets.tolist() == [[1, 2, -1, 4, 5, 6, 7, 8, 9, -1, 11, 12, 13]]
    assert batch.document_ids is not None
    assert batch.document_ids.tolist() == [[0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2]]


def test_ignored_boundaries_leave_targets_and_no_documents(make_split):
    split = make_split(range(14), document_starts=(0, 3, 10))
    batch = Windows(split, context=13, batch_sequences=1, seed=0).batch(0)
    assert batch.targets.tolist() == [list(range(1, 14))]
    assert batch.document_ids is None


def test_one_document_has_no_boundaries(make_split):
    windows = Windows(
        make_split(range(14)), context=13, batch_sequences=1, seed=0, boundaries="respect"
    )
    assert windows.batch(0).document_ids is None


def test_rows_of_a_batch_are_a_batch(make_split):
    split = make_split(range(60), document_starts=(0, 20))
    batch = Windows(split, context=7, batch_sequences=5, seed=0, boundaries="respect").batch(0)
    part = batch[1:3]
    assert len(batch) == 5
    assert len(part) == 2
    assert torch.equal(part.tokens, batch.tokens[1:3])
    assert part.document_ids is not None
    assert batch.document_ids is not None
    assert torch.equal(part.document_ids, batch.document_ids[1:3])


def test_a_batch_does_not_change_the_split(make_split):
    split = make_split(range(60))
    windows = Windows(split, context=7, batch_sequences=5, seed=0)
    windows.batch(0).tokens.zero_()
    assert split.ids.tolist() == list(range(60))
    assert windows.batch(0).tokens.dtype == torch.int64


def test_the_draws_are_these_numbers(make_split):
    # Written down once: a change of them would change every run's data without a word.
    split = make_split(range(1000))
    assert Windows(split, context=7, batch_sequences=4, seed=0).starts(0).tolist() == [
        614,
        242,
        329,
        16,
    ]
    assert Windows(split, context=7, batch_sequences=4, seed=1, mode="shuffled").starts(
        0
    ).tolist() == [
        497,
        238,
        868,
        28,
    ]


def test_a_split_shorter_than_a_window_is_refused(make_split):
    with pytest.raises(
        DataError, match=r"train split of source 0 has 7 tokens, fewer than data.context \+ 1 = 8"
    ):
        Windows(make_split(range(7)), context=7, batch_sequences=1, seed=0)


def test_a_weighted_source_shorter_than_a_window_is_refused(make_split):
    split = make_split(range(100), source_starts=(0, 95), weights=(0.5, 0.5))
    with pytest.raises(DataError, match="train split of source 1 has 5 tokens"):
        Windows(split, context=7, batch_sequences=1, seed=0)


def test_weights_need_random_windows(make_split):
    split = make_split(range(100), source_starts=(0, 50), weights=(0.5, 0.5))
    with pytest.raises(
        ConfigError, match=r"data.windows = shuffled contradicts the weights in data.path"
    ):
        Windows(split, context=7, batch_sequences=1, seed=0, mode="shuffled")
