"""Rows of the user's own: bases of the classes that a plugin adds to the tables of sublayer.

Each public class of a plugin that derives from a base here is a value of the base's ``field``,
called by the class's ``name``. Modules declare ``roles`` of parameters of their own: gains begin at
1 and biases at 0, or as ``initial`` says, and matrices as ``model.init`` says.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from sublayer.config.model import (
    ACTIVATIONS,
    FFNS,
    NORMS,
    POSITIONS,
    SUBLAYERS,
    Entry,
    Ffn,
    ModelConfig,
    NormScheme,
    PositionScheme,
    Role,
    Saved,
    SublayerKind,
)
from sublayer.config.optimizers import OPTIMIZERS, OptimizerTable, Shape
from sublayer.config.plugins import Put, Row
from sublayer.config.recipe import ResolvedModel
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import StackShape
from sublayer.errors import ConfigError
from sublayer.model import positions
from sublayer.model.blocks import FUNCTIONS
from sublayer.model.estimates import ESTIMATES, SublayerEstimate, Workload, count_parameters
from sublayer.model.kernels import elementwise
from sublayer.model.parameters import parameter_roles
from sublayer.model.transformer import build
from sublayer.training import optimizers
from sublayer.training.optimizers import WHOLE, Division

TINY: dict[str, Any] = {"n_layers": 2, "d_model": 16, "n_heads": 2, "norm": "rms"}
"""Fields of the model in which a row is tried."""
VOCABULARY = 13


class ModelRow(Row):
    """Row of a model's table."""

    roles: ClassVar[Mapping[str, Role]] = {}
    initial: ClassVar[Mapping[str, float]] = {}

    @classmethod
    def settings(cls) -> dict[str, Any]:
        """Return the fields of a model that uses the row."""
        return {cls.field.removeprefix("model."): cls.name}

    @classmethod
    def tiny(cls, **more: Any) -> ResolvedModel:
        """Resolve a small model with the row."""
        model = ModelConfig.model_validate({**TINY, **cls.settings(), **more})
        return resolve_model(model, vocab_size=VOCABULARY, context=16)

    @classmethod
    def try_out(cls) -> None:
        """Compare the parameters of a small model with their count, and compute its gradients."""
        model = build(config := cls.tiny(), seed=0).eval()
        parameter_roles(model)
        n_built = sum(parameter.numel() for parameter in model.parameters())
        if n_built != (counted := count_parameters(config).total):
            raise ConfigError(
                f"{cls.__name__}.n_parameters is wrong: a small model has {n_built:,} parameters, "
                f"and {counted:,} are counted"
            )
        logits = model(torch.arange(8)[None]).logits
        logits.sum().backward()
        if not logits.isfinite().all():
            raise ConfigError(f"{cls.__name__}: the logits of a small model are not finite")


class Activation(ModelRow, nn.Module):
    """Function of the hidden units ``[*rows, F]`` of a feed-forward network, of ``model.ffn``.

    If ``is_gated`` it acts on one of two products, and multiplies the other.
    """

    field, needs = "model.ffn", ("forward",)
    is_gated: ClassVar[bool] = False
    n_parameters: ClassVar[int] = 0
    """Number of its parameters in each network."""
    saves: ClassVar[Saved] = "input"
    """Tensor that it saves for the backward pass, for the estimate of memory."""

    @classmethod
    def add_to(cls, put: Put) -> None:
        """Add a network, its activation, and the function of that."""
        put(FFNS, cls.name, Ffn(cls.name, cls.is_gated, cls.n_parameters))
        put(ACTIVATIONS, cls.name, cls.saves)
        put(elementwise.FUNCTIONS, cls.name, cls)


class Positions(ModelRow, positions.Positions):
    """Position scheme of a stack, of ``model.positions``.

    It defines ``vectors`` added before blocks, ``rotations`` of queries and keys, or a
    ``score_bias`` that depends only on the distance of key and query, and says so.
    """

    field = "model.positions"
    adds_before: ClassVar[Literal["none", "first", "every"]] = "none"
    in_attention: ClassVar[Literal["nothing", "rotation", "bias"]] = "nothing"
    has_end: ClassVar[bool] = False
    """True where there is no position from ``max_len`` on."""
    even_width: ClassVar[Literal["embedding", "head"] | None] = None
    """The width that must be even."""

    @staticmethod
    def n_parameters(config: ResolvedModel, n_layers: int, width: int) -> int:
        """Count the parameters of a stack, by its blocks and its embeddings' width."""
        return 0

    @classmethod
    def add_to(cls, put: Put) -> None:
        """Add the scheme."""
        declared = {"vectors": cls.adds_before != "none"}
        declared |= {"rotations": cls.in_attention == "rotation"}
        declared |= {"score_bias": cls.in_attention == "bias"}
        for name, is_declared in declared.items():
            if is_declared == (getattr(cls, name) is getattr(positions.Positions, name)):
                lacks = "lacks the method" if is_declared else "has a method without effect,"
                raise ConfigError(f"{cls.__name__} {lacks} {name}: see adds_before, in_attention")
        row = PositionScheme(
            f"{cls.__module__}:{cls.__qualname__}",
            cls.adds_before,
            cls.in_attention,
            has_end=cls.has_end,
            even_width=cls.even_width,
            n_parameters=cls.n_parameters,
        )
        put(POSITIONS, cls.name, row)


