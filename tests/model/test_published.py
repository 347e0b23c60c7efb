"""Random models of transformers' classes, and ours of the same weights: equal logits and gradients.

Each row of ``PUBLISHED`` is a class, the fields of its config, ours, and the names of its tensors.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.decode.step import Stepper
from sublayer.interop.decoders import AROUND, GROUPED, HEAD_NORMS, LLAMA, Gpt2, GptJ, GptNeoX
from sublayer.model.cache import Cache
from sublayer.model.context import Layout
from sublayer.model.transformer import compose
from tests.breadth import TRIES_ALL

VOCAB_SIZE, CONTEXT, LENGTH, PROMPT = 19, 32, 13, 5
PIECES = (PROMPT, *[1] * (LENGTH - PROMPT))
SEEDS = range(6) if TRIES_ALL else range(2)
LIMITS = {torch.float64: 1e-9, torch.float32: 5e-6}
"""Largest difference: with the float32 parts of a class in float64, and as it is."""

SIZES = {"hidden_size": 16, "intermediate_size": 20, "num_attention_heads": 4}
SETTINGS = {
    **SIZES, "vocab_size": VOCAB_SIZE, "num_hidden_layers": 3, "max_position_embeddings": CONTEXT,
    "pad_token_id": None, "tie_word_embeddings": False,
}  # fmt: skip
FIELDS = {
    "n_layers": 3, "d_model": 16, "n_heads": 4, "d_ff": 20, "tie_embeddings": False,
    "positions": "rotary", "norm": "rms", "ffn": "swiglu", "bias": False,
}  # fmt: skip
OUTSIDE = {"embedding": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head"}


@dataclass(frozen=True)
class Published:
    """A class, and the same model in our fields and names."""

    title: str
    settings: Mapping[str, object] = field(default_factory=dict)
    """Fields of its config, over ``SETTINGS``; an Ellipsis leaves one out."""
    fields: Mapping[str, object] = field(default_factory=dict)
    """Fields of ``[model]``, over ``FIELDS``."""
    layer: Mapping[str, str] = field(default_factory=lambda: LLAMA)
    """Modules of a layer by ours, ``entry.path``: several are concatenated in this order."""
    outside: Mapping[str, str] = field(default_factory=lambda: OUTSIDE)
    unit: str = "model.layers."
    added_gain: float = 0.0
    """What a norm of the class adds to its gains."""
    split: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict
    """Divides and reorders tensors, or their gradients, to those that the names are of."""
    prepare: Callable[[torch.nn.Module], object] = lambda model: None
    """Replaces parts of the class that are no subject of the row."""

    def theirs(self, name):
        """Return the names of their tensors that form ours."""
        path, _, kind = name.rpartition(".")
        if path.startswith("decoder."):
            _, _, entry, layer, rest = path.split(".", 4)
            modules = self.layer[f"{entry}.{rest}"].split()
            return [f"{self.unit}{layer}.{each}.{kind}" for each in modules]
        return [f"{self.outside[path]}.{kind}"]

    def ours(self, tensors, shapes, added_gain=0.0):
        """Convert their tensors, or gradients, to ours of these shapes; none may be left."""
        tensors, found = self.split(dict(tensors)), {}
        for name, shape in shapes.items():
            whole = torch.cat([tensors.pop(each) for each in self.theirs(name)])
            is_gain = name.endswith("norm.weight")
            found[name] = whole.reshape(shape) + (added_gain if is_gain else 0.0)
        assert not tensors
        return found


def rope(base, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": base, **more}}


NEOX = {**GptNeoX.layer, "0.function.projection": "attention.q attention.k attention.v"}
OUTSIDE_NEOX = {"embedding": "gpt_neox.embed_in", "final_norm": "gpt_neox.final_layer_norm"}
OUTSIDE_NEOX |= {"head": "lm_head"}
OUTSIDE_GPTJ = {"embedding": "transformer.wte", "final_norm": "transformer.ln_f", "head": "lm_head"}
OF_NEOX = {"norm": "layer", "ffn": "gelu", "gelu": "exact", "bias": True, "rotary_base": 100.0}
OF_NEOX |= {"rotary_fraction": 0.5}


def of_heads(tensors):
    """Divide the maps of GPTNeoX, whose heads have their queries, keys and values together."""
    found = {}
    for name, tensor in tensors.items():
        path, is_fused, kind = name.partition("query_key_value.")
        by_head = (SETTINGS["num_attention_heads"], 3, -1)
        maps = tensor.unflatten(0, by_head).unbind(1) if is_fused else ()
        parts = zip("qkv", maps, strict=bool(maps))
        found |= {f"{path}{each}.{kind}": part.flatten(0, 1) for each, part in parts}
        found |= {} if is_fused else {name: tensor}
    return found


def transposed(tensors):
    """Transpose the maps of GPT-2, which are from input to output."""
    return {n: x.T if ".c_" in n and n.endswith("weight") else x for n, x in tensors.items()}


def without_experts(model):
    """Put Llama's network in the place of GPT-OSS's experts, which also return their routing."""
    from transformers.models.llama.modeling_llama import LlamaConfig, LlamaMLP

    class Network(LlamaMLP):
        def forward(self, x):
            return super().forward(x), None

    for layer in model.model.layers:
        layer.mlp = Network(LlamaConfig(**SIZES))


LOCAL_FIRST = ["sliding_attention", "full_attention", "sliding_attention"]
BOTH_ROPES = {
    kind: rope(base)["rope_parameters"]
    for kind, base in zip(LOCAL_FIRST, (50.0, 500.0), strict=False)
}
PUBLISHED = [
    Published("LlamaForCausalLM", rope(500.0), {"rotary_base": 500.0}),
    Published("LlamaForCausalLM", {"tie_word_embeddings": True}, {"tie_embeddings": True}),
    Published(
        "MistralForCausalLM",
        {**rope(500.0), "sliding_window": 4, "num_key_value_heads": 2},
        {"rotary_base": 500.0, "attention_window": 4, "n_kv_heads": 2},
        LLAMA | GROUPED,
    ),
    Published(
        "SmolLM3ForCausalLM",
        {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 3}
        | {**rope(500.0), "num_key_value_heads": 2},
        {"rotary_base": 500.0, "position_pattern": "PN", "n_kv_heads": 2}
        | {"attention_window": 3, "window_pattern": "GL"},
        LLAMA | GROUPED,
    ),
    Published(
        "Gemma3ForCausalLM",
        {"layer_types": LOCAL_FIRST, "sliding_window": 4, "head_dim": 6, "num_key_value_heads": 2}
        | {"query_pre_attn_scalar": 6, "rope_parameters": BOTH_ROPES},
        {"attention_window": 4, "window_pattern": "LG", "d_head": 6, "n_kv_heads": 2}
        | {"rotary_base": 500.0, "rotary_local_base": 50.0, "qk_norm": "rms", "ffn": "geglu"}
        | {"norm_order": "around", "embedding_scale": "sqrt"},
        LLAMA | GROUPED | AROUND | HEAD_NORMS,
        added_gain=1.0,
    ),
    Published(
        "GraniteForCausalLM",
        {"attention_multiplier": 0.4, "logits_scaling": 3.0},
        {"attention_scale": 2.5, "output_scale": 3.0},
    ),
    Published(
        "Gemma2ForCausalLM",
        rope(500.0)
        | {"layer_types": LOCAL_FIRST, "sliding_window": 3, "head_dim": 6}
        | {"num_key_value_heads": 2, "query_pre_attn_scalar": 9, "tie_word_embeddings": True}
        | {"attn_logit_softcapping": 0.7, "final_logit_softcapping": 1.5},
        {"rotary_base": 500.0, "d_head": 6, "attention_window": 3, "window_pattern": "LG"}
        | {"ffn": "geglu", "norm_order": "around", "embedding_scale": "sqrt"}
        | {"attention_scale": 3.0, "score_cap": 0.7, "logit_cap": 1.5, "tie_embeddings": True}
        | {"n_kv_heads": 2},
        LLAMA | GROUPED | AROUND,
        added_gain=1.0,
    ),
    Published(
        "GptOssForCausalLM",
        rope(500.0)
        | {"layer_types": LOCAL_FIRST, "sliding_window": 3, "head_dim": 6}
        | {"num_key_value_heads": 2, "num_local_experts": 2},
        {"rotary_base": 500.0, "sinks": True, "norm_eps": 1e-5, "d_head": 6, "n_kv_heads": 2}
        | {"bias": dict.fromkeys(("query", "key", "value", "output"), True)}
        | {"attention_window": 3, "window_pattern": "LG"},
        LLAMA | GROUPED | {"0.function": "self_attn"},
        prepare=without_experts,
    ),
    Published(
        "LlamaForCausalLM",
        {"num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True},
        {"n_kv_heads": 2, "bias": True},
        LLAMA | GROUPED,
    ),
    Published(
        "MistralForCausalLM",
        {"num_key_value_heads": 1, "sliding_window": None, "head_dim": 6},
        {"n_kv_heads": 1, "d_head": 6},
        LLAMA | GROUPED,
    ),
    Published(
        "Qwen2ForCausalLM",
        {"num_key_value_heads": 2},
        {"n_kv_heads": 2, "bias": {"query": True, "key": True, "value": True}},
        LLAMA | GROUPED,
    ),
    Published(
        "Qwen2ForCausalLM",
        {"num_key_value_heads": 4},
        {"bias": {"query": True, "key": True, "value": True, "ffn": False}},
    ),
    Published(
        "Qwen3ForCausalLM",
        {"num_key_value_heads": 2, "head_dim": 6},
        {"n_kv_heads": 2, "d_head": 6, "qk_norm": "rms"},
        LLAMA | GROUPED | HEAD_NORMS,
    ),
    Published(
        "GPTNeoXForCausalLM",
        {"use_parallel_residual": False, **rope(100.0, partial_rotary_factor=0.5)},
        OF_NEOX,
        NEOX,
        OUTSIDE_NEOX,
        "gpt_neox.layers.",
        split=of_heads,
    ),
    Published(
        "GPTNeoXForCausalLM",
        rope(100.0, partial_rotary_factor=0.5),
        {**OF_NEOX, "block": "parallel", "parallel_norm": "separate"},
        NEOX,
        OUTSIDE_NEOX,
        "gpt_neox.layers.",
        split=of_heads,
    ),
    Published(
        "GPTJForCausalLM",
        {"rotary_dim": 2, "n_inner": 20, "intermediate_size": ...},
        {"norm": "layer", "ffn": "gelu", "bias": {"ffn": True}, "head_bias": True}
        | {"block": "parallel", "rotary_fraction": 0.5, "rotary_layout": "interleaved"},
        GptJ.layer,
        OUTSIDE_GPTJ,
        "transformer.h.",
    ),
    Published(
        "GPT2LMHeadModel",
        {"n_inner": 20, "intermediate_size": ...}
        | dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        {"norm": "layer", "positions": "learned", "ffn": "gelu", "bias": True},
        Gpt2.layer,
        {**OUTSIDE_GPTJ, "positions.tables.0": "transformer.wpe"},
        "transformer.h.",
        split=transposed,
    ),
    Published(
        "GraniteForCausalLM",
        {"num_key_value_heads": 2, "embedding_multiplier": 3.0, "residual_multiplier": 0.22}
        | {"attention_multiplier": 0.3, "logits_scaling": 2.5},
        {"n_kv_heads": 2, "embedding_scale": 3.0, "residual_scale": 0.22}
        | {"attention_scale": 1 / 0.3, "output_scale": 2.5},
        LLAMA | GROUPED,
    ),
    Published(
        "Olmo2ForCausalLM",
        {"rms_norm_eps": 1e-6},
        {"norm_order": "after", "qk_norm": "rms", "qk_norm_over": "all"},
        LLAMA | AROUND | HEAD_NORMS,
    ),
    Published(
        "CohereForCausalLM",
        {**rope(500.0), "logit_scale": 0.25},
        {"block": ["attention+ffn"], "norm": "layer", "norm_bias": False}
        | {"rotary_base": 500.0, "rotary_layout": "interleaved", "output_scale": 4.0},
    ),
    Published(
        "NanoChatForCausalLM",
        {"final_logit_softcapping": 1.5},
        {"ffn": "relu2", "norm_affine": False, "final_norm": "plain", "embedding_norm": "plain"}
        | {"qk_norm": "rms", "qk_norm_place": "after", "qk_norm_gain": False}
        | {"rotary_layout": "halves-clockwise", "logit_cap": 1.5},
        LLAMA | {"1.function.input": "mlp.fc1", "1.function.output": "mlp.fc2"},
    ),
]  # fmt: skip
NAMES = [f"{number} {row.title}" for number, row in enumerate(PUBLISHED)]
tried = pytest.mark.parametrize("row", PUBLISHED, ids=NAMES)
in_both = pytest.mark.parametrize("dtype", LIMITS, ids=["lifted", "as shipped"])


class Lifted(TorchFunctionMode):
    """Computes in float64 what a class computes in float32: its norms, angles and softmax."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        wide = {torch.float32: torch.float64, Tensor.float: Tensor.double}
        args = [wide[each] if each is torch.float32 else each for each in args]
        kwargs = {
            name: wide[each] if each is torch.float32 else each
            for name, each in (kwargs or {}).items()
        }
        return wide.get(function, function)(*args, **kwargs)


