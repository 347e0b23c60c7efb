"""Random small checkpoints as fairseq writes them, and its equations written out."""

import argparse
import math
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear

PAD, END = 1, 2
Weights = dict[str, Tensor]
Change = Callable[[Weights], Weights]


@dataclass(frozen=True)
class Shape:
    """A model's sizes and its kind."""

    vocab_size: int = 23
    d_model: int = 12
    n_heads: int = 3
    d_ff: int = 7
    n_encoder: int = 2
    n_decoder: int = 3
    is_macaron: bool = False
    is_pre_norm: bool = True
    is_tied: bool = True
    has_final_norm: bool = True


MACARON = Shape(d_model=10, n_heads=2, is_macaron=True)
PLAIN = Shape(d_model=10, n_heads=2)


def draw(shape: Shape, seed: int = 0) -> Weights:
    """Draw every weight in float64, under the names of fairseq's newest version."""
    d_model, found = shape.d_model, {}
    generator = torch.Generator().manual_seed(seed)

    def add(name: str, *sizes: int, centre: float = 0.0) -> None:
        found[name] = centre + 0.3 * torch.randn(sizes, generator=generator, dtype=torch.float64)

    def add_norm(name: str) -> None:
        add(f"{name}.weight", d_model, centre=1.0)
        add(f"{name}.bias", d_model)

    def add_linear(name: str, d_in: int, d_out: int) -> None:
        add(f"{name}.weight", d_out, d_in)
        add(f"{name}.bias", d_out)

    add("encoder.embed_tokens.weight", shape.vocab_size, d_model)
    if not shape.is_tied:
        add("decoder.output_projection.weight", shape.vocab_size, d_model)
    for side, n_layers in (("encoder", shape.n_encoder), ("decoder", shape.n_decoder)):
        for layer in range(n_layers):
            start = f"{side}.layers.{layer}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    add_linear(f"{start}.{attention}.{part}", d_model, d_model)
                add_norm(f"{start}.{attention}_layer_norm")
            for half in ("macaron_", "")[1 - shape.is_macaron :]:
                add_linear(f"{start}.{half}fc1", d_model, shape.d_ff)
                add_linear(f"{start}.{half}fc2", shape.d_ff, d_model)
                add_norm(f"{start}.{half or 'final_'}layer_norm")
        if shape.is_pre_norm and shape.has_final_norm:
            add_norm(f"{side}.layer_norm")
    return found


def as_newest(weights: Weights) -> Weights:
    """Return the newest version's state dict: one table under three names, split projections."""
    table = weights["encoder.embed_tokens.weight"]
    found = {
        "encoder.version": torch.tensor([3.0]),
        "decoder.version": torch.tensor([3.0]),
        **weights,
    }
    found["decoder.embed_tokens.weight"] = table
    found.setdefault("decoder.output_projection.weight", table)
    return found


def as_fork(weights: Weights) -> Weights:
    """Return the state dict of Macaron Net's fork of 0.6: fused projections, norms by number."""
    numbers = {"self_attn_layer_norm": 0, "final_layer_norm": 1, "macaron_layer_norm": 2}
    found = {
        f"{side}.embed_positions._float_tensor": torch.zeros(1) for side in ("encoder", "decoder")
    }
    found |= {f"{side}.version": torch.tensor([2.0]) for side in ("encoder", "decoder")}
    for name, tensor in weights.items():
        start, _, kind = name.rpartition(".")
        stem, _, last = start.rpartition(".")
        if last == "q_proj":
            parts = [weights[f"{stem}.{letter}_proj.{kind}"] for letter in "qkv"]
            found[f"{stem}.in_proj_{kind}"] = torch.cat(parts)
        elif name.startswith("encoder.layers") and last in numbers:
            found[f"{stem}.layer_norms.{numbers[last]}.{kind}"] = tensor
        elif name == "decoder.output_projection.weight":
            found["decoder.embed_out"] = tensor
        elif last not in ("k_proj", "v_proj"):
            found[name] = tensor
    found["decoder.embed_tokens.weight"] = weights["encoder.embed_tokens.weight"]
    return found


def settings(shape: Shape, **changed: Any) -> argparse.Namespace:
    """Return the settings as an architecture of fairseq fills them, and some of no account."""
    sizes = {
        "embed_dim": shape.d_model,
        "ffn_embed_dim": shape.d_ff,
        "attention_heads": shape.n_heads,
        "normalize_before": shape.is_pre_norm,
        "learned_pos": False,
        "embed_path": None,
    }
    fields = {
        "arch": "transformer_iwslt_de_en",
        **{f"{side}_{name}": sizes[name] for side in ("encoder", "decoder") for name in sizes},
        "encoder_layers": shape.n_encoder,
        "decoder_layers": shape.n_decoder,
        "decoder_input_dim": shape.d_model,
        "decoder_output_dim": shape.d_model,
        "share_all_embeddings": shape.is_tied,
        "share_decoder_input_output_embed": shape.is_tied,
        "adaptive_softmax_cutoff": None,
        "no_token_positional_embeddings": False,
        "dropout": 0.3,
        "attention_dropout": 0.1,
        "relu_dropout": 0.2,
        "max_source_positions": 64,
        "max_target_positions": 48,
        "lr": [0.0015],
    }
    if shape.is_macaron:
        fields["macaron"] = "new"
    return argparse.Namespace(**{**fields, **changed})


