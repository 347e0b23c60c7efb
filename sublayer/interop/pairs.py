"""Tensors under two names: another system's and ours, read and written with every name and shape checked."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import stacks
from sublayer.errors import CheckpointError
from sublayer.model.build import compose
from sublayer.model.cost import n_copies
from sublayer.model.transformer import Transformer
from sublayer.model.weights import check_float, computed_dtype, usable


@dataclass(frozen=True)
class Pair:
    """One of our tensors, and theirs of which it is made: several stand one after another in our first axis.

    ``is_transposed``: theirs is ``[d_in, d_out]``, ours ``[d_out, d_in]``. In one of theirs, stacked maps stand in a
    row. ``is_row``: their vector is a matrix of one row.
    """

    theirs: tuple[str, ...]
    ours: str
    is_transposed: bool = False
    is_row: bool = False

    def shape(self, ours: torch.Size) -> list[int]:
        """Give the shape that each of theirs has where ours has shape ``ours``."""
        part = ours if len(self.theirs) == 1 else ours[1:]
        if self.ours.endswith(".bias"):
            return [1, part.numel()] if self.is_row else [part.numel()]
        return [part[-1], part.numel() // part[-1]] if self.is_transposed else list(part)

    def read(self, parts: list[Tensor], ours: torch.Size) -> Tensor:
        """Lay their tensors out as ours of shape ``ours``."""
        turned = [part.T if self.is_transposed else part for part in parts]
        return (turned[0] if len(turned) == 1 else torch.stack(turned)).reshape(ours).contiguous()

    def write(self, tensor: Tensor) -> dict[str, Tensor]:
        """Lay our tensor out as theirs, by name; each is a copy."""
        parts = [tensor] if len(self.theirs) == 1 else list(tensor.unbind())
        return {name: self._written(part) for name, part in zip(self.theirs, parts, strict=True)}

    def _written(self, part: Tensor) -> Tensor:
        if self.ours.endswith(".bias"):
            part = part.flatten()[None] if self.is_row else part.flatten()
        elif self.is_transposed:
            part = part.reshape(-1, part.shape[-1]).T
        return part.detach().clone(memory_format=torch.contiguous_format)


def shapes_of(config: ModelConfig) -> dict[str, torch.Size]:
    """Give the shape of each tensor of a resolved config's model."""
    with torch.device("meta"):
        return {name: tensor.shape for name, tensor in compose(config).state_dict().items()}


def read_pairs(
    found: Mapping[str, Tensor], pairs: Iterable[Pair], config: ModelConfig, *, title: str, file: str = "config.json"
) -> dict[str, Tensor]:
    """Make a model's tensors of another system's, which ``title`` names and ``file`` describes.

    They become float32, but where all are float64. Raises CheckpointError, naming the tensor, where one is missing, has
    another shape, is unknown, or holds anything but finite floating-point numbers.
    """
    _check_depth(config, len(found), file)
    pairs = list(pairs)
    shapes = shapes_of(config)
    names = [name for pair in pairs for name in pair.theirs]
    if missing := [name for name in names if name not in found]:
        raise CheckpointError(f"the weights lack {missing[0]}{_others(missing)}")
    if unknown := sorted(found.keys() - set(names)):
        raise CheckpointError(f"the weights hold {unknown[0]}{_others(unknown)}, which {title} has not")
    for pair in pairs:
        for name in pair.theirs:
            _check(name, found[name], pair.shape(shapes[pair.ours]), file)
    dtype = computed_dtype(found.values())
    return {
        pair.ours: pair.read([usable(name, found[name], dtype) for name in pair.theirs], shapes[pair.ours])
        for pair in pairs
    }


def assemble(
    found: Mapping[str, Tensor], pairs: Iterable[Pair], config: ModelConfig, *, title: str, file: str = "config.json"
) -> Transformer:
    """Build a model, in evaluation mode, of another system's tensors. Raises CheckpointError as ``read_pairs`` does."""
    weights = read_pairs(found, pairs, config, title=title, file=file)
    with torch.device("meta"):
        model = compose(config)
    model.load_state_dict(weights, assign=True)
    return model.eval()


def write_pairs(weights: Mapping[str, Tensor], pairs: Iterable[Pair]) -> dict[str, Tensor]:
    """Turn a model's tensors into another system's."""
    return {name: tensor for pair in pairs for name, tensor in pair.write(weights[pair.ours]).items()}


def strip_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Take a prefix off the names that have it. Raises CheckpointError where that makes two names one."""
    if twice := sorted(name for name in tensors if name.startswith(prefix) and name.removeprefix(prefix) in tensors):
        raise CheckpointError(f"the weights hold {twice[0]} and {twice[0].removeprefix(prefix)}: leave one of them out")
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def check_tied(found: Mapping[str, Tensor], copy: str, source: str) -> None:
    """Raise CheckpointError where both tensors are there and differ, though config.json ties them."""
    if copy in found and source in found and not torch.equal(found[copy], found[source]):
        raise CheckpointError(
            f"the weights hold {copy} that differs from {source}, but config.json ties them: "
            "set tie_word_embeddings to false there"
        )


def _check_depth(config: ModelConfig, n_tensors: int, file: str) -> None:
    """Raise CheckpointError where there are more blocks than tensors, before anything is made for each block."""
    n_blocks = sum(max(n_copies(config, stack, entry) for entry in stack.block) for stack in stacks(config))
    if n_blocks > n_tensors:
        raise CheckpointError(f"{file} says {n_blocks:,} blocks of weights, and the weights hold {n_tensors:,} tensors")


def _check(name: str, tensor: Tensor, expected: list[int], file: str) -> None:
    if list(tensor.shape) != expected:
        raise CheckpointError(f"{name} has shape {list(tensor.shape)}, {file} says {expected}")
    check_float(name, tensor)


def _others(names: list[str]) -> str:
    return f" and {len(names) - 1} other(s)" if len(names) > 1 else ""
