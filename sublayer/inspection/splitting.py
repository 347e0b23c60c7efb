"""Operator splitting: errors of Lie's, Strang's and other schemes, of equations and trained layers.

The equation is ``dx/dt = F(x) + G(x)``. A splitting follows F and G in turn, for fractions of a
step. Sources: Lu et al. 2019 (1906.02762), sec. 3 (its theorem is for exact flows: Bobylev and
Ohwada 2001); Yoshida 1990.

A pre-norm layer is a step of size 1 of that equation, where F sums its attention sub-layers and G
its feed-forward networks, norms and step sizes included (Lu et al. 2019, sec. 3). F and G are the
trained layer's, so that schemes and flow belong to one equation, whichever scheme the layer was
trained with. A translator's decoder has a third flow, cross-attention to a constant source, which
both schemes follow after the first.

A post-norm layer whose norms N have no gains is a step on the sphere of the fixed points of N:
``N(x + F(x))`` is an Euler step of ``dx/dt = P F(x)``, where P, the derivative of N, projects on
the tangent space. It holds up to the norm's eps. With gains N is not the identity on normed states,
a step of size 0 is not the identity, and there is no such equation.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.linalg import expm
from torch import Tensor, nn

from sublayer.config.model import POSITIONS, Attended, Entry
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import stacks
from sublayer.errors import ConfigError
from sublayer.inspection.states import Sample
from sublayer.model.blocks import Sublayer
from sublayer.model.context import Context, Layout, Memory
from sublayer.model.layers import LayerNorm, TokenEmbedding
from sublayer.model.transformer import Body, EncoderDecoder, Transformer
from sublayer.plot import dots, look, panels_svg

Array = NDArray[np.float64]
Field = Callable[[Array], Array]
"""``field(x)`` is dx/dt at x, ``[D]`` both."""
Flow = Callable[[Array, float], Array]
"""``flow(x, t)`` follows a field from x for a time t."""


@dataclass(frozen=True)
class Problem:
    """An equation in two parts, with the flows of the parts and of their sum."""

    name: str
    fields: Mapping[str, Field]
    """The parts, by the names ``F`` and ``G``."""
    flows: Mapping[str, Flow]
    """The flow of each part alone, by the same names, and of ``F + G``, by ``FG``."""
    start: Array
    """Starting point of the steps, ``[D]``."""


def linear_problem(*, seed: int = 0, size: int = 6, commute: bool = False) -> Problem:
    """Build ``F = A x``, ``G = B x`` of random matrices ``[size, size]``.

    Flows are exact, by matrix exponentials. ``commute``: A and B have equal eigenvectors, so that
    splittings of exact flows have no error.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    if commute:
        basis = rng.standard_normal((size, size))
        a, b = (basis @ np.diag(rng.uniform(-1, 1, size)) @ np.linalg.inv(basis) for _ in range(2))
    else:
        a, b = (_random_matrix(rng, size) for _ in range(2))
    name = "linear, of operators that commute" if commute else "linear"
    fields = {"F": partial(np.matmul, a), "G": partial(np.matmul, b)}
    flows = {"F": _linear_flow(a), "G": _linear_flow(b), "FG": _linear_flow(a + b)}
    return Problem(name, fields, flows, rng.standard_normal(size))


def _random_matrix(rng: np.random.Generator, size: int) -> Array:
    # Scaled to largest eigenvalues of about 1.
    matrix: Array = rng.standard_normal((size, size)) / math.sqrt(size)
    return matrix


def _linear_flow(matrix: Array) -> Flow:
    def flow(x: Array, t: float) -> Array:
        exponential: Array = expm(t * matrix)
        return exponential @ x

    return flow