class Norm(ModelRow, nn.Module):
    """Norm of the last axis, of ``model.norm``, built of a width, ``eps`` and ``affine``."""

    field, needs = "model.norm", ("__init__", "forward", "n_parameters")

    @staticmethod
    def n_parameters(width: int) -> int:
        """Count the parameters of an affine one."""
        raise NotImplementedError

    @classmethod
    def add_to(cls, put: Put) -> None:
        """Add the norm."""
        put(NORMS, cls.name, NormScheme(f"{cls.__module__}:{cls.__qualname__}", cls.n_parameters))


class Sublayer(ModelRow, nn.Module):
    """Function of a residual sub-layer, an entry of ``model.block``, built of a resolved model.

    ``forward`` maps ``x [B, T, D]`` and a ``Context`` to ``[B, T, D]``. One that ``attends_to``
    itself gives keys and values ``[B, H, T, K]`` to ``context.key_values.append``, unless that is
    None, and reads those that it returns.
    """

    field, needs = "model.block", ("__init__", "forward", "n_parameters", "n_products")
    attends_to: ClassVar[Literal["nothing", "itself"]] = "nothing"

    @staticmethod
    def n_parameters(config: ResolvedModel) -> int:
        """Count the parameters of one set of weights."""
        raise NotImplementedError

    @staticmethod
    def n_products(config: ResolvedModel, n_tokens: int) -> int:
        """Count the multiply-adds of matrix products over ``n_tokens`` tokens."""
        raise NotImplementedError

    @staticmethod
    def n_saved(config: ResolvedModel) -> int:
        """Count the numbers of a token saved for the backward pass, besides the input."""
        return config.d_model

    @classmethod
    def settings(cls) -> dict[str, Any]:
        """Return a block with the entry."""
        return {"block": ("attention", cls.name, "ffn")}

    @classmethod
    def add_to(cls, put: Put) -> None:
        """Add the kind, its class and its estimate."""
        title = cls.name.replace("-", " ").capitalize()
        put(SUBLAYERS, cls.name, SublayerKind(cls.attends_to, shared_as=None, title=title))
        put(FUNCTIONS, cls.name, lambda config, entry: cls(config))
        put(ESTIMATES, cls.name, lambda config, entry: _RowEstimate(config, entry, cls))


class _RowEstimate(SublayerEstimate):
    """Estimate of a plugin's sub-layer, by the counts of its class."""

    inputs = ()

    def __init__(self, config: ResolvedModel, entry: Entry, row: type[Sublayer]) -> None:
        super().__init__(config, entry, 0)
        self.row, self.n_backward = row, row.n_parameters(config)

    def n_parameters(self) -> int:
        return self.n_backward

    def n_products(self, stack: StackShape, n_tokens: int, n_memory: int) -> int:
        return self.row.n_products(self.config, n_tokens)

    def matrix_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ()

    def saved(self, step: Workload, stack: StackShape) -> int:
        return step.narrow * self.n_gradients(step, stack)

    def n_gradients(self, step: Workload, stack: StackShape) -> int:
        return step.n_tokens(stack) * self.row.n_saved(self.config)


class Optimizer(Row, OptimizerTable):
    """Table of an optimizer: its fields, and its ``kind``, a literal with its name as default."""

    field: ClassVar[str] = "optimizer.kind"
    needs: ClassVar[tuple[str, ...]] = ("state_axes", "build")

    def build(self, groups: list[dict[str, Any]], division: Division) -> optimizers.Optimizer:
        """Build the optimizer of parameter groups, with ``weight_decay`` each.

        ``lr`` of each group is set before every step. ``division`` adds up sums over shards.
        """
        raise NotImplementedError

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.name = cls.model_fields["kind"].default if "kind" in cls.model_fields else ""

    @classmethod
    def add_to(cls, put: Put) -> None:
        """Add the table."""
        put(OPTIMIZERS, cls.name, cls)

    @classmethod
    def try_out(cls) -> None:
        """Compare the states of a matrix and a bias, after two updates, with ``state_axes``."""
        table = cls.model_validate({"kind": cls.name})
        shapes: dict[Role, Shape] = {"matrix": (3, 2), "bias": (3,)}
        weights = {role: nn.Parameter(torch.ones(shape)) for role, shape in shapes.items()}
        options = {role: table.options(shape, role) for role, shape in shapes.items()}
        groups = [{"params": [weights[role]], **each} for role, each in options.items()]
        optimizer = table.build(groups, WHOLE)
        if not isinstance(optimizer, optimizers.Optimizer):
            raise ConfigError(
                f"{cls.__name__}.build returns no Optimizer of sublayer.training.optimizers"
            )
        for group in [*optimizer.param_groups, *optimizer.param_groups]:
            group["lr"] = 0.1
            for weight in weights.values():
                weight.grad = torch.ones_like(weight)
            optimizer.step()
        for role, weight in weights.items():
            states = optimizer.state[weight].items()
            built = {name: tuple(state.shape) for name, state in states}
            if built != (declared := table.state_shapes(shapes[role], role)):
                raise ConfigError(
                    f"{cls.__name__}.state_axes declares the states {declared} of a {role} of "
                    f"shape {shapes[role]}, and its step keeps {built}"
                )
            if torch.equal(weight, torch.ones_like(weight)):
                raise ConfigError(f"{cls.__name__}: its step leaves a {role} as it is")
