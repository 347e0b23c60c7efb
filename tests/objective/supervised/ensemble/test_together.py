"""Loaded models that answer a split together, each in its own format and by its own tokenizer."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sublayer.errors import CheckpointError, ConfigError
from sublayer.evaluation.split_work import ALONE
from sublayer.objective.supervised.ensemble.together import TogetherAnswerer, answer_together
from sublayer.objective.supervised.predicting import predict_rows, predict_rows_by
from sublayer.objective.supervised.scores import answer_split
from tests.answerers import draw_examples, model_of, rule_of, split_of, tokenizer_of

CASES = [
    ("sst2", "pair"),
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
@pytest.mark.parametrize("n", [1, 3])
def test_one_model_and_its_copies_answer_as_it_does_alone(task, format_, n):
    split = split_of({task: draw_examples(task, 9)}, format_, trains=False)
    model = drawn(split, 3)
    expected, _ = answer_split(model, split, rule_of(split), model.task, ALONE)
    found = answer_together([model] * n, split.parts)
    assert [each.label for each in found] == pytest.approx(
        [each.label for each in expected], abs=1e-12
    )
    for ours, theirs in zip(values(found), values(expected), strict=True):
        assert ours == pytest.approx(theirs[: len(ours)], abs=1e-12)


@pytest.mark.parametrize(("task", "format_"), CASES)
def test_what_models_answer_alone_is_averaged(task, format_):
    split = split_of({task: draw_examples(task, 9)}, format_, trains=False)
    models = [drawn(split, seed) for seed in range(3)]
    alone = [answer_together([model], split.parts) for model in models]
    found = answer_together(models, split.parts)
    for together, *own in zip(values(found), *map(values, alone), strict=True):
        assert together == pytest.approx(np.mean(own, axis=0), abs=1e-12)
    assert values(found) != values(alone[0])


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
        with pytest.raises(ConfigError, match=r"b has other labels in RTE than a: no, yes, not e"):
            refuse()


def test_what_is_written_is_not_averaged():
    split = split_of({"rte": draw_examples("rte", 3)}, "text", trains=False)
    with pytest.raises(ConfigError, match=r"a writes its answers to RTE as text, .* --answer rank"):
        answer_together([drawn(split, 0, answer="greedy")], split.parts, names=("a",))
    numbers = split_of({"stsb": draw_examples("stsb", 3)}, "text", trains=False)
    with pytest.raises(ConfigError, match="cannot be averaged: name models that read it as pairs"):
        answer_together([drawn(numbers, 0)], numbers.parts)


def test_a_member_without_a_tokenizer_is_refused():
    split = split_of({"rte": draw_examples("rte", 3)}, "pair", trains=False)
    first, second = drawn(split, 0), drawn(split, 1)
    second.tokenizer = None
    with pytest.raises(CheckpointError, match=r"b has no tokenizer\.json"):
        TogetherAnswerer([first, second], ("a", "b"))
