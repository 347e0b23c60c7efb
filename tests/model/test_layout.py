"""Positions and masks, written out."""

import torch
from torch import Tensor

from sublayer.model.context.layout import Layout


def ids(*rows: list[int]) -> Tensor:
    return torch.tensor(rows)


def seen(layout: Layout, row: int = 0) -> list[str]:
    """Each query's keys: x where it may attend."""
    assert layout.mask is not None
    return ["".join(".x"[int(allowed)] for allowed in query) for query in layout.mask[row, 0]]


def test_a_plain_batch_needs_no_mask() -> None:
    layout = Layout.causal(torch.zeros(3, 5, dtype=torch.long))
    assert layout.mask is None
    assert layout.keys.is_causal
    assert layout.positions.tolist() == [0, 1, 2, 3, 4]
    assert layout.n_keys == 5


def test_left_padding_shifts_positions_and_is_seen_by_itself_only() -> None:
    layout = Layout.causal(torch.zeros(1, 4, dtype=torch.long), ids([0, 0, 1, 1]).bool())
    assert layout.positions[0, 2:].tolist() == [0, 1]
    assert seen(layout) == ["x...", ".x..", "..x.", "..xx"]


def test_right_padding_leaves_positions_and_is_seen_by_itself_only() -> None:
    layout = Layout.causal(torch.zeros(1, 4, dtype=torch.long), ids([1, 1, 0, 0]).bool())
    assert layout.positions[0, :2].tolist() == [0, 1]
    assert seen(layout) == ["x...", "xx..", "xxx.", "xx.x"]


def test_positions_and_attention_restart_with_each_document() -> None:
    layout = Layout.causal(torch.zeros(1, 5, dtype=torch.long), document_ids=ids([7, 7, 3, 3, 7]))
    assert layout.positions.tolist() == [[0, 1, 0, 1, 0]]
    assert seen(layout) == ["x....", "xx...", "..x..", "..xx.", "....x"]


def test_documents_and_padding_go_together() -> None:
    layout = Layout.causal(
        torch.zeros(1, 6, dtype=torch.long), ids([0, 1, 1, 1, 0, 1]).bool(), ids([1, 1, 1, 2, 2, 2])
    )
    assert layout.positions[0, [1, 2, 3, 5]].tolist() == [0, 1, 0, 1]
    assert seen(layout)[2] == ".xx..."
    assert seen(layout)[5] == "...x.x"


def test_a_past_continues_positions_without_a_mask() -> None:
    layout = Layout.causal(torch.zeros(2, 3, dtype=torch.long), past=4)
    assert layout.positions.tolist() == [4, 5, 6]
    assert layout.mask is None
    assert layout.n_keys == 7


def test_a_padded_past_is_not_seen_and_not_counted() -> None:
    layout = Layout.causal(
        torch.zeros(1, 2, dtype=torch.long), past=3, past_mask=ids([0, 1, 1]).bool()
    )
    assert layout.positions.tolist() == [[2, 3]]
    assert seen(layout) == [".xxx.", ".xxxx"]


def test_keys_have_positions_of_the_past_too() -> None:
    plain = Layout.causal(torch.zeros(1, 3, dtype=torch.long), past=2)
    assert plain.key_positions.tolist() == [0, 1, 2, 3, 4]
    past_mask = torch.tensor([[False, True], [True, False]])
    tokens = torch.zeros(2, 3, dtype=torch.long)
    mask = torch.tensor([[True, True, True], [True, False, True]])
    layout = Layout.causal(tokens, mask, past=2, past_mask=past_mask)
    assert layout.key_positions.tolist() == [[0, 0, 1, 2, 3], [0, 1, 1, 2, 2]]
    assert torch.equal(layout.key_positions[:, 2:], layout.positions)


def test_a_target_sees_the_source_of_its_document_alone() -> None:
    tokens = torch.zeros(2, 5, dtype=torch.long)
    # Two documents and padding were read in the first row, one in the second.
    read = ids([0, 0, 1, 1, -1], [0, 0, 0, 0, 0])
    layout = Layout.reading(tokens, read >= 0, read, ids([0, 1, 1, -1], [0, 0, -1, -1]))
    assert seen(layout) == ["xx...", "..xx.", "..xx.", "....x"]
    # Padding that finds none of its own sees the row, so that no softmax is empty.
    assert seen(layout, 1) == ["xxxxx"] * 4
    assert not layout.keys.is_causal and layout.n_keys == 5


def test_a_row_of_one_document_is_read_but_for_its_padding() -> None:
    tokens = torch.zeros(2, 3, dtype=torch.long)
    mask = ids([1, 1, 0], [0, 0, 0]).bool()
    layout = Layout.reading(tokens, mask)
    assert [seen(layout, row) for row in range(2)] == [["xx."], ["xxx"]]
    assert Layout.reading(tokens).mask is None


def test_documents_are_kept_apart_in_both_directions() -> None:
    tokens = torch.zeros(1, 6, dtype=torch.long)
    documents = ids([0, 0, 1, 1, 1, -1])
    layout = Layout.bidirectional(tokens, documents >= 0, documents)
    assert layout.positions[0, :5].tolist() == [0, 1, 0, 1, 2]
    assert seen(layout)[:5] == ["xx....", "xx....", "..xxx.", "..xxx.", "..xxx."]
    assert seen(layout)[5] == ".....x"
