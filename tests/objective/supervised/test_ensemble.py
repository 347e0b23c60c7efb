"""Ensembles: answers averaged, spans averaged, members checked and chosen."""

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
from tests.encoders import encoder_of
from tests.objective.supervised.span_models import (
    CONTEXT,
    RULE,
    TOKENIZER,
    encoded_questions,
    questions,
    span_model,
)

ROW = Example("0", {"sentence": "w1"})


def test_probabilities_of_labels_are_averaged_and_the_highest_is_the_answer():
    given = [(0.9, 0.1), (0.3, 0.7), (0.35, 0.65)]
    members = [[Prediction(label=int(p[1] > p[0]), probabilities=p)] for p in given]
    [found] = average_predictions(TASKS["sst2"], [ROW], members)
    # Two of three would say 1: (0.9 + 0.3 + 0.35) / 3 says 0.
    assert found.label == 0
    assert found.probabilities == pytest.approx((1.55 / 3, 1.45 / 3), abs=1e-15)


def test_choices_that_an_example_does_not_have_are_no_part_of_the_average():
    example = Example("0", {"premise": "w1", "question": "w2"}, choices=("w3", "w4"))
    first = Prediction(label=0, probabilities=(0.6, 0.4, 0.0, 0.0))
    second = Prediction(label=1, probabilities=(0.1, 0.9))
    [found] = average_predictions(TASKS["copa"], [example], [[first], [second]])
    assert found.probabilities == pytest.approx((0.35, 0.65), abs=1e-15)
    assert found.label == 1


def test_numbers_are_averaged():
    members = [[Prediction(label=value)] for value in (1.0, 4.5, 2.0)]
    [found] = average_predictions(TASKS["stsb"], [ROW], members)
    assert found == Prediction(label=2.5)


def test_the_text_is_that_of_a_member_that_gives_the_answer():
    first = Prediction(label=1, probabilities=(0.4, 0.6), text="not_entailment")
    second = Prediction(label=0, probabilities=(0.9, 0.1), text="entailment")
    [found] = average_predictions(TASKS["rte"], [ROW], [[first], [second]])
    assert (found.label, found.text) == (0, "entailment")
    bare = Prediction(label=0, probabilities=(0.9, 0.1))
    [found] = average_predictions(TASKS["rte"], [ROW], [[first], [bare]])
    assert (found.label, found.text) == (0, "")


@pytest.mark.parametrize("n", [3, 49])
def test_the_average_of_equal_numbers_is_that_number_to_the_bit(n):
    assert mean([0.1] * n) == 0.1
    assert mean([1 / 3] * n) == 1 / 3


CASES = [
    ("stsb", "pair"),
    ("copa", "pair"),
    ("rte", "traversal"),
    ("rte", "text"),
]


def drawn(split, seed, **settings):
    """Build a model whose weights are those of a seed; text is ranked."""
    model = model_of(split, **{"answer": "rank", **settings})
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    return model


def values(predictions):
    """Return what is averaged of predictions."""
    return [each.probabilities or (each.label,) for each in predictions]


@pytest.mark.parametrize(("task", "format_"), CASES)
def test_copies_of_one_model_answer_as_it_does_alone(task, format_):
    split = split_of({task: draw_examples(task, 9)}, format_, trains=False)
    model = drawn(split, 3)
    expected, _ = answer_split(model, split, rule_of(split), model.task, ALONE)
    found = answer_together([model] * 3, split.parts)
    assert [each.label for each in found] == pytest.approx(
        [each.label for each in expected], abs=1e-12
    )
    for ours, theirs in zip(values(found), values(expected), strict=True):
        assert ours == pytest.approx(theirs[: len(ours)], abs=1e-12)


