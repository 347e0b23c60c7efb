"""The memory that a step is said to need is what it allocates."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.causal import CausalObjective
from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.adam import AdamWConfig
from sublayer.config.optimizers.kinds import OPTIMIZERS, OptimizerConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.config.optimizers.sgd import SgdConfig
from sublayer.estimate.memory import training_memory
from tests.breadth import rows

from .configurations import (
    ENCODER,
    ENCODERS,
    MODELS,
    PRECISIONS,
    T5S,
    TASK_MODELS,
    TRANSLATORS,
    make_pass,
    make_span_pass,
    make_task_pass,
)
from .measured import allocated_peak, check_saved, make_step

# Of the eight kinds of step a model is measured in four, in which any two choices are met together.
KINDS = list(product([1, 2], PRECISIONS, [False, True]))
FOUR = [(1, "float32", True), (1, "bfloat16", False), (2, "float32", False), (2, "bfloat16", True)]
OTHERS = [kind for kind in KINDS if kind not in FOUR]


def kinds_of(number: int) -> list[tuple[int, str, bool]]:
    """Return the kinds of step in which the model of this number is measured."""
    return OTHERS if number % 4 >= 2 else FOUR


STEPS = [
    (fields, *kind)
    for number, fields in enumerate([*MODELS, *ENCODERS, *TRANSLATORS])
    for kind in kinds_of(number)
]


@pytest.mark.parametrize(("fields", "n_passes", "precision", "recomputes"), rows(STEPS, 8), ids=str)
def test_a_step_allocates_what_is_said(
    fields: dict[str, Any], n_passes: int, precision: str, recomputes: bool
) -> None:
    step = replace(make_pass(fields, precision), recomputes=recomputes)
    optimizer = load_recipe("gpt").recipe.optimizer
    take_step = make_step(step, optimizer, n_passes)
    take_step(0)  # makes the optimizer's state
    said = training_memory(step, optimizer, n_passes=n_passes)
    assert said.tensors - said.weights - said.optimizer == pytest.approx(
        allocated_peak(take_step), rel=0.1
    )


OBJECTIVES = [CausalObjective(auxiliary="layers", targets=2), CausalObjective(positions="last")]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=["auxiliary", "last"])
@pytest.mark.parametrize(
    ("fields", "precision"),
    rows(product([MODELS[0], *MODELS[4:6]], ["bfloat16", "float32"]), 1),
    ids=str,
)
def test_other_losses_keep_and_allocate_what_is_said(
    fields: dict[str, Any], objective: CausalObjective, precision: str
) -> None:
    optimizer = SgdConfig(lr=1e-2, momentum=0.9)
    for recomputes in (False, True):
        step = replace(make_pass(fields, precision), objective=objective, recomputes=recomputes)
        take_step = make_step(step, optimizer, 2)
        take_step(0)
        said = training_memory(step, optimizer, n_passes=2)
        assert said.tensors - said.weights - said.optimizer == pytest.approx(
            allocated_peak(take_step), rel=0.1
        )
    check_saved(replace(step, recomputes=False))


# Both stacks matter: where blocks run again, the longer one has the peak.
SPANS = [
    (fields, z_loss, *kind) for fields, z_loss in ((T5S[0], 0.0), (T5S[1], 1e-4)) for kind in KINDS
]


@pytest.mark.parametrize(
    ("fields", "z_loss", "n_passes", "precision", "recomputes"), rows(SPANS, 4), ids=str
)
def test_a_step_of_span_corruption_allocates_what_is_said(
    fields: dict[str, Any], z_loss: float, n_passes: int, precision: str, recomputes: bool
) -> None:
    optimizer = load_recipe("gpt").recipe.optimizer
    step = make_span_pass(fields, precision, z_loss)
    # A target is so much shorter than the input that neither stack stands for the other.
    assert step.lengths.written < step.lengths.read / 3
    one = replace(step, recomputes=recomputes)
    take_step = make_step(one, optimizer, n_passes)
    take_step(0)
    said = training_memory(one, optimizer, n_passes=n_passes)
    assert said.tensors - said.weights - said.optimizer == pytest.approx(
        allocated_peak(take_step), rel=0.1
    )


OF_TASKS = [
    (name, *kind) for number, name in enumerate(TASK_MODELS) for kind in kinds_of(2 * (number % 2))
]


@pytest.mark.parametrize(("name", "n_passes", "precision", "recomputes"), rows(OF_TASKS, 6))
def test_a_step_on_a_task_allocates_what_is_said(
    name: str, n_passes: int, precision: str, recomputes: bool
) -> None:
    step = replace(make_task_pass(name, precision), recomputes=recomputes)
    optimizer = load_recipe("gpt").recipe.optimizer
    take_step = make_step(step, optimizer, n_passes)
    take_step(0)
    said = training_memory(step, optimizer, n_passes=n_passes)
    assert said.tensors - said.weights - said.optimizer == pytest.approx(
        allocated_peak(take_step), rel=0.1
    )


UPDATES: dict[str, Any] = {
    **{kind: table() for kind, table in OPTIMIZERS.items()},
    "decayed": SgdConfig(lr=1e-2, momentum=0.9, weight_decay=0.1),
    "uncorrected": AdamWConfig(bias_correction=False),
    "gpt1": AdamWConfig(form="gpt1"),
    "published": LambConfig(form="published"),
    "factored": AdafactorConfig(min_factored=32),
    "scaled": AdamWConfig(parameter_scale=True),
    "scaled, uncorrected": AdamWConfig(parameter_scale=True, bias_correction=False),
}


@pytest.mark.parametrize(
    ("optimizer", "fields"),
    rows(product(UPDATES.values(), [MODELS[2], MODELS[4]]), 8),
    ids=str,
)
def test_an_update_that_outweighs_the_activations_allocates_what_is_said(
    optimizer: OptimizerConfig, fields: dict[str, Any]
) -> None:
    step = replace(make_pass({**fields, "share": "none"}, "float32"), sequences=1, context=8)
    take_step = make_step(step, optimizer, 1)
    take_step(0)
    said = training_memory(step, optimizer, n_passes=1)
    assert said.activations < said.weights
    assert said.tensors - said.weights - said.optimizer == pytest.approx(
        allocated_peak(take_step), rel=0.1
    )


@pytest.mark.parametrize(
    ("optimizer", "states"),
    [
        (SgdConfig(lr=1e-2, momentum=0.0), 0),
        (SgdConfig(lr=1e-2, momentum=0.9), 1),
        (load_recipe("gpt").recipe.optimizer, 2),
        (UPDATES["uncorrected"], 2),
        (UPDATES["lamb"], 2),
        (UPDATES["published"], 2),
        (UPDATES["gpt1"], 2),
        (UPDATES["scaled"], 2),
    ],
    ids=["sgd", "momentum", "adamw", "uncorrected", "albert", "published", "gpt1", "scaled"],
)
def test_an_optimizer_keeps_the_numbers_that_are_said(
    optimizer: OptimizerConfig, states: int
) -> None:
    step = make_pass({}, "float32")
    take_step = make_step(step, optimizer, 1)
    take_step(0)
    kept = [
        v
        for state in take_step.optimizer.state.values()
        for v in state.values()
        if torch.is_tensor(v) and v.dim()
    ]
    said = training_memory(step, optimizer, n_passes=1)
    assert said.optimizer == sum(tensor.nbytes for tensor in kept) == states * said.weights


MATRICES: list[dict[str, Any]] = [
    {"softmax": "all"},
    {"dropout": 0.1, "dropout_embedding_of": "matrix"},
    {"softmax": "all", "dropout": 0.1, "dropout_embedding_of": "matrix"},
]


@pytest.mark.parametrize(
    ("fields", "precision", "recomputes"),
    rows(product(MATRICES, PRECISIONS, [False, True]), 4),
    ids=str,
)
def test_an_embedding_matrix_that_outweighs_the_rest_is_held_as_is_said(
    fields: dict[str, Any], precision: str, recomputes: bool
) -> None:
    # As many positions as make a matrix of half the model.
    larger = {**fields, "n_layers": 1, "max_len": 2000}
    step = replace(make_pass(larger, precision), recomputes=recomputes)
    optimizer = SgdConfig(lr=1e-2, momentum=0.9)
    take_step = make_step(step, optimizer, 1)
    take_step(0)
    said = training_memory(step, optimizer, n_passes=1)
    assert said.tensors - said.weights - said.optimizer == pytest.approx(
        allocated_peak(take_step), rel=0.1
    )


BIASED: list[dict[str, Any]] = [
    {"positions": "alibi", "n_layers": 2, "n_heads": 16},
    {**ENCODER, "positions": "alibi", "n_layers": 2, "n_heads": 16},
    {"kind": "encoder-decoder", "positions": "alibi", "n_layers": 2, "n_heads": 16},
    {"positions": "relative", "n_layers": 2, "n_heads": 16},
    {**ENCODER, "positions": "relative", "n_layers": 2, "n_heads": 16},
    {"kind": "encoder-decoder", "positions": "relative", "n_layers": 2, "n_heads": 16},
]


@pytest.mark.parametrize(("recomputes", "fields"), rows(product([False, True], BIASED), 4), ids=str)
def test_a_bias_of_scores_is_held_as_is_said(fields: dict[str, Any], recomputes: bool) -> None:
    check_saved(make_pass(fields, "float32"))
    # So few and so long that the bias is as large as what a block keeps.
    step = replace(make_pass(fields, "float32"), sequences=1, context=640, recomputes=recomputes)
    optimizer = SgdConfig(lr=1e-2, momentum=0.9)
    take_step = make_step(step, optimizer, 1)
    take_step(0)
    said = training_memory(step, optimizer, n_passes=1)
    assert said.tensors - said.weights - said.optimizer == pytest.approx(
        allocated_peak(take_step), rel=0.1
    )
