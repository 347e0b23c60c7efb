"""Losses and answers of tasks by hand; answers to rows of users, and of ensembles."""

import math
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from threading import Barrier
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sublayer.api.run import Pretrained
from sublayer.config.model import ModelConfig
from sublayer.config.objective import SupervisedObjective
from sublayer.config.resolve import n_outputs, resolve_model
from sublayer.data.batches import PackedSequence, Unpacked, pack_examples
from sublayer.data.tasks.batches import TaskPart
from sublayer.data.tasks.encoded import encode_examples
from sublayer.data.tasks.figure import WordTokens
from sublayer.data.tasks.prepare import task_split
from sublayer.data.tasks.spans import Span
from sublayer.decode.sample import Sampling
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.model.transformer import build
from sublayer.objective.supervised.answering import (
    Answerer,
    MemberAnswers,
    answer_known,
    answer_together,
    average,
    average_listed,
    check_heads,
    check_members,
    combine,
    mean,
    mean_threshold,
    member_answers,
)
from sublayer.objective.supervised.evaluation import UnseenRows, choose
from sublayer.objective.supervised.heads import (
    AskedSplit,
    Listed,
    answer_logits,
    answer_losses,
    by_choice,
    scaled,
    text_states,
    unscaled,
)
from sublayer.objective.supervised.scores import (
    PartReport,
    answer_loss,
    answer_split,
    average_reports,
    find_collapse,
    frequency_loss,
)
from sublayer.objective.supervised.text import GREEDILY, Writing
from sublayer.tasks.registry import AVERAGES, TASKS, TaskSpec
from sublayer.tasks.scoring import TaskScore
from sublayer.tasks.task import Answer, Example, Prediction, Task
from tests.answerers import (
    answering,
    assembler_of,
    draw_examples,
    model_of,
    objective_of,
    rule_of,
    split_of,
    tokenizer_of,
)

from .test_spans import CONTEXT, RULE, TOKENIZER, encoded_questions, questions, span_model

N, TOKENS = 13, torch.arange(7)[None]
CLOSE = {"abs": 1e-12}
SCORES = {
    (0,): 0.70, (1,): 0.80, (2,): 0.75, (3,): 0.80,
    (0, 1): 0.85, (1, 2): 0.82, (1, 3): 0.81, (0, 2): 0.95, (0, 3): 0.7, (2, 3): 0.7,
    (0, 1, 2): 0.85, (0, 1, 3): 0.84, (0, 2, 3): 0.95, (1, 2, 3): 0.8, (0, 1, 2, 3): 0.85,
}  # fmt: skip


def test_losses_of_labels_choices_and_numbers_by_hand():
    logits = torch.tensor([[0.0, math.log(3.0)], [math.log(4.0), 0.0]])
    losses = answer_losses(TASKS["sst2"], logits, torch.tensor([1.0, 1.0]))
    assert losses.tolist() == pytest.approx([math.log(4 / 3), math.log(5.0)])
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


def test_texts_are_predicted_by_the_dropped_out_matrix_of_the_embedding():
    split = split_of({"sst2": draw_examples("sst2", 2)}, "traversal")
    fields = {"head": "linear", "softmax": "all"}
    dropped = {"dropout_embedding": 0.3, "dropout_embedding_of": "matrix"}
    model, plain = model_of(split, **fields, **dropped).train(), model_of(split, **fields)
    torch.manual_seed(4)
    matrix = model.drop_matrix()
    tables = {"embedding.weight": matrix.tokens, "positions.tables.0.weight": matrix.positions}
    plain.load_state_dict({**model.state_dict(), **tables})
    examples = []
    for number, ids in enumerate(map(np.array, ([7, 3, 3, 1], [5, 2], [6, 8, 8]))):
        sequence = PackedSequence(ids, ids * 0, len(ids) - 1, targets=np.append(ids[1:], -1))
        examples.append(Unpacked([sequence], 0.0, 1.0, number))
    batch = pack_examples(examples, width=16, written_width=16, pad_id=0)
    expected = objective_of(plain, split, language_weight=0.5)(batch)
    torch.manual_seed(4)
    found = objective_of(model, split, language_weight=0.5)(batch)
    for term in ("task", "language"):
        torch.testing.assert_close(found[term], expected[term])


