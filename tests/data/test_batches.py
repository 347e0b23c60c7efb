"""Windows of a text: a function of seed and step, shared by processes, within their documents."""

import numpy as np
import pytest
import torch

from sublayer.data.batches import Batch, Windows
from sublayer.errors import ConfigError, DataError


def rows(batch: Batch) -> list[tuple[list[int], list[int]]]:
    return list(zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True))


@pytest.mark.parametrize("mode", ["random", "shuffled"])
def test_a_batch_is_a_function_of_seed_and_step_and_is_shared_by_processes(make_split, mode):
    split = make_split(range(500))
    first, second, other = (
        Windows(split, context=7, batch_sequences=11, seed=seed, mode=mode, n_ahead=3)
        for seed in (3, 3, 4)
    )
    in_order = [rows(first.batch(step)) for step in range(40)]
    assert in_order == [rows(second.batch(step)) for step in reversed(range(40))][::-1]
    assert in_order != [rows(other.batch(step)) for step in range(40)]
    assert len(set(map(str, in_order))) == 40
    parts = [rows(first.batch(5, rank=rank, world=3)) for rank in range(3)]
    assert parts == [in_order[5][rank::3] for rank in range(3)]
    batch = first.batch(5)
    assert (batch.tokens == batch.tokens[:, :1] + torch.arange(7)).all()
    assert (batch.targets == batch.tokens + 1).all()
    assert torch.equal(batch.further, torch.stack([batch.tokens + 2, batch.tokens + 3]))
    assert torch.equal(batch[1:3].further, batch.further[:, 1:3])
    batch.tokens.zero_()
    assert split.ids.tolist() == list(range(500)), "a batch is a copy"


def test_windows_come_once_an_epoch_or_from_every_position(make_split):
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
    for mode in ("random", "shuffled"):
        windows = Windows(make_split(range(8)), context=7, batch_sequences=3, seed=0, mode=mode)
        assert windows.n_windows == 1 and windows.starts(2).tolist() == [0, 0, 0]


@pytest.mark.parametrize("weights", [(1.0, 3.0), None])
def test_sources_are_drawn_by_weight_or_by_size(make_split, weights):
    ids = [*range(100), *range(1000, 1030)] if weights else [0] * 100 + [1000] * 300
    split = make_split(ids, source_starts=(0, 100), weights=weights)
    batch = Windows(split, context=7, batch_sequences=4000, seed=0).batch(0)
    # 4,000 draws at 3/4: standard deviation 27.
    assert abs(int((batch.tokens[:, 0] >= 1000).sum()) - 3000) < 5 * 27
    # A window is of one source.
    assert weights is None or (batch.targets - batch.tokens == 1).all()


def test_respected_boundaries_hide_targets_in_other_documents(make_split):
    split = make_split(range(14), document_starts=(0, 3, 10))
    settings = {"context": 12, "batch_sequences": 2, "seed": 0, "mode": "shuffled"}
    batch = Windows(split, **settings, boundaries="respect", n_ahead=2).batch(0)
    assert batch.targets[0].tolist() == [1, 2, -1, 4, 5, 6, 7, 8, 9, -1, 11, 12]
    assert batch.further[0, 0].tolist() == [2, -1, -1, 5, 6, 7, 8, 9, -1, -1, 12, 13]
    assert batch.document_ids.tolist() == [[0] * 3 + [1] * 7 + [2] * 2] * 2
    part = batch[1:2]
    assert (len(batch), len(part)) == (2, 1)
    assert torch.equal(part.document_ids, batch.document_ids[1:2])
    assert torch.equal(part.tokens, batch.tokens[1:2])
    ignored = Windows(split, **settings).batch(0)
    assert ignored.targets.tolist() == [list(range(1, 13))] * 2 and ignored.document_ids is None
    one = Windows(make_split(range(14)), **settings, boundaries="respect").batch(0)
    assert one.document_ids is None, "one document has no boundaries"


def test_splits_without_a_window_are_refused(make_split):
    settings = {"context": 7, "batch_sequences": 1, "seed": 0}
    with pytest.raises(DataError, match=r"source 0 has 7 tokens, fewer than data.context \+ 1 = "):
        Windows(make_split(range(7)), **settings)
    weights = (0.5, 0.5)
    with pytest.raises(DataError, match="train split of source 1 has 5 tokens"):
        Windows(make_split(range(100), source_starts=(0, 95), weights=weights), **settings)
    split = make_split(range(100), source_starts=(0, 50), weights=weights)
    with pytest.raises(ConfigError, match=r"data.windows = shuffled contradicts the weights"):
        Windows(split, **settings, mode="shuffled")
