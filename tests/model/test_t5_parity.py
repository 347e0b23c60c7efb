"""Same weights, same numbers as transformers' T5: every network, padded, cached, by beam."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5 import modeling_t5

from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.architecture.stacks import stacks
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings
from sublayer.model.build import compose
from sublayer.model.context.cache import Cache
from sublayer.model.encoder_decoder import EncoderDecoder

VOCAB_SIZE, END, PAD = 43, 1, 0
NETWORKS = {
    "relu": "relu",
    "gelu": "gelu_new",
    "swish": "silu",
    "glu": "gated-sigmoid",
    "bilinear": "gated-linear",
    "reglu": "gated-relu",
    "geglu": "gated-gelu",
    "swiglu": "gated-silu",
}
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 14,
    "d_kv": 5,
    "d_ff": 17,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 3,
    # So few that distances share them.
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
    "decoder_start_token_id": PAD,
    "attn_implementation": "eager",
}
# Of the four combinations each network is tried in one every time: in these in turn.
OFTEN = [(True, True), (False, False), (True, False), (False, True)]
MODELS = [
    pytest.param(ffn, *form, marks=[] if form == OFTEN[number % 4] else pytest.mark.slow)
    for number, ffn in enumerate(FFNS)
    for form in OFTEN
]
each_model = pytest.mark.parametrize(("ffn", "is_tied", "is_scaled"), MODELS)


@pytest.fixture(autouse=True)
def wide_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute the norms of transformers in the type of the model: they are float32 in any."""

    def forward(self: Any, x: Tensor) -> Tensor:
        inverse = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (x * inverse)  # type: ignore[no-any-return]

    monkeypatch.setattr(modeling_t5.T5LayerNorm, "forward", forward)


def make_theirs(ffn: str, *, is_tied: bool, is_scaled: bool, **fields: Any) -> Any:
    config = T5Config(**{**SIZES, "feed_forward_proj": NETWORKS[ffn], **fields})
    config.scale_decoder_outputs = is_scaled
    theirs = T5ForConditionalGeneration(config).double().eval()
    if not is_tied:
        theirs.lm_head.weight = nn.Parameter(torch.empty(VOCAB_SIZE, 14, dtype=torch.float64))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
            if "layer_norm" in name:
                parameter.add_(1.0)
    return theirs


def make_ours(theirs: Any, ffn: str, *, is_tied: bool, is_scaled: bool) -> EncoderDecoder:
    fields: dict[str, Any] = {
        "kind": "encoder-decoder",
        "n_layers": 2,
        "n_decoder_layers": 3,
        "d_model": 14,
        "n_heads": 3,
        "d_head": 5,
        "d_ff": 17,
        "ffn": ffn,
        "norm": "rms",
        "bias": False,
        "positions": "relative",
        "relative_buckets": 8,
        "relative_distance": 10,
        "attention_scale": "none",
        "output_scale": "sqrt" if is_scaled else "none",
        "tie_embeddings": is_tied,
    }
    config = resolve_model(ModelConfig(**fields), vocab_size=VOCAB_SIZE, context=12)
    ours = compose(config).double().eval()
    assert isinstance(ours, EncoderDecoder)
    ours.load_state_dict(weights_of(theirs.state_dict(), config))
    return ours


def weights_of(source: dict[str, Tensor], config: Any) -> dict[str, Tensor]:
    found = {"embedding.weight": source["shared.weight"]}
    if not config.tie_embeddings:
        found["head.weight"] = source["lm_head.weight"]
    for shape, prefix in zip(stacks(config), ("source.", ""), strict=True):
        stack = shape.name
        table = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        found[f"{prefix}positions.table.weight"] = source[table]
        found[f"{prefix}final_norm.weight"] = source[f"{stack}.final_layer_norm.weight"]
        for layer, (index, entry) in product(range(shape.n_layers), enumerate(shape.block)):
            theirs = f"{stack}.block.{layer}.layer.{index}"
            ours = f"{prefix}{stack}.sublayers.{index}.{layer}"
            found[f"{ours}.norm.weight"] = source[f"{theirs}.layer_norm.weight"]
            found |= maps_of(source, entry.name, theirs, f"{ours}.function")
    return found


def maps_of(source: dict[str, Tensor], kind: str, theirs: str, ours: str) -> dict[str, Tensor]:
    if kind == "ffn":
        gated = [f"{theirs}.DenseReluDense.wi_{part}.weight" for part in (0, 1)]
        plain = source.get(f"{theirs}.DenseReluDense.wi.weight")
        into = torch.stack([source[name] for name in gated]) if plain is None else plain
        out = source[f"{theirs}.DenseReluDense.wo.weight"]
        return {f"{ours}.input.weight": into, f"{ours}.output.weight": out}
    name = {"attention": "SelfAttention", "cross": "EncDecAttention"}[kind]
    q, k, v, o = (source[f"{theirs}.{name}.{each}.weight"] for each in "qkvo")
    return {f"{ours}.projection.weight": torch.stack([q, k, v]), f"{ours}.output.weight": o}


def equal(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def make_batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(2, VOCAB_SIZE, (3, 12), generator=generator)
    target = torch.randint(2, VOCAB_SIZE, (3, 11), generator=generator)
    target[:, 0] = PAD
    # Padding behind, before, and none.
    places = torch.arange(12)
    mask = torch.stack([places < 7, places >= 4, places >= 0])
    return source, mask, target


@each_model
@torch.no_grad()
def test_logits_are_equal_padded_or_not_cached_or_not(
    ffn: str, is_tied: bool, is_scaled: bool
) -> None:
    theirs = make_theirs(ffn, is_tied=is_tied, is_scaled=is_scaled)
    ours = make_ours(theirs, ffn, is_tied=is_tied, is_scaled=is_scaled)
    source, mask, target = make_batch()
    plain = theirs(input_ids=source, decoder_input_ids=target).logits
    equal(ours(source, target=target).logits, plain)
    padded = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    equal(ours(source, mask, target=target).logits, padded)
    assert (plain[:2] - padded[:2]).abs().max() > 1e-3
    memory, cache = ours.encode(source, mask), Cache(ours.config, 3, 11, torch.float64)
    pieces = [ours.decode(piece, memory, cache) for piece in target.split([4, 1, 1, 5], dim=1)]
    equal(torch.cat(pieces, dim=1), padded)


@each_model
@torch.no_grad()
def test_a_beam_scores_hypotheses_as_theirs_does(ffn: str, is_tied: bool, is_scaled: bool) -> None:
    theirs = make_theirs(ffn, is_tied=is_tied, is_scaled=is_scaled)
    ours = make_ours(theirs, ffn, is_tied=is_tied, is_scaled=is_scaled)
    rng = np.random.default_rng(0)
    sources = [rng.integers(2, VOCAB_SIZE, n) for n in (7, 2, 5)]
    settings = BeamSettings(3, penalty=1.0, max_length_offset=6)
    found = dict(search(ours, sources, settings, end_id=END, pad_id=PAD, start_id=PAD))
    for number, source in enumerate(sources):
        given = torch.tensor([[*source, END]])
        for each in found[number]:
            target = torch.tensor([[PAD, *each.ids, END]])
            logits = theirs(input_ids=given, decoder_input_ids=target[:, :-1]).logits
            log_p = logits[0].log_softmax(-1)[range(target.shape[1] - 1), target[0, 1:]].sum()
            assert each.log_p == pytest.approx(log_p.item(), abs=1e-9)
