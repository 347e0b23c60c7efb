"""An example has the same answer and the same loss alone and packed among others, in float64."""

from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sublayer.evaluation.split_work import ALONE
from sublayer.model.context.layout import Layout
from sublayer.model.encoder import Encoder
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.objective.supervised import predictions, text_predictions
from sublayer.objective.supervised.predictions import answer_examples
from sublayer.objective.supervised.readout import (
    answer_logits,
    packed_hidden,
    picked_states,
    text_states,
)
from sublayer.objective.supervised.text import nats_of_sequences
from sublayer.objective.supervised.text_predictions import text_loss, write_part
from sublayer.tasks.registry import TASKS
from tests.answerers import assembler_of, draw_examples, model_of, objective_of, rule_of, split_of
from tests.breadth import rows
from tests.packed_rows import unpack

CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-9}
N = 13
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "relative", "learned-per-layer", "none")


def packed(assembler):
    """All examples in one batch, of which some share rows and some rows are padded."""
    batch = assembler.pack(np.arange(N))
    assert batch.read.document_ids is not None and batch.read.mask is not None
    assert 1 < len(batch.read) < batch.read.n_sequences
    return batch


def vectors_alone(model, batch):
    """The state that stands for each sequence of a batch, each in a row of its own: [S, D]."""
    vectors = []
    for sequence in unpack(batch):
        tokens, segments = sequence.ids[None], sequence.segments[None]
        if isinstance(model, Encoder):
            layout = Layout.bidirectional(tokens)
            vectors.append(model.hidden(tokens, layout, segments=segments).final[0, 0])
        else:
            vectors.append(model.hidden(tokens, Layout.causal(tokens)).final[0, -1])
    return torch.stack(vectors)


@torch.no_grad()
@pytest.mark.parametrize("format_, name, positions", [
    *rows([("traversal", "mrpc", positions) for positions in POSITIONS[1:]], 1),
    ("pair", "mnli", "relative"), ("pair", "race_high", "rotary"), ("traversal", "copa", "alibi"),
    ("traversal", "mrpc", "lstm"),
])  # fmt: skip
def test_heads_answer_a_packed_example_as_if_it_were_alone(format_, name, positions):
    split = split_of({name: draw_examples(name, N)}, format_)
    fields = {"kind": "lstm"} if positions == "lstm" else {"positions": positions}
    model, batch, kind = model_of(split, **fields), packed(assembler_of(split)), TASKS[name].kind
    vectors = vectors_alone(model, batch)
    found = answer_logits(model, batch, text_states(model, batch), 0.0, kind)
    for number in range(batch.n_examples):
        own = vectors[batch.owners == number]
        if kind == "choice":
            # One logit for each, and no probability of what the example does not have.
            expected = model.label_logits(own)[:, 0]
            assert torch.isneginf(found[number, len(own) :]).all()
        else:
            expected = model.label_logits(own.sum(0))
        torch.testing.assert_close(found[number, : len(expected)], expected, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize(
    "kind, positions", rows(product(["encoder-decoder", "decoder", "lstm"], POSITIONS), 3)
)
def test_a_packed_answer_costs_what_it_costs_alone(positions, kind):
    examples = {name: draw_examples(name, 6, longest=5) for name in ("mnli", "stsb", "copa")}
    split = split_of(examples, "text")
    model = model_of(split, 64, positions=positions, kind=kind)
    batch = assembler_of(split, 64, kind=kind).pack(np.arange(18))
    assert batch.read.document_ids is not None
    expected = []
    for sequence in unpack(batch):
        tokens = sequence.ids[None]
        if isinstance(model, EncoderDecoder):
            logits = model(tokens, target=sequence.written[None]).logits[0]
        else:
            logits = model.logits(model.hidden(tokens, Layout.causal(tokens)).final)[0]
        nats = F.cross_entropy(logits, sequence.targets, ignore_index=-1, reduction="sum")
        expected.append(nats)
    expected = torch.stack(expected)
    torch.testing.assert_close(nats_of_sequences(model, batch), expected, **CLOSE)
    torch.testing.assert_close(objective_of(model)(batch)["task"], expected.sum(), **CLOSE)


@pytest.mark.parametrize("format_, name", [
    ("pair", "stsb"), ("pair", "race_high"), ("traversal", "mrpc"),
])  # fmt: skip
def test_predictions_do_not_depend_on_the_batch(monkeypatch, format_, name):
    split = split_of({name: draw_examples(name, N)}, format_)
    model, found = model_of(split), []
    for size in (100, 4, 1):
        monkeypatch.setattr(predictions, "batch_sequences", lambda model, context, n=size: n)
        found.append(answer_examples(model, split, rule_of(split), TASKS[name], ALONE))
    (answers, losses), *others = found
    for other_answers, other_losses in others:
        assert other_losses == pytest.approx(losses, abs=1e-9)
        for one, other in zip(answers, other_answers, strict=True):
            assert one.label == pytest.approx(other.label, abs=1e-9)
            # The batch of the most choices has probabilities of 0 for those that others lack.
            n = min(len(one.probabilities), len(other.probabilities))
            expected = pytest.approx(one.probabilities[:n], abs=1e-9)
            assert other.probabilities[:n] == expected


@pytest.mark.parametrize("kind, answer", [
    ("encoder-decoder", "greedy"), ("decoder", "rank"), ("lstm", "greedy"),
])  # fmt: skip
def test_written_answers_do_not_depend_on_the_batch(monkeypatch, kind, answer):
    split = split_of({"mnli": draw_examples("mnli", N, longest=5)}, "text", trains=False)
    model = model_of(split, 64, kind=kind, answer=answer)
    if kind == "lstm":
        # Else its gates hardly tell one text from another.
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(5.0)
    [part], rule, found = split.parts, rule_of(split, 64, kind=kind), []
    for size in (128, 3, 1):
        monkeypatch.setattr(text_predictions, "_AT_A_TIME", size)
        monkeypatch.setattr(text_predictions, "batch_sequences", lambda model, context, n=size: n)
        loss = text_loss(model, part, rule, ALONE)
        found.append((write_part(model, part, rule, model.task, ALONE), loss))
    (answers, loss), *others = found
    assert len({each.text if answer == "greedy" else each.probabilities for each in answers}) > 1
    for other_answers, other_loss in others:
        assert other_loss == pytest.approx(loss, abs=1e-9)
        for one, other in zip(answers, other_answers, strict=True):
            assert one.text == other.text
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-9)