def save_fork(path: Path, weights: Weights, args: argparse.Namespace | None) -> None:
    """Save as fairseq 0.6 did: torch's file of before 1.6, with meters and optimizer state."""
    module = types.ModuleType("fairseq.meters")
    meters = OrderedDict()
    for name in ("AverageMeter", "TimeMeter", "StopwatchMeter"):
        kind = type(name, (), {"__module__": module.__name__})
        setattr(module, name, kind)
        meters[name] = kind()
        meters[name].sum = 1.5
    moments = {number: {"step": 7, "exp_avg": torch.ones(2)} for number in range(3)}
    content = {
        "args": args,
        "model": OrderedDict(weights),
        "optimizer_history": [{"criterion_name": "LabelSmoothed", "num_updates": 7}],
        "extra_state": {"train_iterator": {"epoch": 2}, "val_loss": 4.5, "train_meters": meters},
        "last_optimizer_state": {"state": moments, "param_groups": [{"lr": 0.001}]},
    }
    with patch.dict(sys.modules, {"fairseq": types.ModuleType("fairseq"), module.__name__: module}):
        torch.save(content, path, _use_new_zipfile_serialization=False)


def save_newest(path: Path, weights: Weights, model: Any) -> None:
    """Save as fairseq 0.12 does: ``args`` empty, the settings of the model in ``cfg``."""
    cfg = {"_name": None, "model": model, "task": {"_name": "translation"}}
    content = {"args": None, "cfg": cfg, "model": weights, "extra_state": {"metrics": {}}}
    torch.save({**content, "last_optimizer_state": {}}, path)


def saved(path: Path, shape: Shape = PLAIN, change: Change = dict, **changed: Any) -> Path:
    """Save a random model of the fork, altered as asked, and return the file."""
    save_fork(path / "checkpoint_best.pt", change(as_fork(draw(shape))), settings(shape, **changed))
    return path / "checkpoint_best.pt"


def reference(weights: Weights, shape: Shape, source: Tensor, target: Tensor) -> Tensor:
    """Compute the logits by fairseq's equations, in float64; ``PAD`` in the source is padding."""
    seen = source.ne(PAD)[:, None, :]  # [B, 1, S]
    causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
    memory = _stack(weights, shape, "encoder", source, seen)
    hidden = _stack(weights, shape, "decoder", target, causal, (memory, seen))
    output = weights.get("decoder.output_projection.weight", weights["encoder.embed_tokens.weight"])
    return linear(hidden, output)


def _stack(
    weights: Weights, shape: Shape, side: str, tokens: Tensor, mask: Tensor, source: Any = None
) -> Tensor:
    table = weights["encoder.embed_tokens.weight"]
    x = math.sqrt(shape.d_model) * table[tokens] + _positions(tokens, shape.d_model)
    for layer in range(shape.n_encoder if side == "encoder" else shape.n_decoder):
        at, n_heads = f"{side}.layers.{layer}", shape.n_heads

        def network(z: Tensor, at: str = f"{at}.") -> Tensor:
            return _linear(weights, f"{at}fc2", _linear(weights, f"{at}fc1", z).relu())

        parts = [
            ("self_attn_layer_norm", 1.0, partial(_attend, weights, f"{at}.self_attn", n_heads)),
            ("final_layer_norm", 0.5 if shape.is_macaron else 1.0, network),
        ]
        if shape.is_macaron:
            half = partial(network, at=f"{at}.macaron_")
            parts.insert(0, ("macaron_layer_norm", 0.5, half))
        if source is not None:
            read = partial(_attend, weights, f"{at}.encoder_attn", n_heads, read=source)
            parts.insert(-1, ("encoder_attn_layer_norm", 1.0, read))
        for name, step, function in parts:
            given = {"mask": mask} if name == "self_attn_layer_norm" else {}
            z = _norm(weights, f"{at}.{name}", x) if shape.is_pre_norm else x
            x = x + step * function(z, **given)
            if not shape.is_pre_norm:
                x = _norm(weights, f"{at}.{name}", x)
    has_norm = shape.is_pre_norm and shape.has_final_norm
    return _norm(weights, f"{side}.layer_norm", x) if has_norm else x


def _positions(tokens: Tensor, d_model: int) -> Tensor:
    real, half = tokens.ne(PAD), d_model // 2
    rate = math.log(10000) / (half - 1)
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32) * -rate)
    angles = (real.cumsum(1) + PAD)[..., None].float() * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).double() * real[..., None]


def _attend(
    weights: Weights, name: str, n_heads: int, x: Tensor, mask: Any = None, read: Any = None
) -> Tensor:
    memory, seen = read or (x, mask)
    inputs = {"q": x, "k": memory, "v": memory}
    q, k, v = (_linear(weights, f"{name}.{part}_proj", z) for part, z in inputs.items())
    q = q * (x.shape[-1] // n_heads) ** -0.5
    heads = zip(*(each.chunk(n_heads, -1) for each in (q, k, v)), strict=True)
    mixed = [(a @ b.mT).masked_fill(~seen, -math.inf).softmax(-1) @ c for a, b, c in heads]
    return _linear(weights, f"{name}.out_proj", torch.cat(mixed, dim=-1))


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    return linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _norm(weights: Weights, name: str, x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-5)
