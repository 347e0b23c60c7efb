"""Spans of several models against a slow average of them, and against each model alone."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.data.tasks.prepare import task_split
from sublayer.data.tasks.spans import Span
from sublayer.data.tasks.task_split import TaskPart
from sublayer.evaluation.split_work import ALONE
from sublayer.objective.supervised.ensemble.answers import answers_of, combine, mean_threshold
from sublayer.objective.supervised.ensemble.spans import Listed, average_spans, decode
from sublayer.objective.supervised.scores import answer_split
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from tests.objective.supervised.span_models import (
    CONTEXT,
    RULE,
    TOKENIZER,
    encoded_questions,
    questions,
    span_model,
)

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


def test_a_constant_added_to_the_scores_of_a_member_changes_no_order():
    first, second = spans(ab=-1.0, cd=-2.0), spans(cd=-1.4, ef=-5.0, ab=-3.0)
    moved = [Span(span.text, span.start, span.score + 40, 0.0) for span in second]
    plain, shifted = average_spans([first, second]), average_spans([first, moved])
    assert [span.text for span in plain] == [span.text for span in shifted]
    assert [span.probability for span in plain] == pytest.approx(
        [span.probability for span in shifted]
    )


def test_scores_of_no_answer_are_averaged():
    first, second = Listed(spans(ab=1.0), 3.0), Listed(spans(ab=3.0), -2.0)
    joint = decode([first, second], is_joint=True, has_unanswerable=True)
    assert joint.no_answer == 0.5
    # Of independent ends: the average of [CLS], 0.5, against that of the best span, 2.
    independent = decode([first, second], is_joint=False, has_unanswerable=True)
    assert (independent.text, independent.no_answer) == ("ab", -1.5)


def test_what_lists_nothing_is_left_out():
    nothing = Listed((), 0.0)
    found = decode([Listed(spans(ab=1.0), 0.0), nothing], is_joint=False, has_unanswerable=False)
    assert found.text == "ab"
    none = decode([nothing, nothing], is_joint=False, has_unanswerable=False)
    assert (none.text, none.start) == ("", None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 3])
def test_one_model_and_its_copies_answer_as_it_does_alone(name, n):
    split, spec = split_and_spec(name)
    [model] = models_of(name, 1)
    if name == "squad2":
        given, _ = answer_split(model, split, RULE, spec, ALONE)
        spec = spec.with_threshold(sorted(each.no_answer for each in given)[5])
    expected, _ = answer_split(model, split, RULE, spec, ALONE)
    members = [answers_of(model, split, RULE, spec)] * n
    assert combine(split.parts, members, mean_threshold(members)) == expected
    assert sum(bool(each.text) for each in expected) == (12 if name == "squad" else 6)


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_those_of_a_slow_average(name):
    split, spec = split_and_spec(name)
    members = [answers_of(model, split, RULE, spec) for model in models_of(name, 3)]
    found = combine(split.parts, members, None)
    alone = [combine(split.parts, [member], None) for member in members]
    for number, prediction in enumerate(found):
        listed = [member.listed[number] for member in members]
        scores = {}
        for place in {(span.start, span.text) for each in listed for span in each.spans}:
            own = []
            for each in listed:
                by_place = {(span.start, span.text): span.score for span in reversed(each.spans)}
                own.append(by_place.get(place, min(by_place.values())))
            scores[place] = sum(own) / 3
        start, text = max(scores, key=lambda place: scores[place])
        assert (prediction.start, prediction.text) == (start, text)
        null = sum(each.no_answer for each in listed) / 3
        if name == "squad2":
            assert prediction.no_answer == pytest.approx(null, abs=1e-12)
        best, *others = sorted(scores.values(), reverse=True)
        shares = np.exp(np.array([best, *others][:20]) - best)
        assert prediction.probabilities == pytest.approx((1 / shares.sum(),), abs=1e-9)
    answers = [[each.text for each in own] for own in (found, *alone)]
    assert all(first != second for first, second in pairwise(answers))


def test_the_threshold_is_the_mean_of_the_members_and_none_where_one_has_none():
    split, _ = split_and_spec("squad2")
    [model] = models_of("squad2", 1)
    found = []
    for threshold in (1.0, 4.0, None):
        _, spec = split_and_spec("squad2", threshold=threshold)
        found.append(answers_of(model, split, RULE, spec))
    assert mean_threshold(found[:2]) == 2.5
    assert mean_threshold(found) is None
