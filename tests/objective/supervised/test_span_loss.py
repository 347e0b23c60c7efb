"""Spans cost the cross-entropy of start and end, and of no answer, however they are packed."""

import numpy as np
import pytest
import torch
from transformers.models.xlnet.configuration_xlnet import XLNetConfig
from transformers.models.xlnet.modeling_xlnet import (
    XLNetPoolerAnswerClass,
    XLNetPoolerEndLogits,
    XLNetPoolerStartLogits,
)

from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.data.tasks.assembly import Assembler
from sublayer.data.tasks.rows import build_row
from sublayer.model.context.layout import Layout
from sublayer.objective.supervised.readout import packed_hidden
from sublayer.objective.supervised.sequences import find_sequences
from sublayer.objective.supervised.span_loss import (
    SpanAnswers,
    joint_states,
    span_losses,
)
from tests.objective.supervised.span_models import (
    CONTEXT,
    MARKS,
    RULE,
    encoded_questions,
    packed,
    questions,
    span_model,
)

NAMES = ("squad", "squad2")


def _encoded(name, n=9, *, trains=True):
    examples = questions(n, has_unanswerable=name == "squad2")
    return encoded_questions(examples, name, trains=trains)


def _alone(model, encoded, row):
    """Return a row's ids, segments and final states, [1, T, D]."""
    ids, segments = (
        torch.from_numpy(each)[None] for each in build_row(encoded, row, MARKS, CONTEXT)
    )
    layout = Layout.bidirectional(ids, None, None)
    return ids, segments, model.hidden(ids, layout, segments=segments).final


def _independent(model, states, start, end):
    # As BertForQuestionAnswering has it.
    logits = states @ model.span_head.weight.T + model.span_head.bias
    start_logits, end_logits = (part.squeeze(-1) for part in logits.split(1, dim=-1))
    loss = torch.nn.CrossEntropyLoss(ignore_index=start_logits.size(1))
    total = loss(start_logits, torch.tensor([start])) + loss(end_logits, torch.tensor([end]))
    return total / 2


def _xlnet_head(model):
    head, width = model.joint_span_head, model.config.d_model
    config = XLNetConfig(d_model=width, n_head=1, d_inner=width, layer_norm_eps=head.end_norm.eps)
    start, end = XLNetPoolerStartLogits(config), XLNetPoolerEndLogits(config)
    answer = XLNetPoolerAnswerClass(config)
    pairs = [
        (start.dense, head.start),
        (end.dense_0, head.end_hidden),
        (end.LayerNorm, head.end_norm),
        (end.dense_1, head.end),
        (answer.dense_0, head.answer_hidden),
        (answer.dense_1, head.answer),
    ]
    for theirs, ours in pairs:
        theirs.double().load_state_dict(ours.state_dict())
    return start, end, answer


def _joint(model, states, segments, start, end):
    start_head, end_head, answer_head = _xlnet_head(model)
    # [CLS] and the passage; the question and both [SEP] are masked.
    p_mask = 1.0 - segments.double()
    p_mask[:, 0], p_mask[:, -1] = 0.0, 1.0
    gold = torch.tensor([start])
    start_logits = start_head(states, p_mask=p_mask)
    end_logits = end_head(states, start_positions=gold, p_mask=p_mask)
    expected = torch.einsum("bl,blh->bh", start_logits.softmax(-1), states)
    cls_index = torch.tensor([0])
    answer = answer_head(states, start_states=expected, cls_index=cls_index)
    loss = torch.nn.CrossEntropyLoss()
    total = loss(start_logits, gold) + loss(end_logits, torch.tensor([end]))
    is_impossible = torch.tensor([float(start == 0)], dtype=torch.float64)
    return total / 2 + 0.5 * torch.nn.BCEWithLogitsLoss()(answer, is_impossible)


