"""Every kind of sub-layer has a row in each table, which says what it is made of."""

import pytest
import torch

from sublayer.config.architecture.block import Entry, parse_block
from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.architecture.sublayers import SUBLAYERS
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.estimate.sublayers.table import ESTIMATES, estimate_of
from sublayer.model.layers.block import FUNCTIONS

ENTRIES = parse_block(("attention", "cross", *(f"ffn:{name}" for name in FFNS)), default_ffn="relu")


def test_every_table_has_a_row_for_every_kind() -> None:
    assert list(SUBLAYERS) == list(ESTIMATES)
    residual = [name for name, row in SUBLAYERS.items() if not row.is_recurrent]
    assert residual == list(FUNCTIONS)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_a_sublayer_has_the_parameters_that_are_said(entry: Entry, bias: bool) -> None:
    model = ModelConfig(d_model=10, n_heads=2, d_head=3, d_ff=7, bias=bias)
    config = resolve_model(model, vocab_size=5, context=4)
    with torch.device("meta"):
        function = FUNCTIONS[entry.name].from_config(config, entry)
    estimate = estimate_of(config, entry)
    sizes = {name: parameter.numel() for name, parameter in function.named_parameters()}
    assert estimate.n_parameters() == sum(sizes.values())
    matrices = [parameter for parameter in function.parameters() if parameter.dim() > 1]
    weights = {name: size for name, size in sizes.items() if name.endswith("weight")}
    assert estimate.n_stacked + estimate.n_alone == sum(weights.values())
    assert estimate.n_stacked == sum(each.numel() for each in matrices if each.dim() == 3)
