"""Members chosen by a score: one by one, or the best of all ensembles."""

import pytest

from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.data.tasks.prepare import task_split
from sublayer.data.tasks.spans import Span
from sublayer.data.tasks.task_split import TaskPart
from sublayer.errors import DataError
from sublayer.objective.supervised.ensemble.answers import MemberAnswers
from sublayer.objective.supervised.ensemble.choosing import Choice, Step, choose
from sublayer.objective.supervised.ensemble.spans import Listed
from sublayer.objective.supervised.ensemble.unseen import unseen_rows
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS
from tests.answerers import draw_examples, split_of
from tests.objective.supervised.span_models import TOKENIZER, encoded_questions, questions

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


@pytest.mark.parametrize("how", ["greedy", "all"])
def test_copies_of_a_run_are_not_added(how):
    assert choose(3, lambda members: 0.5, how).members == (0,)


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


def test_where_all_that_was_held_out_is_scored_nothing_chooses():
    _, parts, _, _ = members_and_parts()
    with pytest.raises(DataError, match=r"run held nothing of RTE out that is not scored, too"):
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