def nonlinear_problem(*, seed: int = 0, size: int = 6) -> Problem:
    """Build ``F = tanh(A x)``, ``G = sin(B x)`` of random matrices ``[size, size]``.

    Its flows have no closed form: they are integrated in 64 Runge-Kutta steps.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    a, b = (_random_matrix(rng, size) for _ in range(2))
    # The joint flow follows the sum of F and G, not one after the other.
    fields: dict[str, Field] = {
        "F": lambda x: np.tanh(a @ x),
        "G": lambda x: np.sin(b @ x),
        "FG": lambda x: np.tanh(a @ x) + np.sin(b @ x),
    }
    flows = {name: partial(integrate, field) for name, field in fields.items()}
    return Problem("tanh and sine", fields, flows, rng.standard_normal(size))


State = TypeVar("State", Array, Tensor)


def integrate(field: Callable[[State], State], x: State, t: float, n_steps: int = 64) -> State:
    """Follow a field for a time t by the classical Runge-Kutta method of fourth order.

    x has any shape, and the field keeps it.
    """
    h = t / n_steps
    half = h / 2
    for _ in range(n_steps):
        k1 = field(x)
        k2 = field(x + half * k1)
        k3 = field(x + half * k2)
        k4 = field(x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


Substeps = Literal["exact", "midpoint", "Euler"]
"""The exact flow, a step of second order, and one of first order."""
Part = tuple[Literal["F", "G"], float]
"""Field that a part of a step follows, and its share of the step; negative: backwards."""

_ROUNDING = 1e-13
"""Errors up to this are only rounding."""

# Yoshida's coefficients: of the outer steps, and of the negative one between them.
_OUTER = 1 / (2 - 2 ** (1 / 3))
_INNER = 1 - 2 * _OUTER
_BETWEEN = (_OUTER + _INNER) / 2

SPLITTINGS: dict[str, tuple[Part, ...]] = {
    "Lie (Transformer)": (("F", 1.0), ("G", 1.0)),
    "Strang (Macaron)": (("G", 0.5), ("F", 1.0), ("G", 0.5)),
    "Strang, attention outside": (("F", 0.5), ("G", 1.0), ("F", 0.5)),
    "two half layers": (("F", 0.5), ("G", 0.5), ("F", 0.5), ("G", 0.5)),
    "Yoshida": (
        ("G", _OUTER / 2),
        ("F", _OUTER),
        ("G", _BETWEEN),
        ("F", _INNER),
        ("G", _BETWEEN),
        ("F", _OUTER),
        ("G", _OUTER / 2),
    ),
}
"""The parts of each scheme's step, in order: F is attention, G the feed-forward network."""


@dataclass(frozen=True)
class Errors:
    """Errors of a splitting's single step for each of ``steps``, and their log-log slopes."""

    splitting: str
    """A name of ``SPLITTINGS``."""
    substeps: Substeps
    """Integrator of each part."""
    steps: tuple[float, ...]
    """Sizes of the step, in units of time; ``slopes`` takes each for half of the one before."""
    errors: tuple[float, ...]
    """L2 distances from the true flow, one for each size."""

    @property
    def slopes(self) -> tuple[float, ...]:
        """Return the observed order of each halving of the step; NaN at rounding error.

        The local error of a scheme of order p falls as ``h ** (p + 1)``: with exact flows Lie's
        slope is 2, Strang's 3.
        """
        orders = []
        for coarse, fine in pairwise(self.errors):
            is_rounding = min(coarse, fine) <= _ROUNDING
            orders.append(math.nan if is_rounding else math.log2(coarse / fine))
        return tuple(orders)


STEPS = tuple(2.0**-k for k in range(3, 9))
"""Sizes of a step, each half of the one before: 1/8 to 1/256."""


def substep_flows(problem: Problem, substeps: Substeps) -> Mapping[str, Flow]:
    """Return the flow of each field, by name; an Euler step is that of a residual sub-layer."""
    if substeps == "exact":
        return problem.flows

    def flow(field: Field, x: Array, t: float) -> Array:
        if substeps == "Euler":
            return x + t * field(x)
        middle = x + t / 2 * field(x)
        return x + t * field(middle)

    return {name: partial(flow, field) for name, field in problem.fields.items()}


