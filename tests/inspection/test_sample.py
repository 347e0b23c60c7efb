"""Windows are whole, spread over all of a text, and never overlap."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.errors import DataError
from sublayer.inspection.sample import spread_rows, spread_windows


def split_of(n_tokens: int, document_starts: tuple[int, ...] = (0,)) -> Split:
    starts = np.array(document_starts, dtype=np.int64)
    store = TokenStore(
        np.arange(n_tokens, dtype=np.uint16), starts, np.array([0]), n_tokens, "", is_lossless=True
    )
    return Split("valid", store, ByteTokenizer(), ("book.txt",))


@pytest.mark.parametrize(
    ("max_tokens", "firsts"),
    [
        (1, [0]),
        (4, [0]),
        (8, [0, 8]),
        (11, [0, 8]),
        (12, [0, 4, 12]),
        (20, [0, 4, 8, 12, 16]),
        (99, [0, 4, 8, 12, 16]),
    ],
)
def test_windows_by_hand(max_tokens: int, firsts: list[int]) -> None:
    sample = spread_windows(split_of(23), context=4, max_tokens=max_tokens)
    assert sample.tokens.tolist() == [[first, first + 1, first + 2, first + 3] for first in firsts]
    assert (len(sample), sample.n_tokens) == (len(firsts), 4 * len(firsts))
    assert sample.document_ids is None


@given(n_tokens=st.integers(1, 400), context=st.integers(1, 20), max_tokens=st.integers(1, 500))
def test_windows_keep_to_the_limit_and_reach_both_halves(
    n_tokens: int, context: int, max_tokens: int
) -> None:
    if n_tokens < context:
        with pytest.raises(DataError):
            spread_windows(split_of(n_tokens), context=context, max_tokens=max_tokens)
        return
    tokens = spread_windows(split_of(n_tokens), context=context, max_tokens=max_tokens).tokens
    assert tokens.unique().numel() == tokens.numel() <= max(max_tokens, context)
    n_whole = n_tokens // context
    assert len(tokens) == min(n_whole, max(1, max_tokens // context))
    if len(tokens) > 1:
        assert tokens[-1, 0] >= context * (n_whole // 2)


def test_documents_are_numbered_where_they_are_kept_apart() -> None:
    sample = spread_windows(
        split_of(12, (0, 5, 7)), context=4, max_tokens=12, respect_boundaries=True
    )
    assert sample.document_ids is not None
    assert sample.document_ids.tolist() == [[1, 1, 1, 1], [1, 2, 2, 3], [3, 3, 3, 3]]
    assert sample[1:2].document_ids is not None
    assert sample[1:2].document_ids.tolist() == [[1, 2, 2, 3]]


def test_a_text_shorter_than_a_window_is_refused_with_both_lengths() -> None:
    with pytest.raises(
        DataError, match=r"book.txt gives 7 tokens, fewer than a window of 8: give a longer text"
    ):
        spread_windows(split_of(7), context=8, max_tokens=100)


def test_rows_are_the_shortest_first_and_keep_no_padding_that_all_of_them_have() -> None:
    rows = [np.arange(length) for length in (5, 2, 7, 3)]
    sample = spread_rows(rows, pad_id=99, max_tokens=100)
    assert sample.mask is not None and sample.mask.sum(1).tolist() == [2, 3, 5, 7]
    assert sample[:2].tokens.tolist() == [[0, 1, 99], [0, 1, 2]]
    assert sample[2:].tokens.shape == (2, 7) and sample[2:].n_tokens == 12
