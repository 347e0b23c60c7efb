"""Parameters of a model: persistent names, roles, and initial values by schemes with sources.

Initial values, model folders, checkpoints (sharded ones included), optimizer state and weight maps
identify a parameter by its persistent name. After a module is renamed, a row of ``RENAMED``
preserves the names of its parameters.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sublayer.config.model import VECTORS, Role
from sublayer.config.recipe import ResolvedModel
from sublayer.errors import ConfigError
from sublayer.model.blocks import Attention, CrossAttention, FeedForward, GateMaps, Stack
from sublayer.model.estimates import N_GATES
from sublayer.model.heads import Classifier, VocabularyHead
from sublayer.model.layers import Linear, SegmentTable, TokenEmbedding
from sublayer.model.positions import BucketTable, PositionTable

RENAMED: dict[str, str] = {}
"""Parts of module paths and their persistent forms, replaced in this order."""


def persistent_name(name: str) -> str:
    """Convert a parameter's name to its persistent name."""
    for path, persistent in RENAMED.items():
        name = re.sub(rf"(?<![^.]){re.escape(path)}(?![^.])", persistent, name)
    return name


def named_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Generate parameters with persistent names, each shared one once, like the module's method."""
    for name, parameter in module.named_parameters():
        yield persistent_name(name), parameter


def to_persistent(_: nn.Module, state: dict[str, Tensor], prefix: str, __: object) -> None:
    """Hook of ``state_dict`` that renames tensors to persistent names."""
    for name in [name for name in state if name.startswith(prefix)]:
        state[prefix + persistent_name(name.removeprefix(prefix))] = state.pop(name)