@pytest.mark.parametrize("name", NAMES)
def test_packed_windows_cost_what_each_costs_alone_as_published(name):
    model = span_model(name)
    encoded = _encoded(name)
    batch = packed(encoded)
    assert batch.read.document_ids is not None and len(batch.read) < len(encoded)
    assert any(start for start, _ in encoded.spans) and not all(encoded.spans[:, 0])
    losses = span_losses(model, batch, packed_hidden(model, batch).final, 0.0)
    for number, loss in zip(batch.numbers, losses, strict=True):
        _, segments, states = _alone(model, encoded, number)
        gold = encoded.span_of(number)
        if name == "squad":
            expected = _independent(model, states, *gold)
        else:
            expected = _joint(model, states, segments, *gold)
        assert loss.item() == pytest.approx(expected.item(), abs=1e-9)


def test_packed_logits_of_the_joint_head_are_those_of_a_window_alone():
    model, encoded = span_model("squad2"), _encoded("squad2")
    head = model.joint_span_head
    batch = packed(encoded)
    own, may_answer = joint_states(batch, packed_hidden(model, batch).final, find_sequences(batch))
    columns = torch.tensor([[0, 1, 3]]).expand(len(own), 3)
    start = head.starts(own, may_answer)
    end = head.ends(own, may_answer, columns)
    no_answer = head.no_answer(own, start)
    for row, number in enumerate(batch.numbers):
        _, segments, states = _alone(model, encoded, number)
        n = states.shape[1]
        alone = (segments == 1) & (torch.arange(n) < n - 1) | (torch.arange(n) == 0)
        assert torch.equal(may_answer[row, :n], alone[0]) and not may_answer[row, n:].any()
        alone_start = head.starts(states, alone)
        assert (start[row, :n] - alone_start[0]).abs().max() < 1e-9
        alone_end = head.ends(states, alone, columns[:1])
        assert (end[row, :, :n] - alone_end[0]).abs().max() < 1e-9
        assert (no_answer[row] - head.no_answer(states, alone_start)[0]).abs() < 1e-9


def test_an_example_of_several_windows_costs_their_mean():
    model = span_model("squad2")
    asked = _encoded("squad2", trains=False)
    windows = _encoded("squad2", trains=True)
    batch, apart = packed(asked), packed(windows)
    losses = span_losses(model, batch, packed_hidden(model, batch).final, 0.0)
    each = span_losses(model, apart, packed_hidden(model, apart).final, 0.0).detach().numpy()
    by_window = np.zeros(len(windows))
    by_window[list(apart.numbers)] = each
    assert max(np.diff(asked.example_starts)) > 2
    for number, loss in zip(batch.numbers, losses, strict=True):
        expected = by_window[windows.numbers == number].mean()
        assert loss.item() == pytest.approx(expected, abs=1e-12)


def test_padding_for_no_example_costs_nothing():
    model = span_model("squad")
    objective = SpanAnswers(model, SupervisedObjective())
    batch = Assembler(_encoded("squad"), RULE).pack(np.arange(1), weight=0.0)
    assert objective.counts(batch) == {"task": 0} and objective(batch)["task"] == 0


def test_dropout_moves_the_judgement_of_no_answer_alone_and_in_training_alone():
    model = span_model("squad2")
    batch = packed(_encoded("squad2"))
    states = packed_hidden(model, batch).final
    plain = span_losses(model, batch, states, 0.0)
    assert torch.equal(span_losses(model, batch, states, 0.5), plain)
    model.train()
    torch.manual_seed(0)
    dropped = span_losses(model, batch, states, 0.5)
    model.eval()
    own, may_answer = joint_states(batch, states, find_sequences(batch))
    no_answer = model.joint_span_head.no_answer(own, model.joint_span_head.starts(own, may_answer))
    has_answer = batch.spans[:, 0] != batch.readouts[:, 1]
    plain_share = 0.5 * torch.nn.functional.softplus(torch.where(has_answer, no_answer, -no_answer))
    # What is left without that share is at most what it was.
    assert not torch.allclose(dropped, plain)
    assert (dropped >= plain - plain_share - 1e-12).all()