def test_members_of_other_formats_tokenizers_and_contexts_read_the_same_examples():
    examples = draw_examples("rte", 9)
    splits = [
        split_of({"rte": examples}, "pair", trains=False),
        split_of({"rte": examples}, "traversal", tokenizer_of(["rte", "sst2"]), trains=False),
        split_of({"rte": examples}, "text", trains=False),
    ]
    models = [drawn(split, 5, context=c) for split, c in zip(splits, (48, 40, 44), strict=True)]
    alone = [
        answer_split(model, split, rule_of(split, c), model.task, ALONE)[0]
        for model, split, c in zip(models, splits, (48, 40, 44), strict=True)
    ]
    expected = np.mean([values(own) for own in alone], axis=0)
    for split in splits:
        assert np.array(values(answer_together(models, split.parts))) == pytest.approx(
            expected, abs=1e-12
        )


def test_rows_are_answered_by_the_average():
    split = split_of({"rte": draw_examples("rte", 3)}, "pair", trains=False)
    models = [drawn(split, seed) for seed in range(2)]
    rows = [("w1", "w2"), ("w3", " "), ("w4 w5", "w6")]
    alone = [predict_rows(model, rows) for model in models]
    found = predict_rows_by(TogetherAnswerer(models, ["a", "b"]), rows)
    assert not found[1].is_answered
    for place in (0, 2):
        for label, p in found[place].probabilities.items():
            own = [each[place].probabilities[label] for each in alone]
            assert p == pytest.approx(sum(own) / 2, abs=1e-12)
    assert predict_rows_by(TogetherAnswerer(models[:1], ["a"]), rows) == alone[0]


def test_models_that_do_not_answer_the_same_are_refused():
    rte, cola = (
        split_of({name: draw_examples(name, 3)}, "pair", trains=False) for name in ("rte", "cola")
    )
    with pytest.raises(ConfigError, match=r"model 2 does not answer rte, but cola"):
        answer_together([drawn(rte, 0), drawn(cola, 0)], rte.parts)
    with pytest.raises(ConfigError, match=r"model 1 does not answer cola, but rte"):
        answer_together([drawn(rte, 0)], cola.parts)
    first, second = drawn(rte, 0), drawn(rte, 0)
    task = replace(second.task.tasks[0], labels=("no", "yes"))
    second.task = replace(second.task, tasks=(task,))
    for refuse in (
        lambda: answer_together([first, second], rte.parts, names=("a", "b")),
        lambda: TogetherAnswerer([first, second], ("a", "b")),
    ):
        with pytest.raises(ConfigError, match="b has other labels in RTE than a"):
            refuse()


def test_written_answers_are_not_averaged():
    split = split_of({"rte": draw_examples("rte", 3)}, "text", trains=False)
    with pytest.raises(ConfigError, match="a writes its answers to RTE as text"):
        answer_together([drawn(split, 0, answer="greedy")], split.parts, names=("a",))
    numbers = split_of({"stsb": draw_examples("stsb", 3)}, "text", trains=False)
    with pytest.raises(ConfigError, match="cannot be averaged"):
        answer_together([drawn(numbers, 0)], numbers.parts)


def test_a_member_without_a_tokenizer_is_refused():
    split = split_of({"rte": draw_examples("rte", 3)}, "pair", trains=False)
    first, second = drawn(split, 0), drawn(split, 1)
    second.tokenizer = None
    with pytest.raises(CheckpointError, match=r"b has no tokenizer\.json"):
        TogetherAnswerer([first, second], ("a", "b"))


NAMES = ("squad", "squad2")
_PASSAGE = "abcdefghij"


def spans(**scores: float) -> list[Span]:
    """Return spans of a passage by their texts, best first."""
    found = [Span(text, _PASSAGE.index(text), score, 0.0) for text, score in scores.items()]
    return sorted(found, key=lambda span: -span.score)


def split_and_spec(name, seed=7, threshold=None):
    examples = questions(12, seed=seed, has_unanswerable=name == "squad2")
    part = TaskPart(
        TASKS[name], "dev", encoded_questions(examples, name, trains=False), lambda: examples
    )
    spec = TaskSpec((TASKS[name],), "pair", CONTEXT, max_answer=4, threshold=threshold)
    return task_split("test", [part], TOKENIZER, SupervisedObjective()), spec


