"""The losses of answers and of texts by hand and in pieces of any size; baselines and averages."""

import math

import numpy as np
import pytest
import torch

from sublayer.data.packed_batch import PackedBatch
from sublayer.data.packing import PackedSequence, Unpacked, pack_examples
from sublayer.data.tasks.encoded import EncodedExamples
from sublayer.data.tasks.encoding import encode_examples
from sublayer.data.tasks.task_split import TaskPart
from sublayer.data.tasks.word_tokens import WordTokens
from sublayer.objective.base import Objective
from sublayer.objective.supervised.baselines import BaselineScores
from sublayer.objective.supervised.loss import (
    answer_losses,
    scaled,
    token_weights,
    unscaled,
)
from sublayer.objective.supervised.readout import by_choice
from sublayer.objective.supervised.report import PartReport, average_reports
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.metrics.averages import AVERAGES
from sublayer.tasks.metrics.score import Score
from sublayer.tasks.registry import TASKS
from tests.answerers import assembler_of, draw_examples, model_of, objective_of, split_of

N = 13


def test_an_answer_costs_the_nats_of_its_label():
    logits = torch.tensor([[0.0, math.log(3.0)], [math.log(4.0), 0.0]])
    losses = answer_losses(TASKS["sst2"], logits, torch.tensor([1.0, 1.0]))
    assert losses.tolist() == pytest.approx([math.log(4 / 3), math.log(5.0)])


def test_choices_that_an_example_does_not_have_take_no_share():
    # Three sequences are of the first example, two of the second.
    owners = torch.tensor([0, 0, 0, 1, 1])
    rows = by_choice(torch.tensor([0.0, 0.0, math.log(2.0), 1.0, 1.0]), owners, (2, 3))
    assert rows[1].tolist() == [1.0, 1.0, -math.inf]
    losses = answer_losses(TASKS["copa"], rows, torch.tensor([2.0, 0.0]))
    assert losses.tolist() == pytest.approx([math.log(2.0), math.log(2.0)])


def test_a_number_costs_half_its_squared_distance_on_a_scale_from_minus_one_to_one():
    task = TASKS["stsb"]
    labels = torch.tensor([0.0, 5.0, 2.5, 4.0])
    assert scaled(task, labels).tolist() == pytest.approx([-1.0, 1.0, 0.0, 0.6])
    assert unscaled(task, scaled(task, labels)).tolist() == pytest.approx(labels.tolist())
    losses = answer_losses(task, torch.tensor([[-1.0], [0.0], [0.5], [0.6]]), labels)
    assert losses.tolist() == pytest.approx([0.0, 0.5, 0.125, 0.0], abs=1e-12)


def traversal(*rows: list[int], weight: float = 1.0) -> PackedBatch:
    examples = []
    for number, row in enumerate(rows):
        ids = np.array(row)
        sequence = PackedSequence(ids, ids * 0, len(ids) - 1, targets=np.append(ids[1:], -1))
        examples.append(Unpacked([sequence], 0.0, weight, number))
    return pack_examples(examples, width=16, written_width=16, pad_id=0)


def test_the_texts_cost_the_mean_over_rows_of_each_rows_mean():
    split = split_of({"sst2": draw_examples("sst2", 2)}, "traversal")
    model = model_of(split, head="linear", head_bias=True)
    # Whatever the model reads, token t has a share of 2^-t, but for what is left of one.
    with torch.no_grad():
        model.embedding.weight.zero_()
        assert model.head is not None and model.head.bias is not None
        model.head.bias.fill_(-1e9)
        model.head.bias[1:9] = -math.log(2.0) * torch.arange(1, 9).double()
    left = math.log(1 - 2**-8)
    objective = objective_of(model, language_weight=0.5)
    # Three tokens follow in a row, one in the next, two in the last: the rows count alike.
    batch = traversal([7, 3, 3, 1], [5, 2], [6, 8, 8])
    assert len(batch.read) == 1
    total = objective(batch)["language"].item() / objective.counts(batch)["language"]
    means = [(3 + 3 + 1) / 3, 2 / 1, (8 + 8) / 2]
    assert total == pytest.approx(math.log(2.0) * sum(means) / 3 + left, rel=1e-12)
    assert objective.weights == {"task": 1.0, "language": 0.5}


def test_the_texts_are_predicted_by_the_matrix_that_was_looked_up():
    softmax = "all"
    split = split_of({"sst2": draw_examples("sst2", 2)}, "traversal")
    fields = {"head": "linear", "softmax": softmax}
    dropped = {"dropout_embedding": 0.3, "dropout_embedding_of": "matrix"}
    model, plain = model_of(split, **fields, **dropped).train(), model_of(split, **fields)
    torch.manual_seed(4)
    matrix = model.drop_matrix()
    assert matrix is not None
    tables = {
        "embedding.weight": matrix.tokens,
        "positions.tables.0.weight": matrix.positions,
    }
    plain.load_state_dict({**model.state_dict(), **tables})
    batch = traversal([7, 3, 3, 1], [5, 2], [6, 8, 8])
    expected = objective_of(plain, language_weight=0.5)(batch)
    torch.manual_seed(4)
    found = objective_of(model, language_weight=0.5)(batch)
    for term in ("task", "language"):
        torch.testing.assert_close(found[term], expected[term])