def lifted(dtype):
    return Lifted() if dtype == torch.float64 else nullcontext()


@cache
def models(number, seed, dtype):
    """Build a random model of a class, norms and biases included, and ours."""
    import transformers

    row = PUBLISHED[number]
    kind = getattr(transformers, row.title)
    settings = {key: each for key, each in (SETTINGS | row.settings).items() if each is not ...}
    with lifted(dtype):
        config = kind.config_class(**settings)
        theirs = kind._from_config(config, attn_implementation="eager")
        row.prepare(theirs)
        theirs = theirs.to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            # Norms behind small embeddings would amplify the rounding of float32 in gradients.
            deviation = 1.0 if "embed" in name or "wte" in name else 0.2
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * deviation)
            if "norm" in name.lower() and name.endswith("weight"):
                parameter.add_(1.0 - row.added_gain)
        config = ModelConfig(**{**FIELDS, **row.fields})
        ours = compose(resolve_model(config, vocab_size=VOCAB_SIZE, context=CONTEXT)).to(dtype)
        shapes = {name: each.shape for name, each in ours.named_parameters()}
        ours.load_state_dict(row.ours(theirs.named_parameters(), shapes, row.added_gain))
    return theirs, ours.eval()


def draw(seed):
    """Draw tokens, and a mask of padding at the left of the first row."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCAB_SIZE, (2, LENGTH), generator=generator)
    return tokens, torch.arange(LENGTH) >= torch.tensor([[3], [0]])


def logits_of_class(model, tokens, mask, pieces=(LENGTH,)):
    """Compute the logits of a class, in pieces behind its cache if there are several."""
    from transformers import DynamicCache

    positions = (mask.cumsum(1) - 1).clamp_min(0)
    kept = {"past_key_values": DynamicCache(config=model.config)} if len(pieces) > 1 else {}
    found, end = [], 0
    for size in pieces:
        start, end = end, end + size
        rest = {"attention_mask": mask[:, :end].long(), "position_ids": positions[:, start:end]}
        found.append(model(tokens[:, start:end], **rest, **kept, use_cache=bool(kept)).logits)
    return torch.cat(found, dim=1)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=LIMITS[expected.dtype])


def each(row):
    return ((seed, PUBLISHED.index(row)) for seed in SEEDS)


@tried
@in_both
@torch.no_grad()
def test_logits_are_those_of_the_class_with_and_without_a_cache(row, dtype):
    for seed, number in each(row):
        (theirs, ours), (tokens, _) = models(number, seed, dtype), draw(seed)
        real = torch.ones_like(tokens, dtype=torch.bool)
        with lifted(dtype):
            whole, cached = (
                logits_of_class(theirs, tokens, real, pieces) for pieces in ((LENGTH,), PIECES)
            )
        close(ours(tokens).logits, whole)
        cache = Cache(ours.config, 2, LENGTH, dtype)
        found = [ours(each, cache=cache).logits for each in tokens.split(PIECES, dim=1)]
        close(torch.cat(found, dim=1), cached)
        cache, step = Cache(ours.config, 2, LENGTH, dtype), Stepper(ours, 2)
        found = [ours.last_logits(tokens[:, :PROMPT], cache)]
        found += [step(tokens[:, place], cache) for place in range(PROMPT, LENGTH)]
        close(torch.stack(found, dim=1), cached[:, PROMPT - 1 :])


@tried
@in_both
@torch.no_grad()
def test_a_text_padded_at_its_left_has_the_logits_of_the_class(row, dtype):
    for seed, number in each(row):
        (theirs, ours), (tokens, mask) = models(number, seed, dtype), draw(seed)
        with lifted(dtype):
            whole, cached = (
                logits_of_class(theirs, tokens, mask, pieces) for pieces in ((LENGTH,), PIECES)
            )
        close(ours(tokens, mask).logits[mask], whole[mask])
        cache, pieces = (
            Cache(ours.config, 2, LENGTH, dtype),
            zip(tokens.split(PIECES, dim=1), mask.split(PIECES, dim=1), strict=True),
        )
        found = [ours(piece, real, cache=cache).logits for piece, real in pieces]
        close(torch.cat(found, dim=1)[mask], cached[mask])


@tried
@in_both
def test_gradients_of_all_weights_are_those_of_the_class(row, dtype):
    for seed, number in each(row):
        (theirs, ours), (tokens, _) = models(number, seed, dtype), draw(seed)
        real = torch.ones_like(tokens, dtype=torch.bool)
        with lifted(dtype):
            expected = gradients(theirs, logits_of_class(theirs, tokens, real), tokens)
        found = gradients(ours, ours(tokens).logits, tokens)
        expected = row.ours(expected, {name: each.shape for name, each in found.items()})
        for name, gradient in found.items():
            assert gradient.abs().max() > 0
            close(gradient, expected[name])


def gradients(model, logits, tokens):
    """Compute the gradients of the mean loss of the next tokens, by parameter."""
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def attention_of(dtype, **fields):
    """Build a model of one attention; return it, a state, and the context of random positions."""
    config = ModelConfig(**{**FIELDS, "n_layers": 1, "d_head": 8, **fields})
    model = compose(resolve_model(config, vocab_size=VOCAB_SIZE, context=CONTEXT)).to(dtype)
    x = torch.randn(2, LENGTH, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    layout = Layout.causal(torch.zeros(2, LENGTH, dtype=torch.long))
    return model.stack.block(0)[0].function, x.requires_grad_(), model.context(layout, dtype)


def randomised(module, dtype):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return module.to(dtype).eval(), dict(module.named_parameters())


def check_attention(ours, theirs, tensors, found, expected, x):
    """Compare outputs, and gradients of the input and of all weights, given ours by theirs."""
    close(found, expected)
    along = torch.randn_like(expected)
    of_ours = torch.autograd.grad(found, (x, *ours.parameters()), along)
    of_theirs = torch.autograd.grad(expected, (x, *theirs.values()), along)
    close(of_ours[0], of_theirs[0])
    of_theirs = tensors(dict(zip(theirs, of_theirs[1:], strict=True)))
    for (name, _), gradient in zip(ours.named_parameters(), of_ours[1:], strict=True):
        close(gradient, of_theirs[name].view_as(gradient))


CAUSAL = torch.full((LENGTH, LENGTH), -torch.inf).triu(1)


@in_both
def test_a_gate_by_element_is_that_of_qwen3_next(dtype):
    from transformers.models.qwen3_next import modeling_qwen3_next as published

    fields = {"n_kv_heads": 2, "qk_norm": "rms", "attention_gate": "element", "bias": True}
    ours, x, context = attention_of(dtype, **fields, rotary_fraction=0.5, rotary_base=100.0)
    config = published.Qwen3NextConfig(
        hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        attention_bias=True, attn_implementation="eager",
        **rope(100.0, partial_rotary_factor=0.5),
    )  # fmt: skip
    theirs, weights = randomised(published.Qwen3NextAttention(config, 0), dtype)

    def tensors(given):
        named = {}
        for kind in ("weight", "bias"):
            q, k, v, o = (given[f"{each}_proj.{kind}"] for each in "qkvo")
            queries, gates = (each.flatten(0, 1) for each in q.unflatten(0, (4, 2, 8)).unbind(1))
            named |= {f"queries.{kind}": queries, f"gate.{kind}": gates, f"output.{kind}": o}
            named[f"projection.{kind}"] = torch.stack([k, v])
        names = {"query_norm.weight": "q_norm.weight", "key_norm.weight": "k_norm.weight"}
        return named | {name: given[each] for name, each in names.items()}

    state = tensors(weights)
    gains = {name: 1.0 + state[name] for name in ("query_norm.weight", "key_norm.weight")}
    ours.load_state_dict(state | gains)
    with lifted(dtype):
        turns = published.Qwen3NextRotaryEmbedding(config)(x, torch.arange(LENGTH)[None])
        expected, _ = theirs(x, turns, CAUSAL.to(dtype))
    check_attention(ours, weights, tensors, ours(x, context), expected, x)
