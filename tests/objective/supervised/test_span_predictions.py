"""Questions are answered with the best span of all their windows, whatever batch they are in."""

import json
import string
from dataclasses import replace

import numpy as np
import pytest
import torch

from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.data.tasks.prepare import task_split
from sublayer.data.tasks.rows import build_row
from sublayer.data.tasks.span_encoding import WindowRule, encode_passages
from sublayer.data.tasks.spans import independent_candidates
from sublayer.data.tasks.task_split import TaskPart, TaskSplit
from sublayer.data.tasks.windows import best_windows
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.evaluation.split_work import ALONE
from sublayer.model.context.layout import Layout
from sublayer.objective.supervised.scores import answer_split
from sublayer.objective.supervised.span_predictions import (
    WindowScores,
    answer_question,
    answer_questions,
)
from sublayer.tasks.example import Example
from sublayer.tasks.metrics.thresholds import with_threshold
from sublayer.tasks.own_table.table import Table
from sublayer.tasks.own_table.task import read_table
from sublayer.tasks.registry import TASKS, find_files, read_split
from sublayer.tasks.spec import TaskSpec
from tests.breadth import rows
from tests.objective.supervised.span_models import (
    CONTEXT,
    MARKS,
    RULE,
    TOKENIZER,
    encoded_questions,
    questions,
    span_model,
)

NAMES = ("squad", "squad2")
_MOST = 4


def _spec(name: str, **fields) -> TaskSpec:
    return TaskSpec((TASKS[name],), "pair", CONTEXT, max_answer=_MOST, **fields)


def _split(name: str, examples: list[Example]) -> TaskSplit:
    encoded = encoded_questions(examples, name, trains=False)
    part = TaskPart(TASKS[name], "dev", encoded, lambda: examples, dict)
    objective = SupervisedObjective()
    return task_split("test", [part], TOKENIZER, objective)


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
        ids, segments = (
            torch.from_numpy(each)[None] for each in build_row(encoded, row, MARKS, CONTEXT)
        )
        layout = Layout.bidirectional(ids, None, None)
        states = model.hidden(ids, layout, segments=segments).final
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
    model = span_model(name)
    examples = questions(12, seed=3, has_unanswerable=name == "squad2")
    split = _split(name, examples)
    assert split.encoded.n_rows > 20
    predictions, losses = answer_questions(model, split, RULE, _spec(name), ALONE)
    assert len(losses) == len(predictions) == 12
    texts = set()
    for number, (example, found) in enumerate(zip(examples, predictions, strict=True)):
        passage = example.fields["context"]
        text, no_answer = _by_hand(model, name, split.encoded, number, passage)
        assert found.text == text and passage[found.start :].startswith(text)
        assert found.no_answer == pytest.approx(no_answer, abs=1e-9)
        texts.add(text)
    assert len(texts) > 6


@pytest.mark.parametrize("name", NAMES)
def test_predictions_do_not_depend_on_what_else_is_asked(name):
    model = span_model(name)
    examples = questions(12, seed=4, has_unanswerable=name == "squad2")
    # A question without a passage has no answer.
    examples[7] = replace(examples[7], fields={"context": "", "question": "w1"}, answers=())
    together, losses = answer_questions(model, _split(name, examples), RULE, _spec(name), ALONE)
    assert (together[7].text, together[7].start) == ("", None)
    for example, expected, loss in zip(examples, together, losses, strict=True):
        [found], [own] = answer_questions(model, _split(name, [example]), RULE, _spec(name), ALONE)
        assert (found.text, found.start) == (expected.text, expected.start)
        assert found.no_answer == pytest.approx(expected.no_answer, abs=1e-9)
        assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-9)
        assert own == pytest.approx(loss, abs=1e-9)


def test_answers_whose_score_of_none_is_above_the_threshold_are_empty():
    model = span_model("squad2")
    split = _split("squad2", questions(12, seed=5, has_unanswerable=True))
    given, _ = answer_split(model, split, RULE, _spec("squad2"), ALONE)
    threshold = sorted(each.no_answer for each in given)[5]
    decided, _ = answer_split(model, split, RULE, _spec("squad2", threshold=threshold), ALONE)
    assert all(each.text for each in given)
    assert sum(bool(each.text) for each in decided) == 6
    assert [each.no_answer for each in decided] == [each.no_answer for each in given]


@pytest.mark.parametrize(
    ("vocabulary", "n_inside"), rows([("albert/spiece.model", 1), ("bert/vocab.txt", 1)], 1)
)
def test_every_answer_of_the_shared_piece_comes_back_from_perfect_logits(
    real_data, vocabulary, n_inside
):
    task = TASKS["squad"]
    examples = read_split(task, "dev", find_files(task, real_data / "squad")["dev"]).examples
    tokenizer = load_tokenizer(real_data / "vocab" / vocabulary)
    encoded = encode_passages(task, examples, tokenizer, WindowRule(128, 40), trains=False)
    assert encoded.n_rows > 2 * len(examples) == 2380
    others = []
    for number, example in enumerate(examples):
        scores = []
        for row in encoded.rows_of(number):
            first, last = encoded.span_of(row)
            logits = np.zeros((2, 128))
            logits[0, first] = logits[1, last] = 10.0
            scores.append(WindowScores(independent_candidates(*logits), 0.0))
        passage = example.fields["context"]
        found = answer_question(
            encoded, number, passage, scores, is_joint=False, has_unanswerable=False, most_tokens=30
        )
        answer = example.answers[0]
        if (found.text, found.start) != (answer.text, answer.start):
            others.append((answer.text, found.text))
    # Its annotator cut one short: "7,000,000 square kilometres (2,70".
    assert len(others) == n_inside
    marks = string.punctuation + string.digits
    assert all(answer.strip(marks) == found.strip(marks) for answer, found in others)


def test_answers_in_a_table_of_ones_own_come_back(tmp_path):
    story = "The cat sat on the mat. It was a warm day in May."
    asked = [
        {"about": story, "asked": "Where?", "said": "on the mat"},
        {"about": story, "asked": "Who?", "said": ["The cat", "cat"]},
        {"about": "Dogs bark.", "asked": "Why?", "said": []},
    ]
    path = tmp_path / "own.jsonl"
    path.write_text("\n".join(map(json.dumps, asked)))
    task, splits = read_table(Table(path, "about", text_pair="asked", answer="said"))
    examples = splits["train"].examples
    encoded = encode_passages(task, examples, ByteTokenizer(), WindowRule(40, 10), trains=False)
    texts = []
    for number, example in enumerate(examples):
        scores = []
        for row in encoded.rows_of(number):
            first, last = encoded.span_of(row)
            logits = np.zeros((2, 40))
            logits[0, first] = logits[1, last] = 10.0
            scores.append(WindowScores(independent_candidates(*logits), sum(logits[:, 0])))
        found = answer_question(
            encoded, number, example.fields["about"], scores,
            is_joint=False, has_unanswerable=True, most_tokens=30,
        )  # fmt: skip
        texts.append(with_threshold([found], 0.0)[0].text)
    assert task.has_unanswerable and encoded.n_rows > 3
    assert texts == ["on the mat", "The cat", ""]
