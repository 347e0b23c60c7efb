"""A step for one token gives what the model's forward pass gives."""

from typing import Any

import pytest
import torch

from sublayer.config.architecture.feedforward import FFNS
from sublayer.decode.step import Stepper
from sublayer.errors import ConfigError
from sublayer.model.context.cache import Cache
from tests.decode.test_sample import CONTEXT, MODELS, VOCAB_SIZE, make_model

MORE = [
    *({"ffn": ffn, "bias": ffn in ("relu", "glu")} for ffn in FFNS),
    {
        "block": ("ffn:relu*0.5", "attention*2", "ffn:geglu"),
        "share": "attention",
        "norm": "rms",
        "norm_order": "post",
    },
    {
        "d_embed": 5,
        "embedding_scale": "sqrt",
        "tie_embeddings": False,
        "head_bias": True,
        "gelu": "exact",
    },
    {"d_head": 7, "attention_scale": "none", "norm_affine": False, "final_norm": "plain"},
    {"block": ("ffn",), "dropout": 0.5},
    {"output_scale": "sqrt", "attention_scale": "none", "dropout_final": 0.5},
    {"output_scale": "sqrt", "d_embed": 5, "tie_embeddings": False},
    {"output_scale": "sqrt", "head": "transform", "norm": "rms"},
]


@pytest.mark.parametrize("n_rows", [1, 3])
@pytest.mark.parametrize("fields", [*MODELS, *MORE], ids=str)
def test_logits_are_those_of_a_forward_pass(fields: dict[str, Any], n_rows: int) -> None:
    model = make_model(**fields)
    tokens = torch.randint(
        VOCAB_SIZE, (n_rows, CONTEXT), generator=torch.Generator().manual_seed(3)
    )
    with torch.inference_mode():
        expected = model(tokens).logits
        cache, step = Cache(model.config, n_rows, CONTEXT, torch.float64), Stepper(model, n_rows)
        for place in range(CONTEXT):
            torch.testing.assert_close(
                step(tokens[:, place], cache), expected[:, place], rtol=1e-10, atol=1e-12
            )
        with pytest.raises(ConfigError, match="do not fit a cache"):
            step(tokens[:, 0], cache)


def test_a_step_goes_on_behind_a_forward_pass() -> None:
    model = make_model(positions="rotary", share="all")
    tokens = torch.randint(VOCAB_SIZE, (2, CONTEXT), generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        cache = Cache(model.config, 2, CONTEXT, torch.float64)
        model.last_logits(tokens[:, :6], cache)
        found = Stepper(model, 2)(tokens[:, 6], cache)
        torch.testing.assert_close(found, model(tokens).logits[:, 6], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n_rows", [1, 3])
@pytest.mark.parametrize(
    "fields",
    [
        {"share": "all"},
        {"ffn": "swiglu", "norm": "rms", "positions": "rotary"},
        {"ffn": "swish", "swish_beta": 1.5},
    ],
    ids=str,
)
def test_steps_round_no_worse_than_a_forward_pass(
    fields: dict[str, Any], n_rows: int, dtype: torch.dtype
) -> None:
    model = make_model(**fields)
    tokens = torch.randint(
        VOCAB_SIZE, (n_rows, CONTEXT), generator=torch.Generator().manual_seed(3)
    )
    with torch.inference_mode():
        # The worst of one row is an accident: others tell how far a forward pass rounds.
        others = torch.randint(
            VOCAB_SIZE, (16, CONTEXT), generator=torch.Generator().manual_seed(4)
        )
        both = torch.cat([tokens, others])
        exact = model(both).logits
        model.to(dtype)
        allowed = 2 * (model(both).logits.double() - exact).abs().max()
        cache, step = Cache(model.config, n_rows, CONTEXT), Stepper(model, n_rows)
        model.last_logits(tokens[:, :4], cache)
        for place in range(4, CONTEXT):
            found = step(tokens[:, place], cache)
            assert found.dtype == dtype
            assert (found.double() - exact[:n_rows, place]).abs().max() < allowed
