"""An example has the same answer and loss alone and packed; spans, as published."""

import string
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers.models.xlnet import modeling_xlnet as xlnet
from transformers.models.xlnet.configuration_xlnet import XLNetConfig

from sublayer.config.objective import SupervisedObjective
from sublayer.data.tasks.batches import Assembler, ExampleBatches, RowRule, TaskPart, build_row
from sublayer.data.tasks.encoded import Marks, WindowRule, encode_passages
from sublayer.data.tasks.figure import WordTokens
from sublayer.data.tasks.prepare import task_split
from sublayer.data.tasks.spans import best_windows, independent_candidates
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.model.context import Layout
from sublayer.model.transformer import Encoder, EncoderDecoder
from sublayer.objective.supervised import heads
from sublayer.objective.supervised import text as texts
from sublayer.objective.supervised.text import nats_of_sequences, text_loss, write_part
from sublayer.tasks.registry import TASKS, TaskSpec, find_files, read_split
from sublayer.tasks.task import Answer, Example
from tests.answerers import (
    assembler_of,
    draw_examples,
    model_of,
    objective_of,
    rule_of,
    spec_of,
    split_of,
)
from tests.breadth import rows
from tests.encoders import encoder_of
from tests.objective.test_masked import gradients
from tests.packed_rows import unpack

CONTEXT, WORDS = 20, [f"w{n}" for n in range(23)]
TOKENIZER = WordTokens(WORDS)
MARKS = Marks(TOKENIZER.cls_id, TOKENIZER.sep_id, TOKENIZER.sep_id, TOKENIZER.sep_id)
RULE = RowRule("pair", MARKS, CONTEXT)
NAMES = ("squad", "squad2")
_MOST, CLOSE = 4, {"rtol": 0, "atol": 1e-9}
N = 13
WRITERS = ("encoder-decoder", "decoder", "lstm")
POSITIONS = ("learned", "sinusoidal", "rotary", "alibi", "relative", "learned-per-layer", "none")
FORMATS = [("pair", "traversal")[place % 2] for place in range(len(POSITIONS))]


def questions(n, seed=0, *, has_unanswerable=False):
    """Draw questions about passages of up to 30 words; every third has no answer, where asked."""
    generator, examples = np.random.default_rng(seed), []
    for number in range(n):
        words = generator.choice(WORDS, size=int(generator.integers(3, 30))).tolist()
        asked = generator.choice(WORDS, size=int(generator.integers(1, 6))).tolist()
        first = int(generator.integers(len(words)))
        last = int(generator.integers(first, min(len(words), first + 3)))
        answer = Answer(" ".join(words[first : last + 1]), len(" ".join([*words[:first], ""])))
        answers = () if has_unanswerable and number % 3 == 2 else (answer,)
        fields = {"context": " ".join(words), "question": " ".join(asked)}
        examples.append(Example(str(number), fields, answers=answers))
    return examples


def encoded_questions(examples, name, *, trains):
    rule = WindowRule(CONTEXT, stride=5)
    return encode_passages(TASKS[name], examples, TOKENIZER, rule, trains=trains)


def span_model(name, **fields):
    fields.setdefault("span_head", "joint" if TASKS[name].has_unanswerable else "independent")
    heads = {"head": "none", "head_bias": False, "pooler": "none", "sentence_classes": 0}
    return encoder_of(TOKENIZER.vocab_size, CONTEXT, **heads, **fields)


def _alone(model, encoded, row):
    built = build_row(encoded, row, MARKS, CONTEXT)
    ids, segments = (torch.from_numpy(each)[None] for each in built)
    states = model.hidden(ids, Layout.bidirectional(ids, None, None), segments=segments).final
    return ids, segments, states


def _independent(model, states, start, end):
    logits = states @ model.span_head.weight.T + model.span_head.bias
    pairs = zip(logits.split(1, dim=-1), (start, end), strict=True)
    losses = [F.cross_entropy(part.squeeze(-1), torch.tensor([gold])) for part, gold in pairs]
    return sum(losses) / 2