def test_several_right_answers_are_all_learned_as_text_and_asked_once():
    fields = {"passage": "w1 w2", "query": "w3 @placeholder"}
    example = Example("0", fields, None, ("w4", "w5"), (Answer("w4"), Answer("w5")))
    words = WordTokens(["record query: w3 @placeholder entities: w4, w5 passage: w1 w2 w4"])
    record = TASKS["record"], [example], words, "text"
    trained, asked = (encode_examples(*record, trains=trains) for trains in (True, False))
    assert (trained.numbers.tolist(), asked.numbers.tolist()) == ([0, 0], [0])
    assert [words.decode(trained.texts_of(row)[1]) for row in range(2)] == [b"w4", b"w5"]


def suite_averages(scores):
    return average_reports([
        PartReport(name, TASKS[name], "dev", TaskScore(value, None, {}, N, n_outside=0), {}, "")
        for name, values in scores.items() for value in values
    ])  # fmt: skip


def test_a_complete_suite_has_its_average_beside_its_tasks():
    glue = {task: [0.8] for task in AVERAGES["GLUE"]} | {"wnli": [0.35], "ax": [0.1]}
    means = {"GLUE": (8 * 0.8 + 0.35) / 9, "GLUE without WNLI": 0.8}
    assert suite_averages(glue) == pytest.approx(means)
    # MNLI's score is the mean of its two sets; without one of its tasks a suite has no average.
    zeros = {task: [0.0] for task in AVERAGES["GLUE without WNLI"]} | {"mnli": [0.8, 0.6]}
    assert suite_averages(zeros) == {"GLUE without WNLI": pytest.approx(0.7 / 8)}
    superglue = {task: [0.5] for task in AVERAGES["SuperGLUE"]}
    assert suite_averages(superglue) == {"SuperGLUE": 0.5}
    assert suite_averages({task: [0.5] for task in superglue if task != "wsc"}) == {}


def right(examples):
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
    whole, split = frequency_loss(TASKS["sst2"], examples["sst2"]), split_of(examples, "text")
    assert answer_loss(split, text, whole / 2) == whole and answer_loss(split, text, None) is None
    assert answer_loss(split_of(examples, "pair"), SupervisedObjective(), 0.4) == 0.4
    for names in (("sst2", "rte"), ("stsb",), ("wnli",)):
        others = split_of({name: draw_examples(name, 4) for name in names}, "text")
        assert answer_loss(others, text, 0.4) is None


def test_one_output_costs_what_the_logistic_loss_does():
    split = split_of({"mrpc": draw_examples("mrpc", N)}, "pair")
    model, batch = model_of(split, label_outputs=1), assembler_of(split).pack(np.arange(N))
    logits = answer_logits(model, batch, text_states(model, batch), 0.0, "classes")
    assert logits.shape == (N, 2) and not logits[:, 0].any()
    loss = objective_of(model, split, dropout=0.0)(batch)["task"]
    expected = F.binary_cross_entropy_with_logits(logits[:, 1], batch.labels.double())
    torch.testing.assert_close(loss, N * expected, rtol=1e-12, atol=0)
    assert n_outputs(TASKS["mrpc"], logistic=True) == 1
    assert [n_outputs(TASKS[name]) for name in ("mrpc", "mnli", "stsb", "copa")] == [2, 3, 1, 1]


