"""Contradictions of model, objective and text by field, and lengths of spans."""

import math

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.noise import spans_of
from sublayer.config.objectives.span import SpanObjective
from sublayer.errors import ConfigError
from tests.breadth import rows

TASK = {"objective.kind": "supervised", "data.tasks": "sst2", "data.path": "glue"}
TEXT = {**TASK, "objective.format": "text"}
TRAVERSAL = {**TASK, "objective.format": "traversal"}
WEIGHTS = {"sst2": 1.0, "cola": 2.0}
NO_HEAD = {"objective.language_weight": 0.5, "model.head": "none", "model.label_outputs": 2}
PARTS = {"train.batch_tokens": 4096, "data.batch_parts": 2}


@pytest.mark.parametrize(
    ("name", "settings", "fields"),
    [
        ("bert-base", TEXT, ["objective.format = text", "model.kind"]),
        ("gpt", {**TRAVERSAL, **NO_HEAD}, ["model.head = none", "objective.language_weight"]),
        ("gpt", TASK, ["objective.format = pair", "model.kind"]),
        ("t5-mini", TRAVERSAL, ["objective.format = traversal", "model.kind"]),
        ("bert-base", {**TASK, "data.tasks": ["sst2", "cola"]}, ["data.tasks = sst2, cola"]),
        ("t5-mini", {**TEXT, "data.size_limit": 9}, ["data.size_limit = 9", "data.tasks = sst2"]),
        ("t5-mini", {**TEXT, "data.tasks": WEIGHTS, "data.size_limit": 9}, ["data.size_limit = 9"]),
        ("bert-base", {"objective.kind": "supervised", "data.path": "glue"}, ["needs data.tasks"]),
        ("bert-base", {**TASK, "data.context": 4}, ["data.context = 4", "give 5"]),
        ("gpt", {**TEXT, "data.context": 64}, ["objective.target_length = 64", "data.context"]),
        ("bert-base", {**TASK, "train.compile": True}, ["train.compile = true"]),
        ("gpt", {**TRAVERSAL, "data.tasks": "squad"}, ["data.tasks = squad", "objective.format"]),
        ("macaron-bert-base-released", {"train.tokens": 1e9}, ["objective.pairs", "train.tokens"]),
        (
            "macaron-bert-base-released",
            {"data.corpus": {"wikipedia": 3, "bookcorpus": 1}},
            ["train.batch_tokens", "objective.pairs = sentences"],
        ),
        ("bert-base", PARTS, ["data.batch_parts = 2 has no effect"]),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_contradiction_is_refused_by_the_fields_that_make_it(name, settings, fields):
    with pytest.raises(ConfigError) as caught:
        load_recipe(name, settings)
    assert all(field in str(caught.value) for field in fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"data.context": 5},
        {"model.sentence_classes": 1},
        {"data.tokenizer": "moses-bpe"},
        {"objective.p_mask": 0.9},
        {"objective.sentence": "none", "model.sentence_classes": 0, "model.pooler": "none"},
        {"objective.single_sentence": "negative"},
        {"objective.pairs": "sentences", "objective.sentence": "nsp"},
    ],
    ids=str,
)
def test_consistent_settings_load(settings):
    load_recipe("albert-small", settings)


CONTEXTS = (512, 256, 128, 64, 32)
RELEASED = {
    (0.15, 3): [(568, 114), (284, 58), (141, 29), (70, 14), (34, 8)],
    (0.15, 2): [(552, 126), (276, 62), (138, 32), (68, 16), (34, 8)],
    (0.15, 5): [(581, 105), (290, 54), (145, 27), (72, 14), (35, 7)],
    (0.15, 10): [(591, 99), (295, 49), (147, 25), (73, 13)],
    (0.10, 3): [(548, 74), (273, 37), (136, 20), (68, 10), (33, 5)],
    (0.25, 3): [(614, 206), (306, 102), (152, 52), (76, 26), (38, 14)],
    (0.30, 3): [(639, 257), (319, 129), (159, 65), (79, 33), (39, 17)],
    (0.50, 3): [(766, 512), (382, 256), (190, 128), (94, 64), (46, 32)],
}
"""Raw and target length by density and mean span, for each context."""


def lengths(objective: SpanObjective, context: int) -> tuple[int | None, int | None]:
    resolved = objective.resolve(context)
    return resolved.raw_length, resolved.target_length


@pytest.mark.parametrize(("density", "mean_span"), rows(RELEASED, 4))
def test_lengths_are_those_of_the_released_code(density: float, mean_span: int) -> None:
    objective = SpanObjective(noise_density=density, mean_span=float(mean_span))
    for context, expected in zip(CONTEXTS, RELEASED[density, mean_span], strict=False):
        assert lengths(objective, context) == expected


@pytest.mark.parametrize(("mean_span", "expected"), [(2.0, (70, 22)), (1.0, (63, 27))])
def test_lengths_are_those_of_the_released_test(
    mean_span: float, expected: tuple[int, int]
) -> None:
    assert lengths(SpanObjective(noise_density=0.2, mean_span=mean_span), 64) == expected


def test_a_piece_is_the_longest_whose_input_fits() -> None:
    for context in range(8, 200):
        objective = SpanObjective(noise_density=0.3, mean_span=2.0)
        raw = objective.resolve(context).raw_length
        assert raw is not None
        fits = []
        for length in (raw, raw + 1):
            n_noise = round(0.3 * length)
            n_spans = round(n_noise / 2)
            fits.append(length - n_noise + n_spans + 1 <= context)
        assert fits == [True, False]


def test_spans_and_noise_are_at_least_one_and_at_most_what_a_short_piece_holds() -> None:
    objective = SpanObjective()
    assert spans_of(objective, 568) == (85, 28)
    assert spans_of(objective, 2) == (1, 1)
    assert spans_of(objective, 10) == (2, 1)
    dense = SpanObjective(noise_density=0.9, mean_span=1.0)
    assert spans_of(dense, 10) == (9, 1)


def test_a_prefix_fits_the_context_and_chance_leaves_room_for_its_noise() -> None:
    assert lengths(SpanObjective(noise="prefix"), 512) == (512, 512)
    raw, target = lengths(SpanObjective(noise="iid"), 512)
    # Of 511 tokens 77 are noise on average, in 65 runs, and an end.
    mean = 511 * 0.15 + 0.15 + 510 * 0.15 * 0.85 + 1
    assert raw == 511
    assert mean + 4 * math.sqrt(511 * 0.15 * 0.85) < target < mean + 62  # type: ignore[operator]


@pytest.mark.parametrize(
    ("settings", "context", "words"),
    [
        ({"mean_span": 10.0}, 32, "objective.mean_span = 10;"),
        ({}, 4, "data.context = 4 has no room for a span"),
        ({"noise_density": 0.001}, 64, "objective.noise_density = 0.001 makes 0 noise"),
        ({"noise_density": 0.8, "mean_span": 1.0}, 64, "50 spans, between which there are 13"),
    ],
)
def test_settings_without_a_span_are_refused(
    settings: dict[str, float], context: int, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        SpanObjective(**settings).resolve(context)  # type: ignore[arg-type]