def gradients(model):
    found = {n: each.grad for n, each in model.named_parameters() if each.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def check_states(task, format_, **fields):
    """Compare states of texts, and their gradients, with those among all states of a batch."""
    split = split_of({task: draw_examples(task, 9)}, format_)
    model, batch = model_of(split, **fields), assembler_of(split).pack(np.arange(9))
    weights = torch.randn(len(batch.readouts), model.config.d_model, dtype=torch.float64)
    every = picked_states(batch, packed_hidden(model, batch).final)
    results = []
    for states in (every, text_states(model, batch)):
        (states * weights).sum().backward()
        results.append((states.detach(), gradients(model)))
    (every, of_every), (alone, of_alone) = results
    torch.testing.assert_close(alone, every, rtol=0, atol=1e-12)
    assert of_alone.keys() == of_every.keys()
    for name, gradient in of_every.items():
        limit = 1e-12 * max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(of_alone[name], gradient, rtol=0, atol=limit)


@pytest.mark.parametrize("format_, fields", [
    ("traversal", {"norm_order": "post"}), ("pair", {"block": "macaron"}),
    ("traversal", {"block": ["ffn", "attention"]}),
    ("pair", {"block": ["attention", "ffn*0.5", "attention", "ffn"]}),
    ("traversal", {"block": ["ffn"]}), ("pair", {"share": "all", "n_layers": 3}),
    ("traversal", {"n_layers": 1, "d_embed": 6}),
    ("pair", {"attention_scale": "none", "bias": False, "norm": "rms"}),
    ("traversal", {"kind": "lstm"}),
], ids=str)  # fmt: skip
def test_states_that_the_last_block_computes_alone_are_those_among_all(format_, fields):
    check_states("rte", format_, **fields)


@pytest.mark.parametrize(
    ("format_", "positions"), rows(zip(cycle(["pair", "traversal"]), POSITIONS), 4)
)
def test_so_they_are_for_all_positions(format_, positions):
    check_states("copa", format_, positions=positions)


@pytest.mark.parametrize("format_, positions", [("pair", "relative"), ("traversal", "alibi")])
def test_states_of_padded_rows_of_one_text_are_those_among_all(format_, positions):
    split = split_of({"sst2": draw_examples("sst2", 40)}, format_)
    model, assembler = model_of(split, 14, positions=positions), assembler_of(split, 14)
    batch = assembler.pack(np.flatnonzero(assembler.tokens(np.arange(40)) > 8))
    assert batch.read.document_ids is None and batch.read.mask is not None and len(batch.read) > 3
    every = picked_states(batch, packed_hidden(model, batch).final)
    torch.testing.assert_close(text_states(model, batch), every, rtol=0, atol=1e-12)
