"""GPT-2's tensors, as transformers names and lays them out, to and from a model's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.errors import CheckpointError
from sublayer.interop.gpt2_config import is_tied
from sublayer.model.build import compose
from sublayer.model.positions import sinusoids
from sublayer.model.stack import slot

_PREFIX = "transformer."
_HEAD = "lm_head.weight"
_TABLE = "wte.weight"
_POSITIONS = "wpe.weight"
# Causal masks that older versions of transformers saved with the weights.
_IGNORED = (".attn.bias", ".attn.masked_bias")


@dataclass(frozen=True)
class Pair:
    """One tensor under both names; a matrix is ``[d_in, d_out]`` in GPT-2 and ``[d_out, d_in]`` in a model."""

    gpt2: str
    ours: str
    is_matrix: bool = False

    def shape(self, ours: torch.Size) -> list[int]:
        """Give the shape that GPT-2's tensor has where the model's has shape ``ours``; stacked maps stand in a row."""
        if self.is_matrix:
            return [ours[-1], ours.numel() // ours[-1]]
        return [ours.numel()] if self.gpt2.endswith(".bias") else list(ours)

    def read(self, tensor: Tensor, ours: torch.Size) -> Tensor:
        """Lay GPT-2's tensor out as a model's of shape ``ours``."""
        return (tensor.T if self.is_matrix else tensor).reshape(ours).contiguous()

    def write(self, tensor: Tensor) -> Tensor:
        """Lay a model's tensor out as GPT-2's."""
        if self.is_matrix:
            return tensor.reshape(-1, tensor.shape[-1]).T
        return tensor.flatten() if self.gpt2.endswith(".bias") else tensor


def read_weights(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Turn GPT-2's tensors, with or without the prefix ``transformer.``, into a model's; halves become float32.

    Raises CheckpointError, naming the tensor, where one is missing, has another shape, or is unknown.
    """
    found = {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items() if not name.endswith(_IGNORED)}
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in compose(config).state_dict().items()}
    pairs = [*_pairs(config), Pair(_POSITIONS, "positions.tables.0.weight")]
    if config.tie_embeddings:
        _check_tied(found)
        found.pop(_HEAD, None)
    else:
        pairs.append(Pair(_HEAD, "head.weight"))
    if missing := [pair.gpt2 for pair in pairs if pair.gpt2 not in found]:
        raise CheckpointError(f"the weights lack {missing[0]}{_others(missing)}")
    if unknown := sorted(found.keys() - {pair.gpt2 for pair in pairs}):
        raise CheckpointError(f"the weights hold {unknown[0]}{_others(unknown)}, which GPT-2's language model has not")
    for pair in pairs:
        _check(pair, found[pair.gpt2], shapes[pair.ours])
    return {pair.ours: pair.read(_at_least_float32(found[pair.gpt2]), shapes[pair.ours]) for pair in pairs}


def write_weights(weights: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Turn a model's tensors into GPT-2's, writing out what GPT-2 always has (see ``gpt2_config.write_config``)."""
    written = {pair.gpt2: pair.write(_given(weights, pair)) for pair in _pairs(config)}
    table = weights["embedding.weight"]
    if not is_tied(config):
        written[_HEAD] = weights.get("head.weight", table)
    if config.embedding_scale == "sqrt":
        # As the model computes it: one rounding, of the product.
        written[_TABLE] = table * table.shape[1] ** 0.5
    written[_POSITIONS] = _position_table(weights, config)
    return {
        name if name == _HEAD else _PREFIX + name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in written.items()
    }


def _pairs(config: ModelConfig) -> Iterator[Pair]:
    yield Pair(_TABLE, "embedding.weight")
    for layer in range(config.n_layers):
        attention, ffn = (
            f"decoder.sublayers.{place}.{slot(config, layer, name)}" for place, name in enumerate(("attention", "ffn"))
        )
        yield from _norm(f"h.{layer}.ln_1", f"{attention}.norm")
        yield from _linear(f"h.{layer}.attn.c_attn", f"{attention}.function.projection")
        yield from _linear(f"h.{layer}.attn.c_proj", f"{attention}.function.output")
        yield from _norm(f"h.{layer}.ln_2", f"{ffn}.norm")
        yield from _linear(f"h.{layer}.mlp.c_fc", f"{ffn}.function.input")
        yield from _linear(f"h.{layer}.mlp.c_proj", f"{ffn}.function.output")
    yield from _norm("ln_f", "final_norm")


def _norm(gpt2: str, ours: str) -> Iterator[Pair]:
    yield Pair(f"{gpt2}.weight", f"{ours}.weight")
    yield Pair(f"{gpt2}.bias", f"{ours}.bias")


def _linear(gpt2: str, ours: str) -> Iterator[Pair]:
    yield Pair(f"{gpt2}.weight", f"{ours}.weight", is_matrix=True)
    yield Pair(f"{gpt2}.bias", f"{ours}.bias")


def _given(weights: Mapping[str, Tensor], pair: Pair) -> Tensor:
    """The model's tensor, or the one without effect where it has none: gain 1, offset and bias 0."""
    if pair.ours in weights:
        return weights[pair.ours]
    table = weights["embedding.weight"]
    if ".norm." in pair.ours or pair.ours.startswith("final_norm"):
        return table.new_ones(table.shape[1]) if pair.ours.endswith(".weight") else table.new_zeros(table.shape[1])
    assert pair.ours.endswith(".bias"), f"{pair.ours} is missing from the model"
    return table.new_zeros(weights[pair.ours.removesuffix(".bias") + ".weight"].shape[:-1])


def _position_table(weights: Mapping[str, Tensor], config: ModelConfig) -> Tensor:
    if config.positions == "learned":
        return weights["positions.tables.0.weight"]
    assert config.max_len is not None, "the config is not resolved"
    dtype = weights["embedding.weight"].dtype
    if config.positions == "sinusoidal":
        return sinusoids(torch.arange(config.max_len), d_model=config.d_model, dtype=dtype)
    return torch.zeros(config.max_len, config.d_model, dtype=dtype)


def _check_tied(found: Mapping[str, Tensor]) -> None:
    if _HEAD in found and _TABLE in found and not torch.equal(found[_HEAD], found[_TABLE]):
        raise CheckpointError(
            f"the weights hold an {_HEAD} that differs from {_TABLE}, but config.json ties them: "
            "set tie_word_embeddings to false there"
        )


def _check(pair: Pair, tensor: Tensor, ours: torch.Size) -> None:
    if list(tensor.shape) != pair.shape(ours):
        raise CheckpointError(f"{pair.gpt2} has shape {list(tensor.shape)}, config.json says {pair.shape(ours)}")
    if not tensor.is_floating_point():
        raise CheckpointError(f"{pair.gpt2} holds {tensor.dtype}, not floating-point numbers")


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _others(names: list[str]) -> str:
    return f" and {len(names) - 1} other(s)" if len(names) > 1 else ""