def test_weights_of_tokens_add_up_to_one_for_each_row_that_counts():
    batch = traversal([7, 3, 3, 1], [5, 2], [6, 8, 8])
    assert token_weights(batch).sum().item() == pytest.approx(3.0, rel=1e-15)
    none = traversal([7, 3, 3, 1], [5, 2], weight=0.0)
    assert token_weights(none).sum().item() == 0.0


def terms(format_: str, name: str, **fields: object) -> tuple[Objective, PackedBatch]:
    split = split_of({name: draw_examples(name, N, longest=9)}, format_)
    language = {"language_weight": 0.7} if format_ == "traversal" else {}
    model = model_of(split, 64, **({"head": "linear"} if language else {}), **fields)
    objective = objective_of(model, **language)
    return objective.train(), assembler_of(split, 64, **language).pack(np.arange(N))


@pytest.mark.parametrize(("format_", "name"), [("traversal", "mrpc"), ("text", "mnli")])
def test_padding_for_no_example_counts_for_nothing(format_, name):
    split = split_of({name: draw_examples(name, N, longest=9)}, format_)
    language = {"language_weight": 0.7} if format_ == "traversal" else {}
    model = model_of(split, 64, **({"head": "linear"} if language else {}))
    objective = objective_of(model, **language)
    batch = assembler_of(split, 64, **language).pack(np.array([3]), weight=0.0)
    assert set(objective.counts(batch).values()) == {0}
    totals = objective(batch)
    assert all(total.item() == 0.0 for total in totals.values())
    sum(totals.values()).backward()
    for parameter in objective.parameters():
        assert parameter.grad is None or not parameter.grad.any()


def test_counts_are_of_examples_sequences_and_tokens():
    objective, batch = terms("traversal", "mrpc")
    # Both orders of a pair are one example, and two rows.
    assert objective.counts(batch) == {"task": N, "language": 2 * N}
    objective, batch = terms("pair", "race_high")
    assert objective.counts(batch) == {"task": N}
    objective, batch = terms("text", "mnli")
    # A label is a word, and its end.
    assert objective.counts(batch) == {"task": 2 * N}


def test_of_several_right_answers_each_is_learned_as_text_and_an_example_is_asked_once():
    fields = {"passage": "w1 w2", "query": "w3 @placeholder"}
    example = Example("0", fields, None, ("w4", "w5"), (Answer("w4"), Answer("w5")))
    words = WordTokens(["record query: w3 @placeholder entities: w4, w5 passage: w1 w2 w4"])
    trained = encode_examples(TASKS["record"], [example], words, "text", trains=True)
    asked = encode_examples(TASKS["record"], [example], words, "text", trains=False)
    assert trained.numbers.tolist() == [0, 0] and asked.numbers.tolist() == [0]
    targets = [words.decode(trained.texts_of(row)[1]) for row in range(2)]
    assert targets == [b"w4", b"w5"]


def part_of(name):
    examples = draw_examples(name, N)
    none = np.zeros(0, dtype=np.int64)
    encoded = EncodedExamples(
        ids=none,
        text_starts=none,
        row_starts=none,
        example_starts=none,
        labels=np.zeros(N),
        is_labelled=np.ones(N, dtype=np.bool_),
        cuts=none,
        numbers=np.arange(N),
    )
    return TaskPart(TASKS[name], "dev", encoded, lambda: examples)


def test_baselines_are_computed_when_they_are_asked_for_and_once():
    n_read = 0

    def read_train():
        nonlocal n_read
        n_read += 1
        return {"sst2": draw_examples("sst2", N)}

    baselines = BaselineScores(read_train)
    assert n_read == 0
    first = baselines.of(part_of("sst2"))
    assert list(first) == ["majority", "words"]
    assert baselines.of(part_of("sst2")) is first
    assert baselines.of(part_of("cola")) == {}
    assert n_read == 1


def test_a_suite_that_is_whole_has_its_average_beside_its_tasks():
    reports = []
    for name in AVERAGES["GLUE without WNLI"]:
        task = TASKS[name]
        for split in task.dev_splits:
            value = 0.5 if split == "dev_mismatched" else 0.9
            score = Score(value, None, {}, n_examples=N, n_outside=0)
            reports.append(PartReport(name, task, split, score, {}, ""))
    averages = average_reports(reports)
    assert averages == {"GLUE without WNLI": pytest.approx((7 * 0.9 + 0.7) / 8)}
    assert average_reports(reports[1:]) == {}
