"""Modifications since 2020: parameters and operations as built, on each kind of model."""

import re
from itertools import product
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from sublayer.config.load import load_recipe
from sublayer.config.messages import choices_of
from sublayer.config.recipe import NEXT_TOKEN, declaration
from sublayer.errors import ConfigError
from sublayer.model.estimates import count_parameters, flops_per_token
from sublayer.model.transformer import build
from tests.estimate.configurations import Uneven, resolved
from tests.estimate.test_cost import counting

KINDS = choices_of(declaration("model.kind").annotation)
BLOCKS = tuple(kind for kind in KINDS if kind != "lstm")
ROTARY = {"positions": "rotary"}
N_TOKENS = 12
# So wide that no key is out of sight, not even in an encoder: ``test_cost.py`` counts fewer.
WINDOW = {"attention_window": 2 * N_TOKENS, "window_pattern": "LG"}
ROWS = {
    "n_kv_heads": ({"n_kv_heads": 2}, BLOCKS),
    "qk_norm": ({"qk_norm": "rms"}, BLOCKS),
    "bias": ({"bias": {"query": True, "key": True, "value": True}}, BLOCKS),
    "attention_window": (WINDOW, BLOCKS),
    "position_pattern": ({**ROTARY, "position_pattern": "PN"}, BLOCKS),
    "rotary_fraction": ({**ROTARY, "rotary_fraction": 0.5}, BLOCKS),
    "rotary_layout": ({**ROTARY, "rotary_layout": "interleaved"}, BLOCKS),
    "score_cap": ({"score_cap": 50.0}, BLOCKS),
    "attention_scale": ({"attention_scale": 3.0}, BLOCKS),
    "logit_cap": ({"logit_cap": 30.0}, KINDS),
    "output_scale": ({"output_scale": 4.0}, KINDS),
    "sinks": ({"sinks": True}, BLOCKS),
    "attention_gate": ({"attention_gate": "element"}, BLOCKS),
    "value_residual": ({"value_residual": "learned"}, BLOCKS),
    "ffn": ({"ffn": "reglu2"}, BLOCKS),
    "norm_order": ({"norm_order": "around"}, BLOCKS),
    "embedding_norm": ({"embedding_norm": "affine"}, BLOCKS),
    "first_norm": ({"first_norm": False}, BLOCKS),
    "block": ({"block": "parallel"}, BLOCKS),
    "norm": ({"norm": "dyt"}, BLOCKS),
    "embedding_scale": ({"embedding_scale": 3.0}, KINDS),
    "residual_scale": ({"residual_scale": 0.5}, BLOCKS),
}
OF_KIND = [(name, kind) for name, (_, kinds) in ROWS.items() for kind in kinds]
ELSEWHERE = sorted({*product(ROWS, KINDS)} - {*OF_KIND})


def built(kind, **fields):
    size = {"n_layers": 2, "d_model": 32, "n_heads": 4, "d_ff": 10, "max_len": 2 * N_TOKENS}
    return build(resolved(kind=kind, context=N_TOKENS, **size, **fields), seed=0).eval()


def operations(model):
    """Count the operations of a forward pass, as they are and as they are estimated."""
    config, tokens = model.config, torch.arange(N_TOKENS)[None]
    is_translator = config.kind == "encoder-decoder"
    with sdpa_kernel(SDPBackend.MATH), counting() as counter:
        model(tokens, **({"target": tokens} if is_translator else {}))
    objective = Uneven(n_read=N_TOKENS, n_written=N_TOKENS) if is_translator else NEXT_TOKEN
    return counter.get_total_flops(), flops_per_token(config, N_TOKENS, objective) * N_TOKENS / 3


@pytest.mark.parametrize(("name", "kind"), OF_KIND, ids=map("-".join, OF_KIND))
@torch.no_grad()
def test_it_has_the_parameters_and_operations_that_are_counted(name, kind):
    fields, _ = ROWS[name]
    model = built(kind, **fields)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert n_parameters == count_parameters(model.config).total
    # Without it both models compute the keys that no query sees, which are not counted.
    plain = built(kind, **(ROTARY if "positions" in fields else {}))
    pairs = zip(operations(model), operations(plain), strict=True)
    taken, estimated = (own - others for own, others in pairs)
    assert taken == pytest.approx(estimated, abs=N_TOKENS)


@pytest.mark.parametrize(("name", "kind"), ELSEWHERE, ids=map("-".join, ELSEWHERE))
def test_it_is_refused_by_name_where_it_has_no_meaning(name, kind):
    settings = {f"model.{key}": value for key, value in ROWS[name][0].items()}
    with pytest.raises(ConfigError, match=rf"model\.({'|'.join(ROWS[name][0])})"):
        load_recipe("gpt", {"model.kind": kind, **settings})


def test_the_page_says_of_each_on_which_kinds_it_has_a_meaning():
    page = (Path(__file__).parents[2] / "docs" / "model.md").read_text()
    section = page.partition("## Modifications since 2020\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    assert tuple(rows[0][3:7]) == KINDS
    found = {}
    for fields, _, _, *cells in rows[2:]:
        for name in re.findall(r"`model\.(\w+)", fields):
            pairs = zip(KINDS, cells[:4], strict=True)
            found[name] = tuple(kind for kind, cell in pairs if cell == "yes")
    assert {name: kinds for name, (_, kinds) in ROWS.items()}.items() <= found.items()