def step(parts: Sequence[Part], flows: Mapping[str, Flow], x: Array, h: float) -> Array:
    """Take one step of size ``h`` of a splitting: its parts in turn."""
    for name, share in parts:
        x = flows[name](x, share * h)
    return x


def local_errors(
    problem: Problem, splitting: str, substeps: Substeps, steps: Sequence[float] = STEPS
) -> Errors:
    """Measure the distance between a splitting's single step and the true flow, by step size.

    ``splitting`` is a name of ``SPLITTINGS``. Distances are L2.
    """
    flows = substep_flows(problem, substeps)
    errors = []
    for h in steps:
        error = _step_error(problem, splitting, flows, h)
        errors.append(float(np.linalg.norm(error)))
    return Errors(splitting, substeps, tuple(steps), tuple(errors))


def _step_error(problem: Problem, splitting: str, flows: Mapping[str, Flow], h: float) -> Array:
    parts = SPLITTINGS[splitting]
    approximate = step(parts, flows, problem.start, h)
    exact = problem.flows["FG"](problem.start, h)
    return approximate - exact


def leading_term(problem: Problem, splitting: str, h: float = 1e-4) -> Array:
    """Estimate the coefficient of h^2 in the error of Euler sub-steps, from two small steps.

    ``predicted_term`` computes this vector, ``[D]``, for a linear equation.
    """
    flows = substep_flows(problem, "Euler")
    half = h / 2
    coarse = _step_error(problem, splitting, flows, h) / h**2
    fine = _step_error(problem, splitting, flows, half) / half**2
    return 2 * fine - coarse  # Richardson: terms of third order cancel


def coefficients(splitting: str) -> dict[tuple[str, str], float]:
    """Compute the coefficients of h^2 in the error of Euler sub-steps, by pairs of parts.

    The coefficient of ``(P, Q)`` multiplies ``P'(x) Q(x)``. A fraction q of Q before a fraction p
    of P contributes p q; the exact flow has 1/2 for each pair. With F first, Lie's are -1/2 for (F,
    F) and (G, G), -1/2 for (F, G) and 1/2 for (G, F); Strang's last two are 0.
    """
    parts = SPLITTINGS[splitting]
    # Less the exact flow's 1/2 for each pair.
    products = {(later, earlier): -0.5 for later in "FG" for earlier in "FG"}
    for index, (later, later_share) in enumerate(parts):
        parts_before = parts[:index]
        for earlier, earlier_share in parts_before:
            products[later, earlier] += later_share * earlier_share
    return products


def predicted_term(problem: Problem, splitting: str) -> Array:
    """Compute the leading term for a linear equation, where ``P'(x) Q(x) = P(Q(x))``."""
    fields = problem.fields
    total: Array = np.zeros_like(problem.start)
    for (later, earlier), coefficient in coefficients(splitting).items():
        inner = fields[earlier](problem.start)
        total = total + coefficient * fields[later](inner)
    return total


def known_errors() -> list[dict[str, Any]]:
    """Measure the single-step errors of each splitting on equations with known flows."""
    rows = []
    for problem in (linear_problem(), nonlinear_problem(), linear_problem(commute=True)):
        # Where operators commute, only the sub-steps' errors remain.
        is_commuting = "commute" in problem.name
        for substeps in get_args(Substeps)[: 1 if is_commuting else None]:
            for splitting in SPLITTINGS:
                errors = local_errors(problem, splitting, substeps)
                values = {**asdict(errors), "slopes": list(errors.slopes)}
                rows.append({"equation": problem.name, **values})
    return rows


def leading_terms() -> list[dict[str, Any]]:
    """Compute the leading error term of each splitting, predicted and measured."""
    problem = linear_problem()
    terms = []
    for splitting in SPLITTINGS:
        products = coefficients(splitting).items()
        terms.append(
            {
                "splitting": splitting,
                "coefficients": {
                    f"{later}' {earlier}": value for (later, earlier), value in products
                },
                "predicted": predicted_term(problem, splitting).tolist(),
                "measured": leading_term(problem, splitting).tolist(),
            }
        )
    return terms


