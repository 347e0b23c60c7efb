"""Positions and masks, written out."""

import torch

from sublayer.model.context.layout import Layout


def ids(*rows):
    return torch.tensor(rows)


def seen(layout, row=0):
    """Each query's keys: x where it may attend."""
    assert layout.mask is not None
    return ["".join(".x"[int(allowed)] for allowed in query) for query in layout.mask[row, 0]]


def test_padding_shifts_positions_behind_it_and_is_seen_by_itself_only():
    tokens = torch.zeros(2, 4, dtype=torch.long)
    layout = Layout.causal(tokens, ids([0, 0, 1, 1], [1, 1, 0, 0]).bool())
    assert layout.positions[0, 2:].tolist() == layout.positions[1, :2].tolist() == [0, 1]
    assert seen(layout) == ["x...", ".x..", "..x.", "..xx"]
    assert seen(layout, 1) == ["x...", "xx..", "xxx.", "xx.x"]


def test_positions_and_attention_restart_with_each_document():
    layout = Layout.causal(torch.zeros(1, 5, dtype=torch.long), document_ids=ids([7, 7, 3, 3, 7]))
    assert layout.positions.tolist() == [[0, 1, 0, 1, 0]]
    assert seen(layout) == ["x....", "xx...", "..x..", "..xx.", "....x"]


def test_a_past_continues_positions_without_a_mask():
    layout = Layout.causal(torch.zeros(2, 3, dtype=torch.long), past=4)
    assert layout.positions.tolist() == [4, 5, 6]
    assert layout.key_positions.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert layout.mask is None and layout.keys.is_causal


def test_a_padded_past_is_not_seen_and_not_counted():
    past_mask = ids([0, 1], [1, 0]).bool()
    tokens = torch.zeros(2, 3, dtype=torch.long)
    layout = Layout.causal(tokens, ids([1, 1, 1], [1, 0, 1]).bool(), past=2, past_mask=past_mask)
    assert layout.key_positions.tolist() == [[0, 0, 1, 2, 3], [0, 1, 1, 2, 2]]
    assert torch.equal(layout.key_positions[:, 2:], layout.positions)
    assert seen(layout) == [".xx..", ".xxx.", ".xxxx"]


def test_a_target_sees_the_source_of_its_document_alone():
    tokens = torch.zeros(2, 5, dtype=torch.long)
    # Two documents and padding were read in the first row, one in the second.
    read = ids([0, 0, 1, 1, -1], [0, 0, 0, 0, 0])
    layout = Layout.reading(tokens, read >= 0, read, ids([0, 1, 1, -1], [0, 0, -1, -1]))
    assert seen(layout) == ["xx...", "..xx.", "..xx.", "....x"]
    # Padding that finds none of its own sees the row, so that no softmax is empty.
    assert seen(layout, 1) == ["xxxxx"] * 4
    assert not layout.keys.is_causal and layout.n_keys == 5


def test_a_row_of_one_document_is_read_but_for_its_padding():
    tokens = torch.zeros(2, 3, dtype=torch.long)
    mask = ids([1, 1, 0], [0, 0, 0]).bool()
    layout = Layout.reading(tokens, mask)
    assert [seen(layout, row) for row in range(2)] == [["xx."], ["xxx"]]
    assert Layout.reading(tokens).mask is None


def test_documents_are_kept_apart_in_both_directions():
    tokens = torch.zeros(1, 6, dtype=torch.long)
    documents = ids([0, 0, 1, 1, 1, -1])
    layout = Layout.bidirectional(tokens, documents >= 0, documents)
    assert layout.positions[0, :5].tolist() == [0, 1, 0, 1, 2]
    assert seen(layout)[:5] == ["xx....", "xx....", "..xxx.", "..xxx.", "..xxx."]
    assert seen(layout)[5] == ".....x"