def _joint(model, states, segments, start, end):
    head, width = model.joint_span_head, model.config.d_model
    config = XLNetConfig(d_model=width, n_head=1, d_inner=width, layer_norm_eps=head.end_norm.eps)
    start_head, end_head = xlnet.XLNetPoolerStartLogits(config), xlnet.XLNetPoolerEndLogits(config)
    answer_head = xlnet.XLNetPoolerAnswerClass(config)
    theirs = (start_head.dense, end_head.dense_0, end_head.LayerNorm, end_head.dense_1)
    theirs += (answer_head.dense_0, answer_head.dense_1)
    names = ("start", "end_hidden", "end_norm", "end", "answer_hidden", "answer")
    for each, name in zip(theirs, names, strict=True):
        each.double().load_state_dict(getattr(head, name).state_dict())
    # [CLS] and the passage; the question and both [SEP] are masked.
    p_mask = 1.0 - segments.double()
    p_mask[:, 0], p_mask[:, -1] = 0.0, 1.0
    gold, start_logits = torch.tensor([start]), start_head(states, p_mask=p_mask)
    end_logits = end_head(states, start_positions=gold, p_mask=p_mask)
    expected = torch.einsum("bl,blh->bh", start_logits.softmax(-1), states)
    answer = answer_head(states, start_states=expected, cls_index=torch.tensor([0]))
    total = F.cross_entropy(start_logits, gold) + F.cross_entropy(end_logits, torch.tensor([end]))
    is_impossible = torch.tensor([float(start == 0)], dtype=torch.float64)
    return total / 2 + 0.5 * F.binary_cross_entropy_with_logits(answer, is_impossible)


@pytest.mark.parametrize("name", NAMES)
def test_packed_windows_cost_what_each_costs_alone_as_published(name):
    examples, model = questions(9, has_unanswerable=name == "squad2"), span_model(name)
    encoded = encoded_questions(examples, name, trains=True)
    batch = Assembler(encoded, RULE).pack(np.arange(len(encoded)))
    assert batch.read.document_ids is not None and len(batch.read) < len(encoded)
    assert any(start for start, _ in encoded.spans) and not all(encoded.spans[:, 0])
    losses = heads.span_losses(model, batch, heads.packed_hidden(model, batch).final, 0.0)
    for number, loss in zip(batch.numbers, losses, strict=True):
        _, segments, states = _alone(model, encoded, number)
        gold, joint = encoded.span_of(number), () if name == "squad" else (segments,)
        expected = (_joint if joint else _independent)(model, states, *joint, *gold)
        assert loss.item() == pytest.approx(expected.item(), abs=1e-9)


def _answered(name, examples, model):
    encoded = encoded_questions(examples, name, trains=False)
    part = TaskPart(TASKS[name], "dev", encoded, lambda: examples, dict)
    split = task_split("test", [part], TOKENIZER, SupervisedObjective())
    spec = TaskSpec((TASKS[name],), "pair", CONTEXT, max_answer=_MOST)
    return encoded, *heads.AskedSplit(model, split, RULE, spec).answer_questions()


def _scored_pairs(model, name, states, may_answer):
    """Yield start, end and score of every pair that is tried in a window."""
    n = states.shape[1]
    if name == "squad":
        start, end = (states @ model.span_head.weight.T + model.span_head.bias)[0].T
        for first in range(n):
            for last in range(n):
                yield first, last, float(start[first] + end[last])
        return
    head = model.joint_span_head
    start = head.starts(states, may_answer)
    for first in start[0].topk(min(5, n)).indices.tolist():
        end = head.ends(states, may_answer, torch.tensor([[first]]))[0, 0]
        for last in end.topk(min(5, n)).indices.tolist():
            yield first, last, float(start[0].log_softmax(-1)[first] + end.log_softmax(-1)[last])


def _by_hand(model, name, encoded, number, passage):
    windows = encoded.windows(number)
    scored_in = best_windows(windows)
    found, nulls = [], []
    for place, row in enumerate(encoded.rows_of(number)):
        ids, segments, states = _alone(model, encoded, row)
        columns = torch.arange(ids.shape[1])
        may_answer = (segments == 1) & (columns < ids.shape[1] - 1) | (columns == 0)
        if name == "squad2":
            head = model.joint_span_head
            nulls.append(float(head.no_answer(states, head.starts(states, may_answer))))
        offset = int((segments == 0).sum()) - windows[place].start
        for first, last, score in _scored_pairs(model, name, states, may_answer):
            start, end = first - offset, last - offset
            if not windows[place].start <= start <= end < windows[place].stop:
                continue
            if end - start < _MOST and scored_in[start] == place:
                found.append((score, start, end))
    score, start, end = max(found)
    return " ".join(passage.split()[start : end + 1]), min(nulls, default=0.0)


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_answers_are_those_of_windows_alone_by_all_pairs(name):
    model, examples = span_model(name), questions(12, seed=3, has_unanswerable=name == "squad2")
    encoded, predictions, losses = _answered(name, examples, model)
    assert encoded.n_rows > 20 and len(losses) == len(predictions) == 12
    for number, (example, found) in enumerate(zip(examples, predictions, strict=True)):
        passage = example.fields["context"]
        text, no_answer = _by_hand(model, name, encoded, number, passage)
        assert found.text == text and passage[found.start :].startswith(text)
        assert found.no_answer == pytest.approx(no_answer, abs=1e-9)
    assert len({found.text for found in predictions}) > 6