@pytest.mark.parametrize(("format_", "name"), [("pair", "mnli"), ("traversal", "copa")])
def test_a_head_at_zero_finds_all_answers_alike(format_, name):
    split = split_of({name: draw_examples(name, N)}, format_)
    model = model_of(split)
    objective_of(model, split, zero_head=True)
    batch = assembler_of(split).pack(np.arange(N))
    logits = answer_logits(model, batch, text_states(model, batch), 0.0, TASKS[name].kind)
    assert not logits[logits.isfinite()].any()


def imported(n_outputs, **fields):
    own = {"kind": "encoder", "head": "none", "n_layers": 1, "d_model": 8, "n_heads": 2}
    config = ModelConfig.model_validate({**own, "label_outputs": n_outputs})
    model = build(resolve_model(config, vocab_size=7, context=7), seed=0).eval()
    with torch.no_grad():
        model.label_head.bias.normal_(generator=torch.Generator().manual_seed(1))
    task = Task("imported", "imported", "table", "classes", ("text",), ("accuracy",))
    return Pretrained(model, task=TaskSpec((replace(task, **fields),), "pair", 7))


@torch.inference_mode()
def test_labels_are_put_into_the_order_of_the_task_by_their_words():
    model = imported(3, labels=("CONTRADICTION", "Neutral", "entailment"))
    before = model(TOKENS)["label"][0].tolist()
    answer_known(model, TASKS["mnli"])
    assert model.task.tasks == (TASKS["mnli"],)
    assert TASKS["mnli"].labels == ("entailment", "neutral", "contradiction")
    assert model(TOKENS)["label"][0].tolist() == before[::-1]
    pairs = ("entailment,not_entailment", "Not Entailment,ENTAILMENT ", "not-entailment,entailment")
    for words, places in zip(pairs, ([0, 1], [1, 0], [1, 0]), strict=True):
        model = imported(2, labels=tuple(words.split(",")))
        before = model(TOKENS)["label"][0]
        answer_known(model, TASKS["rte"])
        assert torch.equal(model(TOKENS)["label"][0], before[places])


@pytest.mark.parametrize("more", ["neutral", "Entailment", "not_entailment x"])
def test_an_order_is_not_guessed(more):
    with pytest.raises(ConfigError, match="those of RTE are entailment"):
        answer_known(imported(2, labels=("entailment", *more.split())), TASKS["rte"])


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


def split_for(task, format_, n=9):
    return split_of({task: draw_examples(task, n)}, format_, trains=False)


def drawn(split, seed, **settings):
    model = answering(split, **{"answer": "rank", **settings})
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3, generator)
    return model


def answers_alone(model, split, **rule):
    rule = rule_of(split, **rule)
    shown = answer_split(AskedSplit(model.model, split, rule, model.task), GREEDILY)[0]
    # What is only scored is given up early where nothing can come of it.
    scored = answer_split(AskedSplit(model.model, split, rule, model.task))[0]
    assert [each.label for each in scored] == [each.label for each in shown]
    texts = zip(scored, shown, strict=True)
    assert all(one.text == other.text or one.label is None for one, other in texts)
    return shown


def values(predictions):
    return [each.probabilities or (each.label,) for each in predictions]


