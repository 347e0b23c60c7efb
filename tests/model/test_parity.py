"""Same weights, same logits as transformers' GPT-2, in float64."""

import itertools

import pytest
import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.model.build import compose
from sublayer.model.context.cache import Cache
from sublayer.model.context.layout import Layout
from sublayer.model.kernels.cross_entropy import linear_cross_entropy
from sublayer.model.transformer import Transformer

TOLERANCE = 1e-9


def random_gpt2(
    seed: int, *, n_layers: int, n_heads: int, d_head: int, d_ff: int
) -> GPT2LMHeadModel:
    config = GPT2Config(
        vocab_size=53,
        n_positions=29,
        n_embd=n_heads * d_head,
        n_layer=n_layers,
        n_head=n_heads,
        n_inner=d_ff,
        layer_norm_epsilon=3e-5,
        attn_implementation="eager",
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            # Wider than the usual initial weights, and biases and gains too, so that every term
            # matters.
            parameter.normal_(0.0, 0.3, generator=generator)
    return model


def copied(reference: GPT2LMHeadModel) -> Transformer:
    given = reference.config
    config = ModelConfig(
        n_layers=given.n_layer,
        d_model=given.n_embd,
        n_heads=given.n_head,
        d_ff=given.n_inner,
        ffn="gelu",
        gelu="tanh",
        norm_eps=given.layer_norm_epsilon,
    )
    model = (
        compose(resolve_model(config, vocab_size=given.vocab_size, context=given.n_positions))
        .double()
        .eval()
    )
    model.load_state_dict(renamed(reference))
    return model


def renamed(reference: GPT2LMHeadModel) -> dict[str, Tensor]:
    """GPT-2 keeps kernels as [in, out]; queries, keys and values side by side in one."""
    source = reference.transformer.state_dict()
    weights = {
        "embedding.weight": source["wte.weight"],
        "positions.tables.0.weight": source["wpe.weight"],
        "final_norm.weight": source["ln_f.weight"],
        "final_norm.bias": source["ln_f.bias"],
    }
    names = [
        (0, "norm", "ln_1"),
        (0, "function.projection", "attn.c_attn"),
        (0, "function.output", "attn.c_proj"),
        (1, "norm", "ln_2"),
        (1, "function.input", "mlp.c_fc"),
        (1, "function.output", "mlp.c_proj"),
    ]
    for layer, (place, ours, theirs), kind in itertools.product(
        range(reference.config.n_layer), names, ("weight", "bias")
    ):
        value = source[f"h.{layer}.{theirs}.{kind}"]
        value = value.t() if value.dim() == 2 else value
        if ours == "function.projection":
            value = value.unflatten(0, (3, -1))
        weights[f"decoder.sublayers.{place}.{layer}.{ours}.{kind}"] = value
    return weights


SIZES = [
    (0, {"n_layers": 1, "n_heads": 1, "d_head": 7, "d_ff": 5}),
    (1, {"n_layers": 3, "n_heads": 2, "d_head": 5, "d_ff": 13}),
    (2, {"n_layers": 2, "n_heads": 3, "d_head": 2, "d_ff": 24}),
]


@pytest.fixture(scope="module", params=SIZES, ids=["one-layer", "three-layers", "three-heads"])
def pair(request: pytest.FixtureRequest) -> tuple[GPT2LMHeadModel, Transformer]:
    seed, sizes = request.param
    reference = random_gpt2(seed, **sizes)
    return reference, copied(reference)


def tokens(n_rows: int, n_tokens: int) -> Tensor:
    return torch.randint(
        0, 53, (n_rows, n_tokens), generator=torch.Generator().manual_seed(n_tokens)
    )


def test_logits_equal_those_of_gpt2(pair: tuple[GPT2LMHeadModel, Transformer]) -> None:
    reference, model = pair
    ids = tokens(3, 29)
    with torch.no_grad():
        expected = reference(ids).logits
    torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=TOLERANCE)


def test_cached_decoding_equals_gpt2(pair: tuple[GPT2LMHeadModel, Transformer]) -> None:
    reference, model = pair
    ids = tokens(2, 17)
    cache = Cache(model.config, 2, 17, torch.float64)
    pieces = [model(piece, cache=cache).logits for piece in ids.split([5, 1, 3, 1, 7], dim=1)]
    with torch.no_grad():
        expected = reference(ids).logits
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected, rtol=0, atol=TOLERANCE)


def test_left_padded_logits_equal_those_of_gpt2(pair: tuple[GPT2LMHeadModel, Transformer]) -> None:
    reference, model = pair
    ids, mask = tokens(2, 11), torch.ones(2, 11, dtype=torch.bool)
    mask[0, :4] = False
    with torch.no_grad():
        expected = reference(
            ids, attention_mask=mask.long(), position_ids=(mask.cumsum(1) - 1).clamp_min(0)
        ).logits
    torch.testing.assert_close(
        model(ids, mask).logits[mask], expected[mask], rtol=0, atol=TOLERANCE
    )


def test_gradients_equal_those_of_gpt2(pair: tuple[GPT2LMHeadModel, Transformer]) -> None:
    reference, model = pair
    ids, targets = tokens(2, 13), tokens(2, 13).roll(-1, 1)
    logits = reference(ids).logits
    torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="sum"
    ).backward()
    hidden = model.hidden(ids, Layout.causal(ids)).final
    matrix, bias = model.output_projection()
    linear_cross_entropy(
        model.to_embedding(hidden).flatten(0, 1), matrix, bias, targets.flatten()
    ).backward()
    pairs = [
        (model.embedding.weight, reference.transformer.wte.weight),
        (model.positions.tables[0].weight, reference.transformer.wpe.weight),
        (model.decoder.sublayers[0][0].norm.weight, reference.transformer.h[0].ln_1.weight),
    ]
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=TOLERANCE)
    projection = model.decoder.sublayers[0][0].function.projection.weight.grad.flatten(0, 1).t()
    torch.testing.assert_close(
        projection, reference.transformer.h[0].attn.c_attn.weight.grad, rtol=0, atol=TOLERANCE
    )
    reference.zero_grad()
    model.zero_grad()