def models_of(name, n):
    """Build models whose weights differ, in float64."""
    models = []
    for number in range(n):
        model = span_model(name)
        generator = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0.0, 0.4, generator=generator)
        models.append(model)
    return models


def test_equal_spans_are_averaged_and_what_a_member_does_not_list_has_its_lowest_score():
    found = average_spans([spans(ab=-1.0, cd=-2.0), spans(cd=-1.0, ef=-5.0)])
    # ab: (-1 - 5) / 2; cd: (-2 - 1) / 2; ef: (-2 - 5) / 2.
    assert [(span.text, span.score) for span in found] == [("cd", -1.5), ("ab", -3.0), ("ef", -3.5)]
    shares = np.exp([-1.5, -3.0, -3.5])
    assert [span.probability for span in found] == pytest.approx(shares / shares.sum(), abs=1e-12)


def test_one_sure_member_does_not_outweigh_all_others():
    alone, others = spans(ab=-0.1, cd=-9.0), spans(ef=-0.4, cd=-9.0)
    assert average_spans([alone, others, others])[0].text == "ef"


def test_scores_of_no_answer_are_averaged():
    first, second = Listed(spans(ab=1.0), 3.0), Listed(spans(ab=3.0), -2.0)
    joint = decode([first, second], is_joint=True, has_unanswerable=True)
    assert joint.no_answer == 0.5
    # Of independent ends: the average of [CLS], 0.5, against that of the best span, 2.
    independent = decode([first, second], is_joint=False, has_unanswerable=True)
    assert (independent.text, independent.no_answer) == ("ab", -1.5)


def test_a_member_without_spans_is_left_out():
    nothing = Listed((), 0.0)
    found = decode([Listed(spans(ab=1.0), 0.0), nothing], is_joint=False, has_unanswerable=False)
    assert found.text == "ab"
    none = decode([nothing, nothing], is_joint=False, has_unanswerable=False)
    assert (none.text, none.start) == ("", None)


@pytest.mark.parametrize("name", NAMES)
def test_copies_of_one_span_model_answer_as_it_does_alone(name):
    split, spec = split_and_spec(name)
    [model] = models_of(name, 1)
    if name == "squad2":
        given, _ = answer_split(model, split, RULE, spec, ALONE)
        spec = spec.with_threshold(sorted(each.no_answer for each in given)[5])
    expected, _ = answer_split(model, split, RULE, spec, ALONE)
    members = [answers_of(model, split, RULE, spec)] * 3
    assert combine(split.parts, members, mean_threshold(members)) == expected
    assert sum(bool(each.text) for each in expected) == (12 if name == "squad" else 6)


def test_the_threshold_is_the_mean_of_the_members_and_none_where_one_has_none():
    split, _ = split_and_spec("squad2")
    [model] = models_of("squad2", 1)
    found = []
    for threshold in (1.0, 4.0, None):
        _, spec = split_and_spec("squad2", threshold=threshold)
        found.append(answers_of(model, split, RULE, spec))
    assert mean_threshold(found[:2]) == 2.5
    assert mean_threshold(found) is None


def spec(name: str, format_="pair", answer="greedy", **changed) -> TaskSpec:
    return TaskSpec((replace(TASKS[name], **changed),), format_, 32, answer=answer)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (spec("cola"), "b answers CoLA, and a STS-B"),
        (spec("stsb", numbers=(1.0, 5.0)), "b has numbers of another range"),
        (spec("stsb", fields=("one", "two")), "b reads other texts"),
        (spec("stsb", is_bounded=False), "b has numbers of another range"),
        (spec("stsb", kind="choice"), "b asks for another kind of answer"),
        (spec("stsb", "text", "rank"), "b writes its answers to STS-B as text"),
    ],
)
def test_members_of_other_tasks_are_refused(other, message):
    check_members(["a", "b"], [spec("stsb"), spec("stsb", "traversal")])
    with pytest.raises(ConfigError, match=message):
        check_members(["a", "b"], [spec("stsb"), other])
    others = spec("squad"), spec("squad", has_unanswerable=True)
    with pytest.raises(ConfigError, match="whether questions may have no answer"):
        check_members(["a", "b"], others)