_HEIGHT = 3.0  # inches of 72 units
_PANELS = {"exact": "exact flows", "Euler": "Euler steps"}


def draw_errors(rows: Sequence[Mapping[str, Any]], equation: str = "linear") -> str:
    """Plot the error of a single step against its size, a line per splitting; return the SVG.

    Both axes are logarithmic. A row is a splitting of an ``equation`` with one kind of
    ``substeps``, and paired ``steps`` and ``errors``. Every equation has rows for both panels,
    exact flows and Euler steps.
    """
    drawn = [row for row in rows if row["equation"] == equation]

    def fill(panels: Any) -> Mapping[str, Any]:
        lines: dict[str, Any] = {}
        for axes, (substeps, label) in zip(panels, _PANELS.items(), strict=True):
            axes.set_xscale("log")
            axes.set_yscale("log")
            for index, row in enumerate(row for row in drawn if row["substeps"] == substeps):
                line = dots(axes, row["steps"], row["errors"], look(index))
                lines[row["splitting"]] = line
            axes.set_xlabel(f"size of a step, {label}")
        panels[0].set_ylabel("error of a step")
        return lines

    title = "Error of a single step of each splitting"
    return panels_svg(fill, len(_PANELS), _HEIGHT, title, is_shared=True)


_REFERENCE_STEPS = 16
_FIELDS: tuple[Attended, ...] = ("itself", "memory", "nothing")
"""Fields of a layer, in the order of Lie's step. Sub-layers that attend to the same states are one
field, of whichever kinds; the last, of networks of single tokens, is G."""


def check_flows(config: ResolvedModel, name: str) -> None:
    """Raise ConfigError where a model's layers are not measurable steps of a flow."""
    if config.kind == "lstm":
        raise ConfigError(
            f"{name} is an LSTM, and its layers replace their input instead of adding to it: only "
            "blocks are steps of a flow; name a decoder, encoder or encoder-decoder"
        )
    if not is_on_sphere(config):
        return
    post = f"{name} has model.norm_order = post"
    if config.norm_affine:
        raise ConfigError(
            f"{post} and norms with gains, which move a token even where a sub-layer adds nothing: "
            "its layers are not steps of a flow; name a pre-norm model, or one with "
            "model.norm_affine = false"
        )
    if POSITIONS[config.positions].adds_before == "every":
        raise ConfigError(
            f"{post} and model.positions = {config.positions}, which take the states off the "
            "sphere of its norms before each layer: its layers are not steps of a flow on it"
        )
    if max(shape.n_layers for shape in stacks(config)) == 1:
        raise ConfigError(
            f"{post} and one layer, whose input is not normed in this way: such models are "
            "measured from the second layer on"
        )


def is_on_sphere(config: ResolvedModel) -> bool:
    """Check whether a norm follows each step, so that states lie on a sphere."""
    return config.norm_order == "post" and config.norm != "none"