def in_halves(model, examples):
    """The answers of two processes that divide the work, as threads: all have all."""
    given, both = {}, Barrier(2)

    def answer(rank):
        def gather(rows, n):
            given[rank] = list(rows)
            both.wait(60)
            merged = [given[index % 2][index // 2] for index in range(n)]
            both.wait(60)
            return merged

        answerer, own = Answerer([deepcopy(model)], batch=2), lambda n: range(rank, n, 2)
        answerer.processes = SimpleNamespace(rank=rank, own=own, gather=gather)
        return answerer.answer(examples)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(answer, range(2)))


def test_equal_rows_are_sampled_apart_in_every_batch_and_block():
    split = split_for("stsb", "text")
    writing = Writing(sampling=Sampling(5.0), seed=1)
    answerer = Answerer([drawn(split, 3)], batch=2, writing=writing)
    rows = split.parts[0].examples[:1] * 8
    assert len({each.text for _ in range(2) for each in answerer.answer(rows)}) > 8


@pytest.mark.parametrize("of", ["rte pair", "stsb pair", "copa pair", "rte traversal", "rte text"])
def test_answers_to_rows_and_of_copies_are_those_to_a_split(of):
    split = split_for(*of.split())
    model = drawn(split, 3)
    expected, examples = answers_alone(model, split), split.parts[0].examples
    bare = [replace(each, label=None, is_labelled=False) for each in examples]
    # Numbers to the rounding of float64: a product of another number of rows may round otherwise.
    alone, together = Answerer([model], batch=2), answer_together([model] * 3, split.parts)
    for found in (alone.answer(bare), together, *in_halves(model, bare)):
        labels = [[each.label for each in given] for given in (found, expected)]
        assert labels[0] == pytest.approx(labels[1], **CLOSE)
        for ours, theirs in zip(values(found), values(expected), strict=True):
            assert [p for p in ours if p] == pytest.approx([p for p in theirs if p], **CLOSE)


@pytest.mark.parametrize("task", ["sst2", "copa"])
def test_texts_tuples_and_mappings_are_the_same_rows(task):
    split = split_for(task, "pair")
    model, examples = answering(split), split.parts[0].examples
    more = [{"choices": list(each.choices)} if each.choices else {} for each in examples]
    mappings = [{**each.fields, **own} for each, own in zip(examples, more, strict=True)]
    tuples = [(*each.fields.values(), *each.choices) for each in examples]
    lists, found = [[*row.values()] for row in mappings], Answerer([model]).predict_rows(mappings)
    assert len(found) == len(examples)
    for rows in (tuples, lists, [text for (text,) in tuples] if task == "sst2" else tuples):
        assert Answerer([model]).predict_rows(rows) == found


def test_ranked_answers_have_probabilities_written_ones_their_text_and_empty_rows_nothing():
    model = answering(split_for("rte", "text"))
    rows = [{"sentence1": "w1 w2", "sentence2": "w3"}, ("w1", " "), ("w3", "w4")]
    written = Answerer([model]).predict_rows(rows)
    assert written[0].written is not None and written[0].probabilities == {}
    model.task = replace(model.task, answer="rank")
    ranked, empty, last = Answerer([model]).predict_rows(rows)
    assert ranked.written is None and sum(ranked.probabilities.values()) == pytest.approx(1)
    assert ranked.label in ("entailment", "not_entailment")
    assert (empty.is_answered, empty.label, empty.probabilities) == (False, None, {})
    assert [ranked, last] == Answerer([model]).predict_rows([rows[0], rows[2]])


@pytest.mark.parametrize("task, rows, message", [
    ("rte", ["w1"], "row 0 has 1 text, but"),
    ("rte", [("w1", "w2", "w3")], "row 0 has 3 texts, but"),
    ("rte", [{"sentence1": "w1"}], "row 0 has no column 'sentence2'"),
    ("copa", [("w1", "w2", "w3")], "two choices or more"),
    ("rte", [("w1", 5)], "row 0: sentence2 is int, not a text"),
    ("rte", "w1 w2", "rows is one text"),
])  # fmt: skip
def test_rows_that_lack_fields_are_refused(task, rows, message):
    with pytest.raises(DataError, match=message):
        Answerer([answering(split_for(task, "pair"))]).predict_rows(rows)


def test_a_model_without_the_task_or_a_tokenizer_is_refused():
    examples = {name: draw_examples(name, 3) for name in ("sst2", "rte")}
    model = answering(split_of(examples, "text", trains=False))
    with pytest.raises(ConfigError, match="several tasks, sst2, rte"):
        Answerer([model]).predict_rows(["w1"])
    assert len(Answerer([model], "sst2").predict_rows(["w1"])) == 1
    with pytest.raises(ConfigError, match="does not answer cola, but sst2, rte"):
        Answerer([model], "cola").predict_rows(["w1"])
    model = answering(split_for("mnli", "pair"))
    assert Answerer([model], "ax").task.name == "ax"  # a diagnostic set of its task
    with pytest.raises(ConfigError, match="does not answer axb"):
        Answerer([model], "axb")
    tokenizer, model.tokenizer = model.tokenizer, None
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        Answerer([model])
    model.tokenizer, model.task = tokenizer, None
    with pytest.raises(ConfigError, match="answers no task: fine-tune it first"):
        Answerer([model])


def averaged(task, *members, **fields):
    example = Example("0", {"sentence": "w1"}, **fields)
    return average(TASKS[task], example, members)


def test_probabilities_and_numbers_are_averaged_by_hand():
    given = [(0.9, 0.1), (0.3, 0.7), (0.35, 0.65)]
    found = averaged("sst2", *(Prediction(label=int(p[1] > p[0]), probabilities=p) for p in given))
    # Two of three would say 1: (0.9 + 0.3 + 0.35) / 3 says 0.
    assert (found.label, found.probabilities) == (0, pytest.approx((1.55 / 3, 1.45 / 3), abs=1e-15))
    first = Prediction(label=0, probabilities=(0.6, 0.4, 0.0, 0.0))
    second = Prediction(label=1, probabilities=(0.1, 0.9))
    found = averaged("copa", first, second, choices=("w3", "w4"))
    assert found.probabilities == pytest.approx((0.35, 0.65), abs=1e-15) and found.label == 1
    numbers = (Prediction(label=value) for value in (1.0, 4.5, 2.0))
    assert averaged("stsb", *numbers) == Prediction(label=2.5)
    no = Prediction(label=1, probabilities=(0.4, 0.6), text="not_entailment")
    yes = Prediction(label=0, probabilities=(0.9, 0.1), text="entailment")
    assert averaged("rte", no, yes).text == "entailment"
    assert averaged("rte", no, replace(yes, text="")).text == ""
    assert (mean([0.1] * 3), mean([1 / 3] * 49)) == (0.1, 1 / 3)


def test_members_of_other_formats_tokenizers_and_contexts_read_the_same_examples(monkeypatch):
    examples, words = {"rte": draw_examples("rte", 9)}, tokenizer_of(["rte", "sst2"])
    members = (("pair", None, 48), ("traversal", words, 40), ("text", None, 44))
    splits, models, alone = [], [], []
    for format_, tokenizer, context in members:
        splits.append(split_of(examples, format_, tokenizer, trains=False))
        models.append(drawn(splits[-1], 5, context=context))
        alone.append(values(answers_alone(models[-1], splits[-1], context=context)))
    for split in splits:
        together = values(answer_together(models, split.parts))
        assert np.array(together) == pytest.approx(np.mean(alone, axis=0), **CLOSE)
    rows = [("w1", "w2"), ("w3", " "), ("w4 w5", "w6")]
    noted = Mock()
    monkeypatch.setattr("sublayer.objective.supervised.answering.note_losses", noted)
    first, empty, _ = Answerer(models, names=["a", "b", "c"]).predict_rows(rows)
    assert noted.call_count == len({model.tokenizer.fingerprint for model in models}) > 1
    own = [Answerer([model]).predict_rows(rows)[0].probabilities["entailment"] for model in models]
    assert not empty.is_answered
    assert first.probabilities["entailment"] == pytest.approx(sum(own) / 3, **CLOSE)


def test_models_that_do_not_answer_alike_are_refused():
    asked = (("rte", "pair"), ("cola", "pair"), ("rte", "text"), ("stsb", "text"))
    rte, cola, text, numbers = (split_for(*each) for each in asked)
    renamed, bare = drawn(rte, 0), drawn(rte, 1)
    task = replace(renamed.task.tasks[0], labels=("no", "yes"))
    renamed.task = replace(renamed.task, tasks=(task,))
    bare.tokenizer = None
    refused = [
        ([drawn(rte, 0), drawn(cola, 0)], rte, "2 does not answer rte"),
        ([drawn(rte, 0)], cola, "the model does not answer cola, but"),
        ([drawn(rte, 0), renamed], rte, "2 answers RTE differently from model 1: labels is"),
        ([drawn(text, 0, answer="greedy")], text, "as text"),
        ([drawn(numbers, 0)], numbers, "cannot be averaged"),
        ([drawn(rte, 0), bare], None, r"b has no tokenizer\.json"),
    ]
    for models, split, message in refused:
        with pytest.raises((ConfigError, CheckpointError), match=message):
            answer_together(models, split.parts) if split else Answerer(models, names=("a", "b"))


def spans(**scores):
    found = [Span(text, "abcdefghij".index(text), score, 0.0) for text, score in scores.items()]
    return sorted(found, key=lambda span: -span.score)


def averaged_spans(*members):
    return average_listed([Listed(each, 0.0) for each in members]).spans


def decode(listed, **of):
    return average_listed(listed).prediction(**of)


def test_spans_are_averaged_and_a_missing_one_has_the_lowest_score_of_its_member():
    found = averaged_spans(spans(ab=-1.0, cd=-2.0), spans(cd=-1.0, ef=-5.0))
    # ab: (-1 - 5) / 2; cd: (-2 - 1) / 2; ef: (-2 - 5) / 2.
    assert [(span.text, span.score) for span in found] == [("cd", -1.5), ("ab", -3.0), ("ef", -3.5)]
    shares = np.exp([-1.5, -3.0, -3.5])
    assert [span.probability for span in found] == pytest.approx(shares / shares.sum(), **CLOSE)
    alone, others = spans(ab=-0.1, cd=-9.0), spans(ef=-0.4, cd=-9.0)
    assert averaged_spans(alone, others, others)[0].text == "ef"


def test_scores_of_no_answer_are_averaged_and_a_member_without_spans_is_left_out():
    first, second, nothing = Listed(spans(ab=1.0), 3.0), Listed(spans(ab=3.0), -2.0), Listed((), 0)
    assert decode([first, second], is_joint=True, has_unanswerable=True).no_answer == 0.5
    # Of independent ends: the average of [CLS], 0.5, against that of the best span, 2.
    independent = decode([first, second], is_joint=False, has_unanswerable=True)
    assert (independent.text, independent.no_answer) == ("ab", -1.5)
    assert decode([first, nothing], is_joint=False, has_unanswerable=False).text == "ab"
    none = decode([nothing, nothing], is_joint=False, has_unanswerable=False)
    assert (none.text, none.start) == ("", None)


def question_split(name, examples):
    encoded = encoded_questions(examples, name, trains=False)
    part = TaskPart(TASKS[name], "dev", encoded, lambda: examples)
    return task_split("test", [part], TOKENIZER, SupervisedObjective())


@pytest.mark.parametrize("name", ["squad", "squad2"])
def test_copies_of_one_span_model_answer_as_it_does_alone(name):
    split = question_split(name, questions(12, seed=7, has_unanswerable=name == "squad2"))
    spec, model = TaskSpec((TASKS[name],), "pair", CONTEXT, max_answer=4), span_model(name)
    if name == "squad2":
        given, _ = answer_split(AskedSplit(model, split, RULE, spec))
        spec = spec.with_threshold(sorted(each.no_answer for each in given)[5])
    expected, _ = answer_split(AskedSplit(model, split, RULE, spec))
    members = [member_answers(AskedSplit(model, split, RULE, spec))] * 3
    assert combine(split.parts, members, mean_threshold(members)) == expected
    assert sum(bool(each.text) for each in expected) == (12 if name == "squad" else 6)
    if name == "squad2":
        thresholds = (spec.with_threshold(each) for each in (1.0, 4.0, None))
        found = [member_answers(AskedSplit(model, split, RULE, each)) for each in thresholds]
        assert (mean_threshold(found[:2]), mean_threshold(found)) == (2.5, None)


def spec(name, format_="pair", answer="greedy", **changed):
    return TaskSpec((replace(TASKS[name], **changed),), format_, 32, answer=answer)


@pytest.mark.parametrize("other, message", [
    (spec("cola"), "b answers CoLA, but a STS-B"),
    (spec("stsb", numbers=(1.0, 5.0)), "b answers STS-B differently from a: numbers"),
    (spec("stsb", fields=("one", "two")), "differently from a: fields"),
    (spec("stsb", is_bounded=False), "differently from a: is_bounded"),
    (spec("stsb", kind="choice"), "differently from a: kind"),
    (spec("stsb", "text", "rank"), "b writes its answers to STS-B as text"),
])  # fmt: skip
def test_members_of_other_tasks_are_refused(other, message):
    check_members(["a", "b"], [spec("stsb"), spec("stsb", "traversal")])
    with pytest.raises(ConfigError, match=message):
        check_members(["a", "b"], [spec("stsb"), other])


def test_scores_of_no_answer_on_different_scales_are_not_averaged():
    heads = ("joint", "independent")
    joint, independent = (Pretrained(span_model("squad2", span_head=head)) for head in heads)
    joint.task = independent.task = spec("squad2")
    check_heads(["a", "b"], [joint, joint])
    with pytest.raises(ConfigError, match="b has a head of independent spans, but a one of joint"):
        check_heads(["a", "b"], [joint, independent])
    joint.task = independent.task = spec("squad")
    check_heads(["a", "b"], [joint, independent])
    with pytest.raises(ConfigError, match="differently from a: has_unanswerable"):
        check_members(["a", "b"], [spec("squad"), spec("squad", has_unanswerable=True)])


def test_the_greedy_choice_adds_the_run_that_raises_the_score_most():
    # The first of two best runs, then the run that raises it most; no third raises it.
    greedy = ((0, 1), 0.85, 4 + 3 + 2, [(1, 0.80), (0, 0.85)])
    assert choose(4, lambda runs: SCORES[tuple(runs)]) == greedy


def test_rows_that_are_scored_do_not_choose():
    def sure(label):
        return Prediction(label=label, probabilities=(0.8, 0.2) if label == 0 else (0.2, 0.8))

    examples = draw_examples("rte", 8)
    given = ({"rte": examples}, {"rte": examples[:6]})
    parts, scored = (split_of(each, "pair", trains=False).parts for each in given)
    right, wrong = ([sure(abs(flip - each.label)) for each in examples] for flip in (0, 1))
    unseen = UnseenRows(parts, scored, "run")
    assert (unseen.n_rows, [*map(list, unseen.places)]) == (2, [[6, 7]])
    assert unseen.score([MemberAnswers([*right[:6], *wrong[6:]])])[0] == 0.0
    assert unseen.score([MemberAnswers([*wrong[:6], *right[6:]])])[0] == 1.0
    with pytest.raises(DataError, match=r"run has no held-out row of RTE"):
        UnseenRows(parts, parts, "run")


def test_the_threshold_of_no_answer_is_the_best_for_the_chosen():
    examples, listed = questions(9, seed=2, has_unanswerable=True), []
    for each in examples:
        [answer] = each.answers or [None]
        text, start = (answer.text, answer.start) if answer else (each.fields["context"][:2], 0)
        listed.append(Listed([Span(text, start, 0.0, 1.0)], 2.0 if answer else 5.0))
    member = MemberAnswers(listed=listed, is_joint=True, threshold=0.0)
    parts = question_split("squad2", examples).parts
    assert UnseenRows(parts, [], "run").score([member, member]) == (1.0, 2.0)
