"""Parameters of a model: persistent names, roles, and initial values, schemes with their sources.

Initial values, model folders, checkpoints (sharded ones included), optimizer state and weight maps
identify a parameter by its persistent name. Where a module is renamed, a row of ``RENAMED`` keeps
its parameters' names.
"""

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sublayer.config.recipe import ResolvedModel
from sublayer.config.roles import Role
from sublayer.errors import ConfigError
from sublayer.model.blocks import N_GATES, Attention, CrossAttention, FeedForward, GateMaps, Stack
from sublayer.model.heads import Classifier, VocabularyHead
from sublayer.model.layers import (
    LayerNorm,
    Linear,
    RMSNorm,
    SegmentTable,
    StackedLinear,
    Swish,
    TokenEmbedding,
)
from sublayer.model.positions import BucketTable, PositionTable

RENAMED: dict[str, str] = {}
"""Paths of modules, or parts of them, and the persistent ones instead, replaced in this order."""


def persistent_name(name: str) -> str:
    """Return the persistent name of the parameter ``name``."""
    for path, persistent in RENAMED.items():
        name = re.sub(rf"(?<![^.]){re.escape(path)}(?![^.])", persistent, name)
    return name


def named_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Generate parameters with persistent names, shared ones once, as the module's method does."""
    for name, parameter in module.named_parameters():
        yield persistent_name(name), parameter


def use_persistent_names(model: nn.Module) -> None:
    """Make a model's ``state_dict`` and ``load_state_dict`` use persistent names."""
    model.register_state_dict_post_hook(_to_persistent)  # type: ignore[no-untyped-call]
    model.register_load_state_dict_pre_hook(_from_persistent)  # type: ignore[no-untyped-call]


def _to_persistent(_: nn.Module, state: dict[str, Tensor], prefix: str, __: object) -> None:
    for name in [name for name in state if name.startswith(prefix)]:
        state[prefix + persistent_name(name.removeprefix(prefix))] = state.pop(name)