def from_persistent(model: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Hook of ``load_state_dict`` that renames tensors from persistent names."""
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


DRAWING_RULE = "seed and parameter name, 1"
"""Version of the draws: its number is increased whenever a seed would give other weights."""

_TABLES = (TokenEmbedding, PositionTable, SegmentTable, VocabularyHead, Classifier)
"""Modules whose ``weight`` has a row for each token, position or segment."""


@torch.no_grad()
def initialise(root: nn.Module, config: ResolvedModel, *, seed: int, prefix: str = "") -> None:
    """Set every parameter to its initial values (``initial_values``), in place.

    Parameters on the meta device are skipped.
    """
    scheme = _Scheme(root, config)
    for name, (module, attribute, parameter) in scheme.parameters.items():
        if not parameter.is_meta:
            generator = parameter_generator(seed, prefix + name)
            scheme.fill(parameter, module, attribute, generator)


@torch.no_grad()
def initial_values(
    root: nn.Module, config: ResolvedModel, *, seed: int, prefix: str = ""
) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Generate the initial values of all parameters, unsharded, on the CPU, one at a time.

    Matrices and tables are drawn by ``config.init``. Gains and slopes of swish are 1, slopes of
    dynamic tanhs and shares of the first attention's values 0.5, biases, offsets and sinks 0.

    Draws depend only on (seed, full name), not on other modules or their order. ``prefix`` is
    prepended to names; a shared parameter has its alphabetically first name.

    normal: N(0, init_std) (Radford et al. 2018, sec. 4.1). scaled: the same, with maps that end a
    residual branch divided by the root of the number of executed sub-layers of their stack (Radford
    et al. 2019, sec. 2.3). truncated: normal, truncated at two standard deviations, which leaves
    0.88 of the spread (Devlin et al. 2019). xavier: uniform within ``sqrt(6 / (d_in + d_out))``,
    with queries, keys and values as one matrix; tables and the output matrix N(0, 1 / width)
    (fairseq, as released). kaiming: attention N(0, 1 / d_model), feed-forward networks
    N(0, g / fan-in) with g = 1 at their input and 2 at their output, all else N(0, 1 / width of its
    input) (Macaron BERT, as released; for heads, which it lacks, a choice of ours). t5: see
    ``_Scheme.draw_t5``. The maps of an LSTM's gates are ordinary matrices, separate ones for
    xavier.
    """
    scheme = _Scheme(root, config)
    for name, (module, attribute, parameter) in scheme.parameters.items():
        value = torch.empty(parameter.shape, dtype=parameter.dtype, device="cpu")
        scheme.fill(value, module, attribute, parameter_generator(seed, prefix + name))
        yield parameter, value


class _Scheme:
    """Scheme ``config.init``, with the role of each parameter, on which its variance depends.

    ``parameters`` has every parameter once, with its module and attribute; a shared parameter is
    under its alphabetically first name.
    """

    def __init__(self, root: nn.Module, config: ResolvedModel) -> None:
        self.config = config
        names: dict[nn.Parameter, tuple[str, nn.Module, str]] = {}
        for path, module in root.named_modules(remove_duplicate=False):
            for attribute, value in module.named_parameters(recurse=False):
                name = persistent_name(f"{path}.{attribute}" if path else attribute)
                if value not in names or name < names[value][0]:
                    names[value] = name, module, attribute
        self.parameters = {
            name: (module, attribute, value) for value, (name, module, attribute) in names.items()
        }
        self.ffn_outputs: set[nn.Module] = set()
        self.n_queries: dict[nn.Module, int] = {}
        """Number of query maps, which come first, in each module of an attention's maps."""
        self.d_together: dict[nn.Module, int] = {}
        """Total output features of those maps, which are the fan-out in Xavier's scheme."""
        self.depths: dict[nn.Module, int] = {}
        """Number of executed sub-layers in a map's stack, those with shared weights included."""
        for module in root.modules():
            match module:
                case FeedForward():
                    self.ffn_outputs.add(module.output)
                case Attention() | CrossAttention():
                    self.n_queries |= module.stored_maps
                    d_together = sum(module.heads) * module.d_head
                    self.d_together |= dict.fromkeys(module.stored_maps, d_together)
                case Stack():
                    depth = len(module.slots) * len(module.sublayers)
                    self.depths |= dict.fromkeys(module.modules(), depth)

    def fill(
        self, value: Tensor, module: nn.Module, attribute: str, generator: torch.Generator
    ) -> None:
        """Fill ``value``, which has the shape of a module's parameter, with its initial value."""
        role = getattr(module, "roles", {}).get(attribute)
        initial: Mapping[str, float] = getattr(module, "initial", {})
        if role in VECTORS or attribute in initial:
            value.fill_(initial.get(attribute, 1.0 if role == "gain" else 0.0))
            return
        assert role is not None, f"{type(module).__name__} declares no role for its {attribute}"
        has_gates, is_table = isinstance(module, GateMaps), isinstance(module, _TABLES)
        init = self.config.init
        if init == "t5" and not has_gates:
            self.draw_t5(value, module, generator)
            return
        d_out, d_in = value.shape[-2:]
        if init == "xavier" and not is_table:
            d_out //= N_GATES if has_gates else 1
            bound = math.sqrt(6 / (d_in + self.d_together.get(module, d_out)))
            value.uniform_(-bound, bound, generator=generator)
            return
        std = self.config.init_std
        if is_table and init in ("xavier", "kaiming"):
            std = float(d_in**-0.5)
        elif init == "kaiming" and not has_gates:
            std = math.sqrt((2.0 if module in self.ffn_outputs else 1.0) / d_in)
        elif init == "scaled" and isinstance(module, Linear) and module.ends_branch:
            std /= math.sqrt(self.depths.get(module, 1))
        if init == "truncated":
            nn.init.trunc_normal_(value, std=std, a=-2 * std, b=2 * std, generator=generator)
        else:
            value.normal_(0.0, std, generator=generator)

    def draw_t5(self, weight: Tensor, module: nn.Module, generator: torch.Generator) -> None:
        """Draw a matrix or table as in T5, as released (Raffel et al. 2020, 1910.10683).

        ``weight`` belongs to ``module``. Source, the code of Mesh-TensorFlow:

        - queries N(0, 1 / (d_model d_head)), which replaces the scaling of scores; keys and values
          N(0, 1 / d_model); the map of an attention's output N(0, 1 / (heads d_head));
        - maps of feed-forward networks, gates and values each, and an untied output matrix:
          N(0, 1 / fan-in), truncated at two standard deviations without correction;
        - the embedding matrix N(0, 1);
        - the table of relative positions uniform within ``sqrt(6 / (heads + buckets))``, which is
          TensorFlow's default (Glorot), since the code sets none. Departure of transformers' class:
          N(0, 1 / d_model).

        Choices of ours for parameters that T5 lacks: queries of scores that are divided
        N(0, 1 / d_model); tables of learned positions and of segments like the embedding
        matrix, to which they are added; all other maps like those of a feed-forward network.
        """
        std = float(weight.shape[-1] ** -0.5)
        match module:
            case BucketTable():
                bound = math.sqrt(6 / sum(weight.shape))
                weight.uniform_(-bound, bound, generator=generator)
            case TokenEmbedding() | PositionTable() | SegmentTable():
                weight.normal_(0.0, 1.0, generator=generator)
            case _ if module in self.n_queries:
                is_scaled = self.config.attention_scale != "none"
                query_std = std if is_scaled else std * self.config.d_head**-0.5
                for index, matrix in enumerate(weight.view(-1, *weight.shape[-2:])):
                    is_query = index < self.n_queries[module]
                    matrix.normal_(0.0, query_std if is_query else std, generator=generator)
            case Linear() if module.ends_branch and module not in self.ffn_outputs:
                weight.normal_(0.0, std, generator=generator)
            case _:
                nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std, generator=generator)


@torch.no_grad()
def zero_padding(weight: Tensor, pad_id: int | None) -> None:
    """Zero the padding token's row of the embedding matrix.

    Inputs of padding have no gradient; with a tied output matrix the gradient of the softmax
    changes the row, as in fairseq.

    Raises ConfigError without a padding token.
    """
    if pad_id is None:
        raise ConfigError(
            "model.zero_padding = true, but the tokenizer has no padding token: leave the setting "
            "out"
        )
    weight[pad_id].zero_()


def parameter_generator(seed: int, name: str) -> torch.Generator:
    """Return the CPU generator of a parameter's initial values.

    It depends only on both arguments. PyTorch's CPU generator uses the lower 32 bits of its seed,
    which the hash mixes.
    """
    purpose = f"initial values {seed} {name}"
    digest = hashlib.blake2b(purpose.encode(), digest_size=8).digest()
    # The seed must be within the range of int64.
    number = int.from_bytes(digest, "little") >> 1
    return torch.Generator().manual_seed(number)