@pytest.mark.parametrize("name", NAMES)
def test_predictions_do_not_depend_on_what_else_is_asked(name):
    model, examples = span_model(name), questions(12, seed=4, has_unanswerable=name == "squad2")
    examples[7] = replace(examples[7], fields={"context": "", "question": "w1"}, answers=())
    _, together, losses = _answered(name, examples, model)
    assert (together[7].text, together[7].start) == ("", None)
    for example, expected, loss in zip(examples, together, losses, strict=True):
        _, [found], [own] = _answered(name, [example], model)
        assert (found.text, found.start) == (expected.text, expected.start)
        assert found.no_answer == pytest.approx(expected.no_answer, abs=1e-9)
        assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-9)
        assert own == pytest.approx(loss, abs=1e-9)


def test_every_answer_of_the_shared_piece_comes_back_from_perfect_logits(real_data):
    """Questions are answered by logits that are high at the answer's start and end alone."""
    task = TASKS["squad"]
    examples = read_split(task, "dev", find_files(task, real_data / "squad")["dev"]).examples
    tokenizer = load_tokenizer(real_data / "vocab" / "albert" / "spiece.model")
    encoded = encode_passages(task, examples, tokenizer, WindowRule(128, 40), trains=False)
    assert encoded.n_rows > 2 * len(examples) == 2380
    others = []
    for number, example in enumerate(examples):
        passage, answer, scores = example.fields["context"], example.answers[0], []
        for row in encoded.rows_of(number):
            first, last = encoded.span_of(row)
            logits = np.zeros((2, 128))
            logits[0, first] = logits[1, last] = 10.0
            candidates, null = independent_candidates(*logits), sum(logits[:, 0])
            scores.append((candidates, null))
        listed = heads.rank_question(encoded, number, passage, scores, 30)
        found = listed.prediction(is_joint=False, has_unanswerable=False)
        if (found.text, found.start) != (answer.text, answer.start):
            others.append((answer.text, found.text))
    # Its annotator cut one short: "7,000,000 square kilometres (2,70".
    [(answer, found)] = others
    marks = string.punctuation + string.digits
    assert answer.strip(marks) == found.strip(marks)


def packed(assembler):
    """All examples in one batch, of which some share rows and some rows are padded."""
    batch = assembler.pack(np.arange(N))
    assert batch.read.document_ids is not None and batch.read.mask is not None
    assert 1 < len(batch.read) < batch.read.n_sequences
    return batch


