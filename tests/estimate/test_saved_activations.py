"""The activations that a config is said to save are those that autograd keeps."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch

from sublayer.config.architecture.stacks import stacks
from sublayer.estimate.saved_by_blocks import score_bias, score_bias_index
from sublayer.estimate.saved_by_pass import saved_activations
from sublayer.model.positions.build import build_positions
from tests.breadth import rows

from .configurations import (
    CONTEXT,
    ENCODER,
    ENCODERS,
    MODELS,
    PRECISIONS,
    SEQUENCES,
    T5S,
    TASK_MODELS,
    TRANSLATORS,
    make_pass,
    make_span_pass,
    make_task_pass,
)
from .measured import check_saved, saved_bytes, saved_storages


@pytest.mark.parametrize(
    ("fields", "precision"),
    rows(product([*MODELS, *ENCODERS, *TRANSLATORS], PRECISIONS), 9),
    ids=str,
)
def test_what_autograd_keeps_is_what_is_said(fields: dict[str, Any], precision: str) -> None:
    step = make_pass(fields, precision)
    check_saved(step)


@pytest.mark.parametrize("z_loss", [0.0, 1e-4])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("fields", T5S, ids=str)
def test_what_autograd_keeps_of_span_corruption_is_what_is_said(
    fields: dict[str, Any], precision: str, z_loss: float
) -> None:
    check_saved(make_span_pass(fields, precision, z_loss))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", TASK_MODELS)
def test_what_autograd_keeps_of_a_task_is_what_is_said(name: str, precision: str) -> None:
    check_saved(make_task_pass(name, precision))


def test_documents_kept_apart_have_a_bias_for_each_row() -> None:
    step = make_pass({"positions": "alibi", "n_heads": 3}, "float32")
    (stack,) = stacks(step.config)
    shared, apart = (
        score_bias(step, stack),
        score_bias(replace(step, keeps_documents_apart=True), stack),
    )
    assert shared == 4 * 3 * CONTEXT**2
    assert apart == SEQUENCES * shared


def test_a_learned_bias_of_rows_keeps_where_it_was_looked_up() -> None:
    step = make_pass({**ENCODER, "positions": "relative", "n_heads": 3}, "float32")
    (stack,) = stacks(step.config)
    positions = build_positions(step.config, stack)
    rows = torch.arange(CONTEXT).expand(SEQUENCES, -1)
    sizes: dict[int, int] = {}
    with saved_storages(sizes):
        bias = positions.score_bias(rows, rows, torch.float32)
    assert bias is not None and bias.nbytes == score_bias(step, stack)
    assert sum(sizes.values()) == score_bias_index(step, stack) == 4 * SEQUENCES * CONTEXT**2
    # Where all rows have the same positions it keeps no more than the offsets.
    decoder = make_pass({"positions": "relative"}, "float32")
    assert score_bias_index(decoder, stacks(decoder.config)[0]) == 0


@pytest.mark.parametrize("kind", ["decoder", "encoder-decoder"])
def test_dropout_behind_the_final_norm_keeps_a_byte_for_each_feature(kind: str) -> None:
    fields = {"kind": kind, "n_layers": 1}
    step, without = (make_pass({**fields, "dropout_final": p}, "float32") for p in (0.1, 0.0))
    more = saved_activations(step) - saved_activations(without)
    assert more == len(stacks(step.config)) * SEQUENCES * CONTEXT * 96
    assert saved_bytes(step) - saved_bytes(without) == pytest.approx(more, rel=0.01)