def _from_persistent(model: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    names = {persistent_name(name): name for name, _value in model.named_parameters()}
    stored = [name for name in names if prefix + name in state]
    state.update({prefix + names[name]: state.pop(prefix + name) for name in stored})


def parameter_roles(model: nn.Module) -> dict[str, Role]:
    """Collect the roles of all parameters, by persistent name, from their modules."""
    roles: dict[str, Role] = {}
    for prefix, module in model.named_modules():
        declared = getattr(module, "roles", {})
        for name, _ in module.named_parameters(recurse=False):
            assert name in declared, (
                f"{type(module).__name__} declares no role for its parameter {name}"
            )
            full_name = f"{prefix}.{name}" if prefix else name
            roles[persistent_name(full_name)] = declared[name]
    return roles


def draw_t5(
    module: nn.Module,
    weight: Tensor,
    config: ResolvedModel,
    scales: "_Scales",
    generator: torch.Generator,
) -> None:
    """Draw a matrix or table as in T5, as released (Raffel et al. 2020, 1910.10683).

    ``weight`` belongs to ``module``. Source, the code of Mesh-TensorFlow:

    - queries N(0, 1 / (d_model d_head)): what their scores are not divided by; keys and values
      N(0, 1 / d_model); the map of an attention's output N(0, 1 / (heads d_head));
    - maps of feed-forward networks, gates and values each, and an output matrix that is not the
      table: N(0, 1 / fan-in), cut at two standard deviations without correction;
    - the embedding matrix N(0, 1);
    - the table of relative positions uniform within ``sqrt(6 / (heads + buckets))``: it is given no
      initialisation there, and Glorot's uniform one is TensorFlow's default. Departure of
      transformers' class: N(0, 1 / d_model).

    Choices where T5 has nothing: queries of scores that are divided by the root of d_head
    N(0, 1 / d_model), for which nothing is to be replaced; tables of learned positions and of
    segments as the embedding matrix, to which they are added; all other maps as those of a
    feed-forward network.
    """
    match module:
        case BucketTable():
            bound = math.sqrt(6 / sum(weight.shape))
            weight.uniform_(-bound, bound, generator=generator)
        case TokenEmbedding() | PositionTable() | SegmentTable():
            weight.normal_(0.0, 1.0, generator=generator)
        case _ if module in scales.n_queries:
            _draw_attention(weight, scales.n_queries[module], config, generator)
        case Linear() if module.ends_branch and module not in scales.ffn_outputs:
            weight.normal_(0.0, _fan_in_std(weight), generator=generator)
        case _:
            std = _fan_in_std(weight)
            bound = 2 * std
            nn.init.trunc_normal_(weight, std=std, a=-bound, b=bound, generator=generator)


def _draw_attention(
    weight: Tensor, n_queries: int, config: ResolvedModel, generator: torch.Generator
) -> None:
    std = _fan_in_std(weight)
    query_std = std
    if config.attention_scale == "none":
        query_std *= config.d_head**-0.5
    for index, matrix in enumerate(weight.view(-1, *weight.shape[-2:])):
        matrix.normal_(0.0, query_std if index < n_queries else std, generator=generator)


def _fan_in_std(weight: Tensor) -> float:
    return float(weight.shape[-1] ** -0.5)


DRAWING_RULE = "seed and parameter name, 1"
"""Version of the draws: its number grows when the same seed comes to give other weights."""

_TABLES = (TokenEmbedding, PositionTable, SegmentTable, VocabularyHead, Classifier)
"""Modules whose ``weight`` has a row for each token, position or segment."""


@dataclass(frozen=True)
class _Owned:
    """A parameter with its full name and its module, whose kind determines its initialisation."""

    name: str
    module: nn.Module
    attribute: str
    value: nn.Parameter


@torch.no_grad()
def initialise(root: nn.Module, config: ResolvedModel, *, seed: int, prefix: str = "") -> None:
    """Set every parameter to its initial values, in place; see ``initial_values``.

    Parameters on the meta device are skipped.
    """
    scales = _Scales(root)
    for owned in _parameters(root):
        if not owned.value.is_meta:
            _fill(
                owned.value, owned, config, parameter_generator(seed, prefix + owned.name), scales
            )


@torch.no_grad()
def initial_values(
    root: nn.Module, config: ResolvedModel, *, seed: int, prefix: str = ""
) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Generate the initial values of all parameters, unsharded, on the CPU, one at a time.

    Matrices and tables are drawn by ``config.init``. Gains and slopes of swish are 1, biases and
    offsets 0.

    Draws depend only on (seed, full name), not on other modules or their order. ``prefix`` is
    prepended to names; a shared parameter has its alphabetically first name.

    normal: N(0, init_std) (Radford et al. 2018, sec. 4.1). scaled: the same, and maps that end a
    residual branch divided by the root of the number of executed sub-layers of their stack (Radford
    et al. 2019, sec. 2.3). truncated: normal, cut at two standard deviations, which leaves 0.88 of
    the spread (Devlin et al. 2019). xavier: uniform within ``sqrt(6 / (d_in + d_out))``, queries,
    keys and values as one matrix, tables and the output matrix N(0, 1 / width) (fairseq, as
    released). kaiming: attention N(0, 1 / d_model), feed-forward networks N(0, g / fan-in) with g 1
    at their input and 2 at their output, all else N(0, 1 / width of its input) (Macaron BERT, as
    released; for heads, which it lacks, a choice). t5: see ``draw_t5``. The maps of an LSTM's gates
    are ordinary matrices, separate ones for xavier.
    """
    scales = _Scales(root)
    for owned in _parameters(root):
        value = torch.empty(owned.value.shape, dtype=owned.value.dtype, device="cpu")
        generator = parameter_generator(seed, prefix + owned.name)
        _fill(value, owned, config, generator, scales)
        yield owned.value, value


def _fill(
    value: Tensor,
    owned: "_Owned",
    config: ResolvedModel,
    generator: torch.Generator,
    scales: "_Scales",
) -> None:
    """Fill ``value``, of a parameter's shape, with the parameter's initial value."""
    if config.init == "t5" and _is_drawn(owned):
        draw_t5(owned.module, value, config, scales, generator)
        return
    match owned.module:
        case LayerNorm() | RMSNorm():
            value.fill_(1.0 if owned.attribute == "weight" else 0.0)
        case Swish():
            value.fill_(1.0)
        case GateMaps() if owned.attribute.startswith("weight"):
            _draw_gates(value, config, generator)
        case Linear() | StackedLinear() if owned.attribute == "weight":
            _draw_matrix(value, owned.module, config, generator, scales)
        case module if isinstance(module, _TABLES) and owned.attribute == "weight":
            _draw(value, _table_std(value, config), config, generator)
        case module:
            assert isinstance(module, (Linear, StackedLinear, GateMaps, *_TABLES)), (
                f"{type(module).__name__} has no initialisation for {owned.name}"
            )
            value.zero_()


@torch.no_grad()
def zero_padding(weight: Tensor, pad_id: int | None) -> None:
    """Zero the padding row of the embedding matrix.

    Padding positions have no gradient; with a tied output matrix the softmax's gradient changes the
    row, as in fairseq.

    Raises ConfigError without padding.
    """
    if pad_id is None:
        raise ConfigError(
            "model.zero_padding = true, but the tokenizer has no padding: leave it out"
        )
    weight[pad_id].zero_()


def parameter_generator(seed: int, name: str) -> torch.Generator:
    """Return the CPU generator of a parameter's initial values.

    It depends only on both arguments. PyTorch's CPU generator uses the lower 32 bits of its seed,
    which the hash mixes.
    """
    purpose = f"initial values {seed} {name}"
    digest = hashlib.blake2b(purpose.encode(), digest_size=8).digest()
    # Within the range of int64.
    number = int.from_bytes(digest, "little") >> 1
    return torch.Generator().manual_seed(number)


def _parameters(root: nn.Module) -> Iterator[_Owned]:
    """List every parameter once, a shared one by its alphabetically first name."""
    by_id: dict[int, _Owned] = {}
    for path, module in root.named_modules(remove_duplicate=False):
        for attribute, value in module.named_parameters(recurse=False):
            name = persistent_name(f"{path}.{attribute}" if path else attribute)
            known = by_id.get(id(value))
            if known is None or name < known.name:
                by_id[id(value)] = _Owned(name, module, attribute, value)
    yield from by_id.values()


def _is_drawn(owned: _Owned) -> bool:
    """Check whether a parameter is a matrix or table, which are drawn at random."""
    is_map = isinstance(owned.module, (Linear, StackedLinear, *_TABLES))
    return is_map and owned.attribute == "weight"


class _Scales:
    """Gain, depth and use of each map, which determine its variance."""

    def __init__(self, root: nn.Module) -> None:
        self.ffn_outputs: set[nn.Module] = set()
        self.n_queries: dict[nn.Module, int] = {}
        """Of an attention's stored maps: how many of each, the first ones, are to queries."""
        self.d_together: dict[nn.Module, int] = {}
        """The features that all of these make: the fan-out that Xavier's scheme sees."""
        self._depths: dict[nn.Module, int] = {}
        for submodule in root.modules():
            if isinstance(submodule, FeedForward):
                self.ffn_outputs.add(submodule.output)
            if isinstance(submodule, Attention | CrossAttention):
                self.n_queries |= submodule.stored_maps
                d_together = sum(submodule.heads) * submodule.d_head
                self.d_together |= dict.fromkeys(submodule.stored_maps, d_together)
            if isinstance(submodule, Stack):
                # Executed blocks count, also with shared weights.
                depth = len(submodule.slots) * len(submodule.sublayers)
                for module in submodule.modules():
                    self._depths[module] = depth

    def gain(self, module: nn.Module) -> float:
        """Return the variance factor of Kaiming initialisation."""
        return 2.0 if module in self.ffn_outputs else 1.0

    def depth(self, module: nn.Module) -> int:
        """Count the executed sub-layers of a map's stack; 1 outside stacks."""
        return self._depths.get(module, 1)


def _table_std(weight: Tensor, config: ResolvedModel) -> float:
    if config.init in ("xavier", "kaiming"):
        return float(weight.shape[1] ** -0.5)
    return config.init_std


def _draw(weight: Tensor, std: float, config: ResolvedModel, generator: torch.Generator) -> None:
    if config.init == "truncated":
        bound = 2 * std
        nn.init.trunc_normal_(weight, std=std, a=-bound, b=bound, generator=generator)
    else:
        weight.normal_(0.0, std, generator=generator)


def _draw_matrix(
    weight: Tensor,
    module: Linear | StackedLinear,
    config: ResolvedModel,
    generator: torch.Generator,
    scales: _Scales,
) -> None:
    d_out, d_in = weight.shape[-2:]
    if config.init == "xavier":
        bound = math.sqrt(6 / (d_in + scales.d_together.get(module, d_out)))
        weight.uniform_(-bound, bound, generator=generator)
        return
    std = config.init_std
    if config.init == "kaiming":
        std = math.sqrt(scales.gain(module) / d_in)
    if config.init == "scaled" and isinstance(module, Linear) and module.ends_branch:
        std /= math.sqrt(scales.depth(module))
    _draw(weight, std, config, generator)


def _draw_gates(weight: Tensor, config: ResolvedModel, generator: torch.Generator) -> None:
    n_units, d_in = weight.shape[0] // N_GATES, weight.shape[1]
    if config.init == "xavier":
        bound = math.sqrt(6 / (d_in + n_units))
        weight.uniform_(-bound, bound, generator=generator)
        return
    _draw(weight, config.init_std, config, generator)