def picked_states(batch, states):
    return states.flatten(0, 1).index_select(0, batch.places)


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
    found = heads.answer_logits(model, batch, heads.text_states(model, batch), 0.0, kind)
    for number in range(batch.n_examples):
        own = vectors[batch.owners == number]
        if kind == "choice":
            expected = model.label_logits(own)[:, 0]
            assert torch.isneginf(found[number, len(own) :]).all()
        else:
            expected = model.label_logits(own.sum(0))
        torch.testing.assert_close(found[number, : len(expected)], expected, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("kind, positions", rows(product(WRITERS, POSITIONS), 3))
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
        expected.append(F.cross_entropy(logits, sequence.targets, ignore_index=-1, reduction="sum"))
    expected = torch.stack(expected)
    torch.testing.assert_close(nats_of_sequences(model, batch), expected, **CLOSE)
    torch.testing.assert_close(objective_of(model, split)(batch)["task"], expected.sum(), **CLOSE)


@pytest.mark.parametrize("format_, kind, name", [
    ("text", "encoder-decoder", "mnli"), ("text", "decoder", "stsb"), ("pair", "encoder", "copa"),
    ("traversal", "decoder", "mrpc"),
])  # fmt: skip
def test_a_step_of_rows_has_the_loss_and_gradients_of_one_example_a_row(format_, kind, name):
    split = split_of({name: draw_examples(name, 30)}, format_)
    model, rule = model_of(split, 64, kind=kind), replace(rule_of(split, 64, kind), fills_rows=True)
    drawn = ExampleBatches(split, rule=rule, batch_sequences=3, seed=1)
    objective, numbers, whole = objective_of(model, split), drawn.chosen(2), drawn.batch(2)
    found, pack = [], Assembler(split.encoded, rule).pack
    for parts in ([whole], [drawn.batch(2, rank, 2) for rank in range(2)],
                  [whole[at : at + 1] for at in range(len(whole))],
                  [pack(numbers[at : at + 1]) for at in range(len(numbers))]):  # fmt: skip
        total = sum(objective(part)["task"] for part in parts)
        total.backward()
        found.append({"loss": total.detach(), **gradients(model)})
    for other in found[:-1]:
        torch.testing.assert_close(other, found[-1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("asked", ["pair stsb", "pair race_high", "traversal mrpc"])
def test_predictions_do_not_depend_on_the_batch(monkeypatch, asked):
    format_, name = asked.split()
    split = split_of({name: draw_examples(name, N)}, format_)
    model, found = model_of(split), []
    for size in (100, 4, 1):
        monkeypatch.setattr(heads, "scored_sequences", lambda model, context, n=size: n)
        asked = heads.AskedSplit(model, split, rule_of(split), spec_of([TASKS[name]], format_, 64))
        found.append(asked.answer_examples())
    (answers, losses), *others = found
    for other_answers, other_losses in others:
        assert other_losses == pytest.approx(losses, abs=1e-9)
        for one, other in zip(answers, other_answers, strict=True):
            assert one.label == pytest.approx(other.label, abs=1e-9)
            # The batch of the most choices has probabilities of 0 for those that others lack.
            n = min(len(one.probabilities), len(other.probabilities))
            assert other.probabilities[:n] == pytest.approx(one.probabilities[:n], abs=1e-9)


@pytest.mark.parametrize("asked", ["encoder-decoder greedy", "decoder rank", "lstm greedy"])
def test_written_answers_do_not_depend_on_the_batch(monkeypatch, asked):
    kind, answer = asked.split()
    split = split_of({"mnli": draw_examples("mnli", N, longest=5)}, "text", trains=False)
    model = model_of(split, 64, kind=kind)
    if kind == "lstm":
        # Else its gates hardly tell one text from another.
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(5.0)
    [part], rule, found = split.parts, rule_of(split, 64, kind=kind), []
    spec = spec_of([part.task], "text", 64, answer=answer)
    for size in (128, 3, 1):
        monkeypatch.setattr(texts, "_AT_A_TIME", size)
        monkeypatch.setattr(heads, "scored_sequences", lambda model, context, n=size: n)
        asked = heads.AskedSplit(model, split, rule, spec)
        found.append((write_part(asked, part), text_loss(asked, part)))
    (answers, loss), *others = found
    assert len({each.text if answer == "greedy" else each.probabilities for each in answers}) > 1
    for other_answers, other_loss in others:
        assert other_loss[:2] == pytest.approx(loss[:2], abs=1e-9)
        for one, other in zip(answers, other_answers, strict=True):
            assert one.text == other.text
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-9)


@pytest.mark.parametrize("format_, fields", [
    ("traversal", {"norm_order": "post"}), ("pair", {"block": "macaron"}),
    ("traversal", {"block": ["ffn", "attention"]}),
    ("pair", {"block": ["attention", "ffn*0.5", "attention", "ffn"]}),
    ("traversal", {"block": ["attention+ffn"], "norm_order": "around"}),
    ("pair", {"block": ["attention", "ffn+attention*0.5", "ffn"], "parallel_norm": "separate"}),
    ("traversal", {"block": ["ffn"]}), ("pair", {"share": "all", "n_layers": 3}),
    ("traversal", {"n_layers": 1, "d_embed": 6}),
    ("pair", {"attention_scale": "none", "bias": False, "norm": "rms"}),
    ("traversal", {"kind": "lstm"}),
    *rows([(form, {"positions": by}) for form, by in zip(FORMATS, POSITIONS, strict=True)], 4),
], ids=str)  # fmt: skip
def test_states_that_the_last_block_computes_alone_are_those_among_all(format_, fields):
    split = split_of({"copa": draw_examples("copa", 9)}, format_)
    model, batch = model_of(split, **fields), assembler_of(split).pack(np.arange(9))
    weights = torch.randn(len(batch.readouts), model.config.d_model, dtype=torch.float64)
    every, results = picked_states(batch, heads.packed_hidden(model, batch).final), []
    for states in (every, heads.text_states(model, batch)):
        (states * weights).sum().backward()
        results.append((states.detach(), gradients(model)))
    (every, of_every), (alone, of_alone) = results
    torch.testing.assert_close(alone, every, rtol=0, atol=1e-12)
    assert of_alone.keys() == of_every.keys()
    for name, gradient in of_every.items():
        limit = 1e-12 * max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(of_alone[name], gradient, rtol=0, atol=limit)


@pytest.mark.parametrize("format_, positions", [("pair", "relative"), ("traversal", "alibi")])
def test_states_of_padded_rows_of_one_text_are_those_among_all(format_, positions):
    split = split_of({"sst2": draw_examples("sst2", 40)}, format_)
    model, assembler = model_of(split, 14, positions=positions), assembler_of(split, 14)
    batch = assembler.pack(np.flatnonzero(assembler.tokens(np.arange(40)) > 8))
    assert batch.read.document_ids is None and batch.read.mask is not None and len(batch.read) > 3
    every = picked_states(batch, heads.packed_hidden(model, batch).final)
    torch.testing.assert_close(heads.text_states(model, batch), every, rtol=0, atol=1e-12)
