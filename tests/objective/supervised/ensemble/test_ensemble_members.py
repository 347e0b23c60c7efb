"""Members answer the same, by heads whose scores are on one scale."""

from dataclasses import replace

import pytest

from sublayer.errors import ConfigError
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.ensemble.evaluation import evaluate_ensemble
from sublayer.objective.supervised.ensemble.heads import check_heads
from sublayer.objective.supervised.ensemble.members import check_members
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec
from tests.encoders import encoder_of
from tests.objective.supervised.span_models import CONTEXT, TOKENIZER, span_model


def spec(name: str, format_="pair", answer="greedy", **changed) -> TaskSpec:
    return TaskSpec((replace(TASKS[name], **changed),), format_, 32, answer=answer)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (spec("cola"), "b answers CoLA, and a STS-B: an ensemble is of models of the same tasks"),
        (
            spec("stsb", numbers=(1.0, 5.0)),
            "b has numbers of another range in STS-B than a: 1, 5, not 0, 5; an ensemble is of",
        ),
        (spec("stsb", fields=("one", "two")), "b reads other texts in STS-B than a: one, two, not"),
        (spec("stsb", is_bounded=False), "b has numbers of another range in STS-B than a: no, not"),
        (
            spec("stsb", kind="choice"),
            "b asks for another kind of answer in STS-B than a: choice, not number",
        ),
        (spec("stsb", "text", "rank"), "b writes its answers to STS-B as text, which cannot be"),
    ],
)
def test_what_differs_is_said(other, message):
    check_members(["a", "b"], [spec("stsb"), spec("stsb", "traversal")])
    with pytest.raises(ConfigError, match=message):
        check_members(["a", "b"], [spec("stsb"), other])


def test_whether_questions_may_have_no_answer_is_the_same_of_all():
    others = spec("squad"), spec("squad", has_unanswerable=True)
    with pytest.raises(ConfigError, match="b says otherwise whether questions may have no answer"):
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


def test_more_runs_than_all_ensembles_are_tried_of_are_refused(tmp_path):
    asked = Evaluation(
        run=tmp_path,
        model=span_model("squad"),
        recipe=None,
        split="test",
        options={},
        batch=None,
        average=None,
        read_text=lambda rule: None,
        own_text=lambda: None,
        progress=lambda done, unit: lambda n_done, n_all: None,
    )
    with pytest.raises(ConfigError, match="every ensemble of 12 runs at most, and these are 13"):
        evaluate_ensemble([asked] * 13, "all")