class LayerFlow:
    """A layer's sub-layers and norms in continuous time, for one batch.

    A field is the derivative of states ``[B, T, D]`` due to the sub-layers of some kinds.
    ``context`` returns the context of an entry of the block.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        block: Sequence[Sublayer],
        context: Callable[[int], Context],
    ) -> None:
        by_field: dict[Attended, list[tuple[Sublayer, Sublayer, Context]]]
        by_field = {name: [] for name in _FIELDS}
        normer = block[0]
        for index, (entry, sublayer) in enumerate(zip(entries, block, strict=True)):
            normer = normer if entry.is_joined and sublayer.shares_norm else sublayer
            by_field[entry.kind.attends_to].append((normer, sublayer, context(index)))
        self._by_field = {name: sublayers for name, sublayers in by_field.items() if sublayers}
        first = block[0]
        has_norm = not isinstance(first.norm, nn.Identity)
        self._norm = first.norm if has_norm and not first.is_pre_norm else None

    def follow(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Follow the sum of all fields for a unit of time, in 16 Runge-Kutta steps."""
        return integrate(self._velocity, x, 1.0, n_steps=_REFERENCE_STEPS)

    def lie(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Take Lie's step: an Euler step of each field, the feed-forward network's last."""
        return self._steps(x, [(name, 1.0) for name in self._by_field])

    def strang(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Take Strang's step: the others between two half steps of the feed-forward network."""
        halves = [(name, 0.5) for name in self._by_field if name == "nothing"]
        wholes = [(name, 1.0) for name in self._by_field if name != "nothing"]
        return self._steps(x, [*halves, *wholes, *halves])

    def _steps(self, x: Tensor, parts: Sequence[tuple[Attended, float]]) -> Tensor:
        for name, size in parts:
            x = x + size * self._field(name, x)
            if self._norm is not None:
                x = self._norm(x)
        return x

    def _field(self, name: Attended, x: Tensor) -> Tensor:
        total, values = torch.zeros_like(x), None
        for normer, sublayer, context in self._by_field[name]:
            if context.values is not None:
                # The first attention appends its values anew at every state.
                values = [*context.values] if values is None else values
                context = replace(context, values=values)
            normed = normer.norm(x) if normer.is_pre_norm else x
            branch, _ = sublayer.branch(normed, context)
            total = total + sublayer.step_size * branch
        return total

    def _velocity(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for name in self._by_field:
            total = total + self._field(name, x)
        if self._norm is None:
            return total
        if isinstance(self._norm, LayerNorm):
            total = total - total.mean(-1, keepdim=True)
        # A component along the state would leave the sphere.
        along = (total * x).sum(-1, keepdim=True) / x.square().sum(-1, keepdim=True)
        return total - along * x


@dataclass(frozen=True)
class LayerErrors:
    """Errors of an executed layer, numbered from 1, relative to the distance of its flow.

    Distances are L2, averaged over tokens; an error is a ratio of two averages, NaN where the
    flow's is 0.
    """

    stack: str
    """``encoder`` or ``decoder``."""
    layer: int
    lie: float
    """Distance between the end of Lie's step and the reference's, as a share of ``way``."""
    strang: float
    """The same for Strang's step."""
    own: float
    """The same for the layer's own output."""
    way: float
    """Distance from the layer's input to where its flows lead in a unit of time."""


@torch.inference_mode()
def measure_splitting(
    model: Transformer,
    sample: Sample,
    targets: Sample | None = None,
    *,
    batch_sequences: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[LayerErrors]:
    """Compare each layer's step, and Lie's and Strang's, with a fine integration of its flow.

    For a translator ``sample`` holds sources and ``targets`` the decoder's inputs; without them
    only the encoder's layers are measured. ``batch_sequences``, the rows per batch, changes speed
    and memory only; ``progress`` receives the tokens done and the total. The model has passed
    ``check_flows``.

    Lie's and Strang's steps have Euler sub-steps, as residual sub-layers are. The reference takes
    16 Runge-Kutta steps of fourth order. Everything is computed in float64 on a copy of the model,
    on the CPU. Returns the encoder's layers first, in the order of execution; for post-norm models
    without the first layer of each stack, whose input is not normed.
    """
    # Small differences of large states have few digits in float32.
    model = copy.deepcopy(model).to(device="cpu", dtype=torch.float64).eval()
    source_body = model.source if isinstance(model, EncoderDecoder) else model
    # The first layer's input is not on the norms' sphere.
    first_layer = 1 if is_on_sphere(model.config) else 0
    reader = _Measured(source_body, model.embedding, first_layer)
    writer = _Measured(model, model.embedding, first_layer)
    n_tokens = sample.n_tokens
    if targets is not None:
        n_tokens += targets.n_tokens
    for low in range(0, len(sample), batch_sequences):
        high = low + batch_sequences
        rows = sample[low:high]
        states = reader.add(rows)
        if targets is not None:
            memory = Memory(states, Layout.reading(rows.tokens, rows.mask))
            writer.add(targets[low:high], memory)
        if progress is not None:
            progress(reader.n_tokens + writer.n_tokens, n_tokens)
    if targets is None:
        return reader.errors()
    return [*reader.errors(), *writer.errors()]


class _Measured:
    """A stack's layers, with summed distances over tokens."""

    def __init__(self, body: Body, embedding: TokenEmbedding, first_layer: int) -> None:
        self._body = body
        self._embedding = embedding
        self._layers = range(first_layer, body.shape.n_layers)
        self._sums = torch.zeros(body.shape.n_layers, 4, dtype=torch.float64)
        self.n_tokens = 0

    def add(self, rows: Sample, memory: Memory | None = None) -> Float[Tensor, "B T D"]:
        """Compute the hidden states of rows, and add each layer's distances to the sums."""
        body = self._body
        n_layers = body.shape.n_layers
        layout = rows.layout(body.shape)
        every_state = range(n_layers + 1)
        hidden = body.states(
            self._embedding, rows.tokens, layout, memory=memory, capture=every_state
        )
        states = hidden.captured
        context = body.context(layout, torch.float64, memory)
        later = body.stack.after_first(states[0], context)
        real = rows.is_real
        for layer in self._layers:
            before = states[layer]
            after = states[layer + 1]
            # The first block's captured input contains its positions.
            if layer > 0:
                before = body.positions.add(before, layer, layout.positions)
            modules = body.stack.block(layer)
            block = [module for module in modules if isinstance(module, Sublayer)]
            of_layer = partial((context if layer == 0 else later).of, layer)
            flow = LayerFlow(body.shape.block, block, of_layer)
            reference = flow.follow(before)
            for index, end in enumerate((flow.lie(before), flow.strang(before), after, before)):
                differences = (end - reference)[real]  # [N, D]
                self._sums[layer, index] += differences.norm(dim=1).sum()
        self.n_tokens += rows.n_tokens
        return hidden.final

    def errors(self) -> list[LayerErrors]:
        """Return the means over all tokens."""
        means = (self._sums / self.n_tokens).tolist()
        errors = []
        for layer in self._layers:
            lie, strang, output, way = means[layer]
            of_layer = LayerErrors(
                stack=self._body.shape.name,
                layer=layer + 1,
                lie=_share(lie, way),
                strang=_share(strang, way),
                own=_share(output, way),
                way=way,
            )
            errors.append(of_layer)
        return errors


def _share(distance: float, way: float) -> float:
    return distance / way if way > 0.0 else math.nan


_SCHEMES = {"lie": "Lie", "strang": "Strang"}


def draw_layers(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Plot both schemes' errors of each layer of each run, a panel per stack; return the SVG.

    ``runs`` maps names to the fields of ``LayerErrors`` of every layer. Panels share the axis of
    relative errors, from 0.
    """
    # Each stack once, in order of appearance.
    stacks = list(dict.fromkeys(layer["stack"] for layers in runs.values() for layer in layers))

    def fill(panels: Any) -> Mapping[str, Any]:
        lines: dict[str, Any] = {}
        for name, layers in runs.items():
            for quantity, scheme in _SCHEMES.items():
                style = look(len(lines))
                # The legend shows one panel's lines for all.
                for axes, stack in zip(panels, stacks, strict=True):
                    sub = [layer for layer in layers if layer["stack"] == stack]
                    numbers, values = ([layer[key] for layer in sub] for key in ("layer", quantity))
                    lines[f"{name}: {scheme}"] = dots(axes, numbers, values, style)
        for axes, stack in zip(panels, stacks, strict=True):
            axes.set_xlabel(f"layer of the {stack}")
            axes.set_ylim(bottom=0.0)
            axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        panels[0].set_ylabel("error, fraction of the way")
        return lines

    title = "How far layers are from following their own flows"
    return panels_svg(fill, len(stacks), _HEIGHT, title, is_shared=True)