def test_scores_of_no_answer_on_different_scales_are_not_averaged():
    joint = span_model("squad2")
    heads = {"head": "none", "head_bias": False, "pooler": "none", "sentence_classes": 0}
    independent = encoder_of(TOKENIZER.vocab_size, CONTEXT, **heads, span_head="independent")
    joint.task = independent.task = spec("squad2")
    check_heads(["a", "b"], [joint, joint])
    with pytest.raises(ConfigError, match="b has a head of independent spans and a one of joint"):
        check_heads(["a", "b"], [joint, independent])
    joint.task = independent.task = spec("squad")
    check_heads(["a", "b"], [joint, independent])


SCORES = {
    (0,): 0.70, (1,): 0.80, (2,): 0.75, (3,): 0.80,
    (0, 1): 0.85, (1, 2): 0.82, (1, 3): 0.81, (0, 2): 0.95, (0, 3): 0.7, (2, 3): 0.7,
    (0, 1, 2): 0.85, (0, 1, 3): 0.84, (0, 2, 3): 0.95, (1, 2, 3): 0.8,
    (0, 1, 2, 3): 0.85,
}  # fmt: skip


def score(members) -> float:
    return SCORES[tuple(members)]


def test_the_greedy_choice_adds_the_best_run_while_the_score_rises():
    found = choose(4, score, "greedy")
    # The first of two best runs, then the run that raises it most; no third raises it.
    assert found == Choice((0, 1), 0.85, 4 + 3 + 2, (Step(1, 0.80), Step(0, 0.85)))


def test_of_all_ensembles_the_best_is_chosen_and_of_equals_that_of_fewer_runs():
    assert choose(4, score, "all") == Choice((0, 2), 0.95, 15)


def members_and_parts(n=8):
    examples = draw_examples("rte", n)
    split = split_of({"rte": examples}, "pair", trains=False)
    right = [Prediction(label=each.label, probabilities=_sure(each.label)) for each in examples]
    wrong = [Prediction(label=1 - p.label, probabilities=_sure(1 - p.label)) for p in right]
    return examples, split.parts, right, wrong


def _sure(label):
    return (0.8, 0.2) if label == 0 else (0.2, 0.8)


def test_rows_that_are_scored_do_not_choose():
    examples, parts, right, wrong = members_and_parts()
    scored = split_of({"rte": examples[:6]}, "pair", trains=False).parts
    unseen = unseen_rows(parts, scored, "run")
    assert (unseen.n_rows, unseen.n_left_out) == (2, 6)
    # One that is right where it is scored, and wrong elsewhere, is no good.
    member = MemberAnswers([*right[:6], *wrong[6:]])
    assert unseen.score([member]).score == 0.0
    assert unseen.score([MemberAnswers([*wrong[:6], *right[6:]])]).score == 1.0
    with pytest.raises(DataError, match=r"run held nothing of RTE out"):
        unseen_rows(parts, parts, "run")


def test_the_threshold_of_no_answer_is_the_best_for_the_chosen():
    examples = questions(9, seed=2, has_unanswerable=True)
    encoded = encoded_questions(examples, "squad2", trains=False)
    part = TaskPart(TASKS["squad2"], "dev", encoded, lambda: examples)
    split = task_split("valid", [part], TOKENIZER, SupervisedObjective())
    listed = []
    for each in examples:
        text, start = (
            (each.answers[0].text, each.answers[0].start)
            if each.answers
            else (each.fields["context"][:2], 0)
        )
        listed.append(Listed([Span(text, start, 0.0, 1.0)], 2.0 if each.answers else 5.0))
    member = MemberAnswers(listed=listed, is_joint=True, threshold=0.0)
    found = unseen_rows(split.parts, [], "run").score([member, member])
    assert found == (1.0, 2.0)
