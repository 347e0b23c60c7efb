"""Spans: losses as published, however packed; answers by the best span of all windows."""

import string
from dataclasses import replace

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
from sublayer.data.tasks.assembly import Assembler, RowRule
from sublayer.data.tasks.marks import Marks
from sublayer.data.tasks.prepare import task_split
from sublayer.data.tasks.rows import build_row
from sublayer.data.tasks.span_encoding import WindowRule, encode_passages
from sublayer.data.tasks.spans import independent_candidates
from sublayer.data.tasks.task_split import TaskPart
from sublayer.data.tasks.windows import best_windows
from sublayer.data.tasks.word_tokens import WordTokens
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.evaluation.split_work import ALONE
from sublayer.model.context.layout import Layout
from sublayer.objective.supervised.readout import packed_hidden
from sublayer.objective.supervised.span_loss import span_losses
from sublayer.objective.supervised.span_predictions import (
    WindowScores,
    answer_question,
    answer_questions,
)
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.registry import TASKS, find_files, read_split
from sublayer.tasks.spec import TaskSpec
from tests.encoders import encoder_of

CONTEXT = 20
WORDS = [f"w{n}" for n in range(23)]
TOKENIZER = WordTokens(WORDS)
MARKS = Marks(TOKENIZER.cls_id, TOKENIZER.sep_id, TOKENIZER.sep_id, TOKENIZER.sep_id)
RULE = RowRule("pair", MARKS, CONTEXT)


def questions(n, seed=0, *, has_unanswerable=False):
    """Draw questions about passages of up to 30 words; every third has no answer, where asked."""
    generator = np.random.default_rng(seed)
    examples = []
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
    """Build an encoder in float64 with the head of a task, or with another."""
    fields.setdefault("span_head", "joint" if TASKS[name].has_unanswerable else "independent")
    heads = {"head": "none", "head_bias": False, "pooler": "none", "sentence_classes": 0}
    return encoder_of(TOKENIZER.vocab_size, CONTEXT, **heads, **fields)


def packed(encoded):
    return Assembler(encoded, RULE).pack(np.arange(len(encoded)))


NAMES = ("squad", "squad2")


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
    theirs = (start.dense, end.dense_0, end.LayerNorm, end.dense_1, answer.dense_0, answer.dense_1)
    names = ("start", "end_hidden", "end_norm", "end", "answer_hidden", "answer")
    for each, name in zip(theirs, names, strict=True):
        each.double().load_state_dict(getattr(head, name).state_dict())
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
    examples, model = questions(9, has_unanswerable=name == "squad2"), span_model(name)
    encoded = encoded_questions(examples, name, trains=True)
    batch = packed(encoded)
    assert batch.read.document_ids is not None and len(batch.read) < len(encoded)
    assert any(start for start, _ in encoded.spans) and not all(encoded.spans[:, 0])
    losses = span_losses(model, batch, packed_hidden(model, batch).final, 0.0)
    for number, loss in zip(batch.numbers, losses, strict=True):
        _, segments, states = _alone(model, encoded, number)
        gold = encoded.span_of(number)
        joint = () if name == "squad" else (segments,)
        expected = (_joint if joint else _independent)(model, states, *joint, *gold)
        assert loss.item() == pytest.approx(expected.item(), abs=1e-9)


_MOST = 4


def _answered(name, examples, model):
    """Answer questions with at most so many tokens; give the encoded windows, too."""
    encoded = encoded_questions(examples, name, trains=False)
    part = TaskPart(TASKS[name], "dev", encoded, lambda: examples, dict)
    split = task_split("test", [part], TOKENIZER, SupervisedObjective())
    spec = TaskSpec((TASKS[name],), "pair", CONTEXT, max_answer=_MOST)
    return encoded, *answer_questions(model, split, RULE, spec, ALONE)


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
            score = start[0].log_softmax(-1)[first] + end.log_softmax(-1)[last]
            yield first, last, float(score)


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
    # A question without a passage has no answer.
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
    others, rule = [], {"is_joint": False, "most_tokens": 30, "has_unanswerable": False}
    for number, example in enumerate(examples):
        passage, answer, scores = example.fields["context"], example.answers[0], []
        for row in encoded.rows_of(number):
            first, last = encoded.span_of(row)
            logits = np.zeros((2, 128))
            logits[0, first] = logits[1, last] = 10.0
            scores.append(WindowScores(independent_candidates(*logits), sum(logits[:, 0])))
        found = answer_question(encoded, number, passage, scores, **rule)
        if (found.text, found.start) != (answer.text, answer.start):
            others.append((answer.text, found.text))
    # Its annotator cut one short: "7,000,000 square kilometres (2,70".
    [(answer, found)] = others
    marks = string.punctuation + string.digits
    assert answer.strip(marks) == found.strip(marks)
