"""Losses of answers and of texts by hand, collapses, and heads that answer a known task."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.config.task_heads import n_outputs
from sublayer.data.packing import PackedSequence, Unpacked, pack_examples
from sublayer.data.tasks.encoding import encode_examples
from sublayer.data.tasks.word_tokens import WordTokens
from sublayer.errors import ConfigError
from sublayer.model.build import build
from sublayer.objective.supervised.collapse import answer_loss, find_collapse, frequency_loss
from sublayer.objective.supervised.known_task import answer_known
from sublayer.objective.supervised.loss import answer_losses, scaled, unscaled
from sublayer.objective.supervised.readout import answer_logits, by_choice, text_states
from sublayer.objective.supervised.report import PartReport, average_reports
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.labels import label_places
from sublayer.tasks.metrics.averages import AVERAGES
from sublayer.tasks.metrics.score import Score
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task
from tests.answerers import assembler_of, draw_examples, model_of, objective_of, split_of

N = 13
TOKENS = torch.arange(7)[None]


def test_losses_of_labels_choices_and_numbers_by_hand():
    logits = torch.tensor([[0.0, math.log(3.0)], [math.log(4.0), 0.0]])
    losses = answer_losses(TASKS["sst2"], logits, torch.tensor([1.0, 1.0]))
    assert losses.tolist() == pytest.approx([math.log(4 / 3), math.log(5.0)])
    # Three sequences are of the first example, two of the second.
    owners = torch.tensor([0, 0, 0, 1, 1])
    rows = by_choice(torch.tensor([0.0, 0.0, math.log(2.0), 1.0, 1.0]), owners, (2, 3))
    assert rows[1].tolist() == [1.0, 1.0, -math.inf]
    losses = answer_losses(TASKS["copa"], rows, torch.tensor([2.0, 0.0]))
    assert losses.tolist() == pytest.approx([math.log(2.0), math.log(2.0)])
    # Half the squared distance on a scale from -1 to 1.
    task, labels = TASKS["stsb"], torch.tensor([0.0, 5.0, 2.5, 4.0])
    assert scaled(task, labels).tolist() == pytest.approx([-1.0, 1.0, 0.0, 0.6])
    assert unscaled(task, scaled(task, labels)).tolist() == pytest.approx(labels.tolist())
    losses = answer_losses(task, torch.tensor([[-1.0], [0.0], [0.5], [0.6]]), labels)
    assert losses.tolist() == pytest.approx([0.0, 0.5, 0.125, 0.0], abs=1e-12)


def traversal(*rows):
    examples = []
    for number, ids in enumerate(map(np.array, rows)):
        sequence = PackedSequence(ids, ids * 0, len(ids) - 1, targets=np.append(ids[1:], -1))
        examples.append(Unpacked([sequence], 0.0, 1.0, number))
    return pack_examples(examples, width=16, written_width=16, pad_id=0)


def test_texts_are_predicted_by_the_dropped_out_matrix_of_the_embedding():
    split = split_of({"sst2": draw_examples("sst2", 2)}, "traversal")
    fields = {"head": "linear", "softmax": "all"}
    dropped = {"dropout_embedding": 0.3, "dropout_embedding_of": "matrix"}
    model, plain = model_of(split, **fields, **dropped).train(), model_of(split, **fields)
    torch.manual_seed(4)
    matrix = model.drop_matrix()
    tables = {"embedding.weight": matrix.tokens, "positions.tables.0.weight": matrix.positions}
    plain.load_state_dict({**model.state_dict(), **tables})
    batch = traversal([7, 3, 3, 1], [5, 2], [6, 8, 8])
    expected = objective_of(plain, language_weight=0.5)(batch)
    torch.manual_seed(4)
    found = objective_of(model, language_weight=0.5)(batch)
    for term in ("task", "language"):
        torch.testing.assert_close(found[term], expected[term])


def test_several_right_answers_are_all_learned_as_text_and_asked_once():
    fields = {"passage": "w1 w2", "query": "w3 @placeholder"}
    example = Example("0", fields, None, ("w4", "w5"), (Answer("w4"), Answer("w5")))
    words = WordTokens(["record query: w3 @placeholder entities: w4, w5 passage: w1 w2 w4"])
    trained, asked = (
        encode_examples(TASKS["record"], [example], words, "text", trains=trains)
        for trains in (True, False)
    )
    assert (trained.numbers.tolist(), asked.numbers.tolist()) == ([0, 0], [0])
    assert [words.decode(trained.texts_of(row)[1]) for row in range(2)] == [b"w4", b"w5"]


def test_a_complete_suite_has_its_average_beside_its_tasks():
    reports = []
    for name in AVERAGES["GLUE without WNLI"]:
        for split in TASKS[name].dev_splits:
            value = 0.5 if split == "dev_mismatched" else 0.9
            score = Score(value, None, {}, n_examples=N, n_outside=0)
            reports.append(PartReport(name, TASKS[name], split, score, {}, ""))
    assert average_reports(reports) == {"GLUE without WNLI": pytest.approx((7 * 0.9 + 0.7) / 8)}
    assert average_reports(reports[1:]) == {}


def right(examples):
    """What a model answers that makes no mistake."""
    return [Prediction(label=example.label) for example in examples]


def with_labels(name, labels):
    drawn = draw_examples(name, len(labels))
    return [replace(each, label=label) for each, label in zip(drawn, labels, strict=True)]


def collapse_of(name, examples, predictions, loss=0.01):
    return find_collapse(TASKS[name], examples, predictions, examples, loss)


@pytest.mark.parametrize("name, label, words", [
    ("mnli", 2, "contradiction"), ("stsb", 2.5, "2.50"), ("copa", 0, "choice 1"),
    ("sst2", None, "none of the labels"), ("stsb", None, "no number"),
])  # fmt: skip
def test_one_answer_for_all_is_a_collapse(name, label, words):
    examples, same = draw_examples(name, 40), [Prediction(label=label)] * 40
    assert words in collapse_of(name, examples, same)
    other = Prediction(label=4.0 if name == "stsb" else 1 - (label or 0))
    assert collapse_of(name, examples, [*same[1:], other]) == ""
    for loss in (0.1, None):
        assert collapse_of(name, examples, right(examples), loss) == ""


def test_numbers_that_hardly_differ_and_one_answer_to_all_questions_are_a_collapse():
    examples, drawn = draw_examples("stsb", 40), np.random.default_rng(0).random(40)
    near, apart = ([Prediction(label=2.4 + x) for x in scale * drawn] for scale in (1e-3, 0.1))
    assert "2.40" in collapse_of("stsb", examples, near)
    assert collapse_of("stsb", examples, apart) == ""
    fields = {"context": "a b", "question": "c"}
    examples = [Example(str(n), fields, answers=(Answer("aba"[n], n % 2),)) for n in range(3)]
    endless = "the " * 99
    for text, shown in (("b", "'b'"), (endless, f"'{endless[:40]}...'")):
        assert shown in collapse_of("squad", examples, [Prediction(text=text)] * 3, 0.0)
    texts = [Prediction(text=text) for text in ("a", "b", "b")]
    assert collapse_of("squad", examples, texts, 99.0) == ""


@pytest.mark.parametrize(("name", "label"), [("sst2", 1), ("stsb", 3.0)])
def test_one_answer_where_all_labels_are_alike_is_none(name, label):
    examples, train = with_labels(name, [label] * 5), draw_examples(name, 40)
    assert find_collapse(TASKS[name], examples, right(examples), train, 0.01) == ""
    assert find_collapse(TASKS[name], examples[:1], right(examples[:1]), train, 0.01) == ""


def test_a_loss_no_lower_than_that_of_the_label_frequencies_is_a_collapse():
    # Of four labels three are one.
    by_hand = -(3 * math.log(3 / 4) + math.log(1 / 4)) / 4
    quarter = with_labels("sst2", [1, 1, 0, 1])
    assert frequency_loss(TASKS["sst2"], quarter) == pytest.approx(by_hand)
    # Half the variance of 0, 5, 5 and 0 on a scale from -1 to 1.
    assert frequency_loss(TASKS["stsb"], with_labels("stsb", [0.0, 5.0, 5.0, 0.0])) == 0.5
    choices = [Example("0", {}, 0, ("a", "b")), Example("1", {}, 0, ("a", "b", "c", "d"))]
    assert frequency_loss(TASKS["copa"], choices) == pytest.approx(math.log(8) / 2)
    assert frequency_loss(TASKS["squad"], choices) is None
    for labels in ([None], [1, 1]):
        assert frequency_loss(TASKS["sst2"], with_labels("sst2", labels)) is None
    examples = with_labels("sst2", [0, 1] * 10)
    for loss, words in ((0.7, "0.700"), (math.nan, "nan")):
        assert words in collapse_of("sst2", examples, right(examples), loss)
    assert collapse_of("sst2", examples, right(examples), 0.69) == ""


def test_the_loss_of_a_written_label_is_that_of_the_label():
    text = SupervisedObjective(format="text", target_length=8)
    examples = {"sst2": with_labels("sst2", [1, 1, 0, 1])}
    # A word and the end, of which the end is certain.
    whole, split = frequency_loss(TASKS["sst2"], examples["sst2"]), split_of(examples, "text")
    assert answer_loss(split, text, whole / 2) == whole
    assert answer_loss(split, text, None) is None
    assert answer_loss(split_of(examples, "pair"), SupervisedObjective(), 0.4) == 0.4
    # Several tasks, numbers, and labels of unequal lengths have none.
    for names in (("sst2", "rte"), ("stsb",), ("wnli",)):
        others = split_of({name: draw_examples(name, 4) for name in names}, "text")
        assert answer_loss(others, text, 0.4) is None


def test_one_output_costs_what_the_logistic_loss_does():
    split = split_of({"mrpc": draw_examples("mrpc", N)}, "pair")
    model = model_of(split, label_outputs=1)
    batch = assembler_of(split).pack(np.arange(N))
    logits = answer_logits(model, batch, text_states(model, batch), 0.0, "classes")
    assert logits.shape == (N, 2) and not logits[:, 0].any()
    loss = objective_of(model, dropout=0.0)(batch)["task"]
    expected = F.binary_cross_entropy_with_logits(logits[:, 1], batch.labels.double())
    torch.testing.assert_close(loss, N * expected, rtol=1e-12, atol=0)
    assert n_outputs(TASKS["mrpc"], logistic=True) == 1
    assert [n_outputs(TASKS[name]) for name in ("mrpc", "mnli", "stsb", "copa")] == [2, 3, 1, 1]


@pytest.mark.parametrize(("format_", "name"), [("pair", "mnli"), ("traversal", "copa")])
def test_a_head_at_zero_finds_all_answers_alike(format_, name):
    split = split_of({name: draw_examples(name, N)}, format_)
    model = model_of(split)
    objective_of(model, zero_head=True)
    batch = assembler_of(split).pack(np.arange(N))
    logits = answer_logits(model, batch, text_states(model, batch), 0.0, TASKS[name].kind)
    assert not logits[logits.isfinite()].any()


@pytest.mark.parametrize("settings, message", [
    ({"objective.logistic": True, "data.tasks": "mnli"}, "two labels, which .* mnli is not"),
    ({"objective.zero_head": True, "data.tasks": "squad"}, "squad asks for spans"),
])  # fmt: skip
def test_a_setting_of_another_head_is_refused(settings, message):
    tasks = {"objective.kind": "supervised", "data.path": "glue", "data.context": 64}
    with pytest.raises(ConfigError, match=message):
        load_recipe("bert-base", {**tasks, **settings})


def imported(n_outputs, **fields):
    """Build an encoder that answers a task of another program."""
    own = {"kind": "encoder", "head": "none", "n_layers": 1, "d_model": 8, "n_heads": 2}
    config = ModelConfig.model_validate({**own, "label_outputs": n_outputs})
    model = build(resolve_model(config, vocab_size=7, context=7), seed=0).eval()
    with torch.no_grad():
        model.label_head.bias.normal_(generator=torch.Generator().manual_seed(1))
    task = Task("imported", "imported", "table", "classes", ("text",), ("accuracy",))
    model.task = TaskSpec((replace(task, **fields),), "pair", 7)
    return model


@torch.inference_mode()
def test_labels_are_put_into_the_order_of_the_task_by_their_words():
    model = imported(3, labels=("CONTRADICTION", "Neutral", "entailment"))
    before = model(TOKENS)["label"][0].tolist()
    answer_known(model, TASKS["mnli"])
    assert model.task.tasks == (TASKS["mnli"],)
    assert TASKS["mnli"].labels == ("entailment", "neutral", "contradiction")
    assert model(TOKENS)["label"][0].tolist() == before[::-1]
    pairs = ("entailment,not_entailment", "Not Entailment,ENTAILMENT ", "not-entailment,entailment")
    found = [label_places(words.split(","), TASKS["rte"]) for words in pairs]
    assert found == [(0, 1), (1, 0), (1, 0)]


@pytest.mark.parametrize("words", [
    "entailment neutral", "entailment Entailment", "entailment not_entailment x",
])  # fmt: skip
def test_an_order_is_not_guessed(words):
    with pytest.raises(ConfigError, match="those of RTE entailment"):
        label_places(words.split(), TASKS["rte"])


@torch.inference_mode()
def test_one_output_is_turned_round_and_numbers_are_put_on_the_scale_of_the_task():
    model = imported(1, labels=("positive", "negative"))
    before = model(TOKENS)["label"]
    answer_known(model, TASKS["sst2"])
    assert torch.equal(model(TOKENS)["label"], -before)
    model = imported(1, kind="number", numbers=(-1.0, 1.0), is_bounded=False)
    number = model(TOKENS)["label"]
    answer_known(model, TASKS["stsb"])
    again = unscaled(TASKS["stsb"], model(TOKENS)["label"])
    torch.testing.assert_close(again, number, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["stsb", "copa"])
def test_another_kind_of_answer_and_none_are_refused(name):
    model = imported(2, labels=("negative", "positive"))
    with pytest.raises(ConfigError, match="the model answers imported"):
        answer_known(model, TASKS[name])
    model.task = None
    with pytest.raises(ConfigError, match="no head that answers a task"):
        answer_known(model, TASKS["sst2"])
