"""Answers to rows of users, and of ensembles: averaged, their members checked and chosen."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.data.tasks.prepare import task_split
from sublayer.data.tasks.spans import Span
from sublayer.data.tasks.task_split import TaskPart
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.evaluation.split_work import ALONE
from sublayer.objective.supervised.answering import Answerer
from sublayer.objective.supervised.ensemble.answers import (
    MemberAnswers,
    answers_of,
    combine,
    mean_threshold,
)
from sublayer.objective.supervised.ensemble.averages import average_predictions, mean
from sublayer.objective.supervised.ensemble.choosing import Choice, Step, choose
from sublayer.objective.supervised.ensemble.heads import check_heads
from sublayer.objective.supervised.ensemble.members import check_members
from sublayer.objective.supervised.ensemble.spans import Listed, average_spans, decode
from sublayer.objective.supervised.ensemble.together import TogetherAnswerer, answer_together
from sublayer.objective.supervised.ensemble.unseen import unseen_rows
from sublayer.objective.supervised.predicting import predict_rows, predict_rows_by
from sublayer.objective.supervised.scores import answer_split
from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from tests.answerers import draw_examples, model_of, rule_of, split_of, tokenizer_of
from tests.objective.supervised.test_spans import (
    CONTEXT,
    RULE,
    TOKENIZER,
    encoded_questions,
    questions,
    span_model,
)

CLOSE = {"abs": 1e-12}

SCORES = {
    (0,): 0.70, (1,): 0.80, (2,): 0.75, (3,): 0.80,
    (0, 1): 0.85, (1, 2): 0.82, (1, 3): 0.81, (0, 2): 0.95, (0, 3): 0.7, (2, 3): 0.7,
    (0, 1, 2): 0.85, (0, 1, 3): 0.84, (0, 2, 3): 0.95, (1, 2, 3): 0.8,
    (0, 1, 2, 3): 0.85,
}  # fmt: skip


def split_for(task, format_, n=9):
    return split_of({task: draw_examples(task, n)}, format_, trains=False)


def drawn(split, seed, **settings):
    """Build a model whose weights are those of a seed; text is ranked."""
    model = model_of(split, **{"answer": "rank", **settings})
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3, generator)
    return model


def answers_alone(model, split, **rule):
    return answer_split(model, split, rule_of(split, **rule), model.task, ALONE)[0]


def values(predictions):
    """Return what is averaged of predictions."""
    return [each.probabilities or (each.label,) for each in predictions]


@pytest.mark.parametrize("task, format_", [
    ("rte", "pair"), ("stsb", "pair"), ("copa", "pair"), ("rte", "traversal"), ("rte", "text"),
])  # fmt: skip
def test_answers_to_rows_and_of_copies_are_those_to_a_split(task, format_):
    split = split_for(task, format_)
    model = drawn(split, 3)
    expected = answers_alone(model, split)
    examples = split.parts[0].examples
    bare = [replace(each, label=None, is_labelled=False) for each in examples]
    # Numbers to the rounding of float64: a product of another number of rows may round otherwise.
    for found in (Answerer(model, batch=2).answer(bare), answer_together([model] * 3, split.parts)):
        labels = [[each.label for each in given] for given in (found, expected)]
        assert labels[0] == pytest.approx(labels[1], **CLOSE)
        for ours, theirs in zip(values(found), values(expected), strict=True):
            assert [p for p in ours if p] == pytest.approx([p for p in theirs if p], **CLOSE)


@pytest.mark.parametrize("task", ["sst2", "copa"])
def test_texts_tuples_and_mappings_are_the_same_rows(task):
    split = split_for(task, "pair")
    model, examples = model_of(split), split.parts[0].examples
    more = [{"choices": list(each.choices)} if each.choices else {} for each in examples]
    mappings = [{**each.fields, **own} for each, own in zip(examples, more, strict=True)]
    tuples = [(*each.fields.values(), *each.choices) for each in examples]
    lists = [[*row.values()] for row in mappings]
    found = predict_rows(model, mappings)
    assert len(found) == len(examples)
    for rows in (tuples, lists, [text for (text,) in tuples] if task == "sst2" else tuples):
        assert predict_rows(model, rows) == found


def test_ranked_answers_have_probabilities_written_ones_their_text_and_empty_rows_nothing():
    model = model_of(split_for("rte", "text"))
    rows = [{"sentence1": "w1 w2", "sentence2": "w3"}, ("w1", " "), ("w3", "w4")]
    written = predict_rows(model, rows)
    assert written[0].written is not None and written[0].probabilities == {}
    model.task = replace(model.task, answer="rank")
    ranked, empty, last = predict_rows(model, rows)
    assert ranked.written is None and sum(ranked.probabilities.values()) == pytest.approx(1)
    assert ranked.label in ("entailment", "not_entailment")
    assert (empty.is_answered, empty.label, empty.probabilities) == (False, None, {})
    assert [ranked, last] == predict_rows(model, [rows[0], rows[2]])


@pytest.mark.parametrize("task, rows, message", [
    ("rte", ["w1"], "row 0 has 1 of"), ("rte", [("w1", "w2", "w3")], "row 0 has 3 of"),
    ("rte", [{"sentence1": "w1"}], "row 0 has no column 'sentence2'"),
    ("copa", [("w1", "w2", "w3")], "two choices or more"),
    ("rte", [("w1", 5)], "row 0: sentence2 is int, not a text"),
    ("rte", "w1 w2", "rows is one text"),
])  # fmt: skip
def test_rows_that_lack_fields_are_refused(task, rows, message):
    with pytest.raises(DataError, match=message):
        predict_rows(model_of(split_for(task, "pair")), rows)


def test_a_model_without_the_task_or_a_tokenizer_is_refused():
    examples = {name: draw_examples(name, 3) for name in ("sst2", "rte")}
    model = model_of(split_of(examples, "text", trains=False))
    with pytest.raises(ConfigError, match="several tasks, sst2, rte"):
        predict_rows(model, ["w1"])
    assert len(predict_rows(model, ["w1"], task="sst2")) == 1
    with pytest.raises(ConfigError, match="does not answer cola, but sst2, rte"):
        predict_rows(model, ["w1"], task="cola")
    model = model_of(split_for("mnli", "pair"))
    assert Answerer(model, "ax").task.name == "ax"  # a diagnostic set of its task
    with pytest.raises(ConfigError, match="does not answer axb"):
        Answerer(model, "axb")
    with pytest.raises(ConfigError, match=r"not loaded by sublayer\.load"):
        model.predict([("w1", "w2")])
    tokenizer, model.tokenizer = model.tokenizer, None
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        Answerer(model)
    model.tokenizer, model.task = tokenizer, None
    with pytest.raises(ConfigError, match="answers no task: fine-tune it first"):
        Answerer(model)


def averaged(task, *members, **fields):
    example = Example("0", {"sentence": "w1"}, **fields)
    [found] = average_predictions(TASKS[task], [example], [[each] for each in members])
    return found


def test_probabilities_and_numbers_are_averaged_by_hand():
    given = [(0.9, 0.1), (0.3, 0.7), (0.35, 0.65)]
    found = averaged("sst2", *(Prediction(label=int(p[1] > p[0]), probabilities=p) for p in given))
    # Two of three would say 1: (0.9 + 0.3 + 0.35) / 3 says 0.
    assert found.label == 0
    assert found.probabilities == pytest.approx((1.55 / 3, 1.45 / 3), abs=1e-15)
    # Choices that the example does not have are no part of the average.
    first = Prediction(label=0, probabilities=(0.6, 0.4, 0.0, 0.0))
    second = Prediction(label=1, probabilities=(0.1, 0.9))
    found = averaged("copa", first, second, choices=("w3", "w4"))
    assert found.probabilities == pytest.approx((0.35, 0.65), abs=1e-15) and found.label == 1
    numbers = (Prediction(label=value) for value in (1.0, 4.5, 2.0))
    assert averaged("stsb", *numbers) == Prediction(label=2.5)
    # The text is that of a member that gives the answer.
    no = Prediction(label=1, probabilities=(0.4, 0.6), text="not_entailment")
    yes = Prediction(label=0, probabilities=(0.9, 0.1), text="entailment")
    assert averaged("rte", no, yes).text == "entailment"
    assert averaged("rte", no, replace(yes, text="")).text == ""
    # The average of equal numbers is that number to the bit.
    assert (mean([0.1] * 3), mean([1 / 3] * 49)) == (0.1, 1 / 3)


def test_members_of_other_formats_tokenizers_and_contexts_read_the_same_examples():
    examples, words = {"rte": draw_examples("rte", 9)}, tokenizer_of(["rte", "sst2"])
    members = (("pair", None, 48), ("traversal", words, 40), ("text", None, 44))
    splits, models, alone = [], [], []
    for format_, tokenizer, context in members:
        splits.append(split_of(examples, format_, tokenizer, trains=False))
        models.append(drawn(splits[-1], 5, context=context))
        alone.append(values(answers_alone(models[-1], splits[-1], context=context)))
    for split in splits:
        found = np.array(values(answer_together(models, split.parts)))
        assert found == pytest.approx(np.mean(alone, axis=0), **CLOSE)
    rows = [("w1", "w2"), ("w3", " "), ("w4 w5", "w6")]
    first, empty, _ = predict_rows_by(TogetherAnswerer(models, ["a", "b", "c"]), rows)
    own = [predict_rows(model, rows)[0].probabilities["entailment"] for model in models]
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
        ([drawn(rte, 0)], cola, "model 1 does not answer cola, but"),
        ([drawn(rte, 0), renamed], rte, "2 has other"),
        ([drawn(text, 0, answer="greedy")], text, "as text"),
        ([drawn(numbers, 0)], numbers, "cannot be averaged"),
        ([drawn(rte, 0), renamed], None, "b has other labels in RTE"),
        ([drawn(rte, 0), bare], None, r"b has no tokenizer\.json"),
    ]
    for models, split, message in refused:
        with pytest.raises((ConfigError, CheckpointError), match=message):
            answer_together(models, split.parts) if split else TogetherAnswerer(models, ("a", "b"))


def spans(**scores):
    """Return spans of a passage by their texts, best first."""
    found = [Span(text, "abcdefghij".index(text), score, 0.0) for text, score in scores.items()]
    return sorted(found, key=lambda span: -span.score)


def test_spans_are_averaged_and_a_missing_one_has_the_lowest_score_of_its_member():
    found = average_spans([spans(ab=-1.0, cd=-2.0), spans(cd=-1.0, ef=-5.0)])
    # ab: (-1 - 5) / 2; cd: (-2 - 1) / 2; ef: (-2 - 5) / 2.
    assert [(span.text, span.score) for span in found] == [("cd", -1.5), ("ab", -3.0), ("ef", -3.5)]
    shares = np.exp([-1.5, -3.0, -3.5])
    assert [span.probability for span in found] == pytest.approx(shares / shares.sum(), **CLOSE)
    # One sure member does not outweigh all others.
    alone, others = spans(ab=-0.1, cd=-9.0), spans(ef=-0.4, cd=-9.0)
    assert average_spans([alone, others, others])[0].text == "ef"


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
        given, _ = answer_split(model, split, RULE, spec, ALONE)
        spec = spec.with_threshold(sorted(each.no_answer for each in given)[5])
    expected, _ = answer_split(model, split, RULE, spec, ALONE)
    members = [answers_of(model, split, RULE, spec)] * 3
    assert combine(split.parts, members, mean_threshold(members)) == expected
    assert sum(bool(each.text) for each in expected) == (12 if name == "squad" else 6)
    if name == "squad2":
        thresholds = (spec.with_threshold(each) for each in (1.0, 4.0, None))
        found = [answers_of(model, split, RULE, each) for each in thresholds]
        assert (mean_threshold(found[:2]), mean_threshold(found)) == (2.5, None)


def spec(name, format_="pair", answer="greedy", **changed):
    return TaskSpec((replace(TASKS[name], **changed),), format_, 32, answer=answer)


@pytest.mark.parametrize("other, message", [
    (spec("cola"), "b answers CoLA, and a STS-B"),
    (spec("stsb", numbers=(1.0, 5.0)), "b has numbers of another range"),
    (spec("stsb", fields=("one", "two")), "b reads other texts"),
    (spec("stsb", is_bounded=False), "b has numbers of another range"),
    (spec("stsb", kind="choice"), "b asks for another kind of answer"),
    (spec("stsb", "text", "rank"), "b writes its answers to STS-B as text"),
])  # fmt: skip
def test_members_of_other_tasks_are_refused(other, message):
    check_members(["a", "b"], [spec("stsb"), spec("stsb", "traversal")])
    with pytest.raises(ConfigError, match=message):
        check_members(["a", "b"], [spec("stsb"), other])


def test_scores_of_no_answer_on_different_scales_are_not_averaged():
    joint, independent = (span_model("squad2", span_head=h) for h in ("joint", "independent"))
    joint.task = independent.task = spec("squad2")
    check_heads(["a", "b"], [joint, joint])
    with pytest.raises(ConfigError, match="b has a head of independent spans and a one of joint"):
        check_heads(["a", "b"], [joint, independent])
    joint.task = independent.task = spec("squad")
    check_heads(["a", "b"], [joint, independent])
    with pytest.raises(ConfigError, match="whether questions may have no answer"):
        check_members(["a", "b"], [spec("squad"), spec("squad", has_unanswerable=True)])


def test_the_greedy_choice_adds_the_best_run_and_the_whole_one_prefers_fewer():
    # The first of two best runs, then the run that raises it most; no third raises it.
    greedy = Choice((0, 1), 0.85, 4 + 3 + 2, (Step(1, 0.80), Step(0, 0.85)))
    assert choose(4, lambda runs: SCORES[tuple(runs)], "greedy") == greedy
    assert choose(4, lambda runs: SCORES[tuple(runs)], "all") == Choice((0, 2), 0.95, 15)


def test_rows_that_are_scored_do_not_choose():
    def sure(label):
        return Prediction(label=label, probabilities=(0.8, 0.2) if label == 0 else (0.2, 0.8))

    examples = draw_examples("rte", 8)
    given = ({"rte": examples}, {"rte": examples[:6]})
    parts, scored = (split_of(each, "pair", trains=False).parts for each in given)
    right, wrong = ([sure(abs(flip - each.label)) for each in examples] for flip in (0, 1))
    unseen = unseen_rows(parts, scored, "run")
    assert (unseen.n_rows, unseen.n_left_out) == (2, 6)
    # One that is right where it is scored, and wrong elsewhere, is no good.
    assert unseen.score([MemberAnswers([*right[:6], *wrong[6:]])]).score == 0.0
    assert unseen.score([MemberAnswers([*wrong[:6], *right[6:]])]).score == 1.0
    with pytest.raises(DataError, match=r"run held nothing of RTE out"):
        unseen_rows(parts, parts, "run")


def test_the_threshold_of_no_answer_is_the_best_for_the_chosen():
    examples, listed = questions(9, seed=2, has_unanswerable=True), []
    for each in examples:
        [answer] = each.answers or [None]
        text, start = (answer.text, answer.start) if answer else (each.fields["context"][:2], 0)
        listed.append(Listed([Span(text, start, 0.0, 1.0)], 2.0 if answer else 5.0))
    member = MemberAnswers(listed=listed, is_joint=True, threshold=0.0)
    parts = question_split("squad2", examples).parts
    assert unseen_rows(parts, [], "run").score([member, member]) == (1.0, 2.0)
