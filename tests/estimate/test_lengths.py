"""An encoder-decoder that reads more or less than it writes takes what is said of both lengths."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sublayer.config.model import ModelConfig
from sublayer.config.objectives.base import Lengths
from sublayer.config.objectives.translation import TranslationObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.data.packing import pairs_in_rows
from sublayer.estimate.cost import flops_per_token
from sublayer.estimate.micro_batch import MicroBatch, Precision
from sublayer.estimate.saved_by_pass import saved_activations, saved_casts
from sublayer.model.build import build
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.objective.translation.loss import Translation


class Uneven(TranslationObjective):
    """A translation of another length than its source."""

    n_read: int
    n_written: int

    def lengths(self, context: int) -> Lengths:
        return Lengths(self.n_read, self.n_written)


def make_config(context: int, **fields: Any) -> ModelConfig:
    model = ModelConfig(kind="encoder-decoder", positions="sinusoidal", **fields)
    return resolve_model(model, vocab_size=41, context=context)


@pytest.mark.parametrize("lengths", [(11, 5)], ids=str)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n_decoder_layers": 2, "ffn": "swiglu", "d_head": 6},
        {"d_embed": 8, "block": "macaron"},
    ],
    ids=str,
)
def test_operations_are_those_of_the_built_model_but_for_half_of_its_own_attention(
    fields: dict[str, Any], lengths: tuple[int, int]
) -> None:
    n_read, n_written = lengths
    n_rows, context, n_heads = 3, max(lengths), 2
    config = make_config(context, n_layers=3, d_model=20, n_heads=n_heads, **fields)
    model = build(config, seed=0)
    assert isinstance(model, EncoderDecoder)
    source = torch.arange(n_read)[None].expand(n_rows, -1)
    target = torch.arange(n_written)[None].expand(n_rows, -1)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(source, target=target).logits.sum().backward()
    assert config.d_head is not None and config.n_decoder_layers is not None
    # Scores and weighted values over the half of its own tokens that no query of the decoder sees.
    width = n_heads * config.d_head
    unseen = 3 * 2 * config.n_decoder_layers * width * n_written**2
    objective = Uneven(n_read=n_read, n_written=n_written)
    said = flops_per_token(config, context, objective)
    counted = counter.get_total_flops() / n_rows
    # Rounded to a whole number for each token.
    assert said * context == pytest.approx(counted - unseen, abs=context / 2)


@pytest.mark.parametrize(
    ("fields", "lengths", "precision"),
    [
        ({"dropout": 0.1, "ffn": "relu"}, (96, 40), "float32"),
        ({"norm": "rms"}, (40, 96), "bfloat16"),
    ],
    ids=str,
)
def test_what_autograd_keeps_is_what_is_said(
    fields: dict[str, Any], lengths: tuple[int, int], precision: Precision
) -> None:
    n_read, n_written = lengths
    config = make_config(96, n_layers=3, d_model=64, n_heads=4, **fields)
    table = Uneven(n_read=n_read, n_written=n_written)
    step = MicroBatch(config, sequences=5, context=96, precision=precision, objective=table)
    objective = Translation(build(config, seed=0), table).train()
    sources, targets = np.ones((5, n_read), np.int64), np.ones((5, n_written), np.int64)
    batch = pairs_in_rows(list(sources), list(targets), pad_id=0, first_id=0)
    sizes: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"),
    ):
        total = sum(objective(batch).values(), torch.zeros(()))
    assert total.requires_grad
    for parameter in objective.parameters():
        sizes.pop(parameter.untyped_storage().data_ptr(), None)
    said = saved_activations(step) + saved_casts(step)
    assert said == pytest.approx(sum(sizes.values()), rel=0.03)
    even = replace(step, objective=TranslationObjective())
    assert saved_activations(even) > 1.2 * saved_activations(step)
