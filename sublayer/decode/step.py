"""Unrolled steps of decoders and LSTMs: one token of every row, in as few operations as possible.

Equal to a forward pass with a cache; tested over every axis of the model. Generation is bound by
reading weights. On a CPU a product with one float32 vector is faster from a transposed matrix than
by ``F.linear``, on Intel's processors also with a few; in all other cases, many vectors and
bfloat16 included, weights packed by oneDNN are faster. Both copy the weights. Total gain:
``benchmarks/generate_speed.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.stacks import GLOBAL, AttentionForm, entries
from sublayer.model.blocks import (
    AnySublayer,
    Attention,
    CrossAttention,
    FeedForward,
    Stack,
    Sublayer,
    gated,
)
from sublayer.model.cache import Cache, KeyValues
from sublayer.model.context import Layout, Rotations, StepKeys
from sublayer.model.kernels.attention import attend
from sublayer.model.kernels.elementwise import soft_cap
from sublayer.model.layers import Linear, StackedLinear
from sublayer.model.positions import Positions
from sublayer.model.transformer import Decoder, Lstm, Transformer
from sublayer.system.machine import processor

# Most rows with unpacked weights: on Intel's processors these are faster, with and without avx512;
# beyond, not always: benchmarks/kernel_choices.py.
_FEW_ROWS = 64

PackedLinear = Callable[[Tensor], Tensor]


def takes_vectors(weight: Tensor, n_rows: int) -> bool:
    """Check whether a product takes one row as a vector ``[D]``, not as a matrix of one row.

    True on a CPU in float32 and float64, where a matrix-vector product is faster.
    """
    return (
        n_rows == 1
        and weight.device.type == "cpu"
        and weight.dtype in (torch.float32, torch.float64)
    )


def pack_linear(
    matrix: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None, n_rows: int
) -> PackedLinear:
    """Build the function ``x -> matrix x + bias`` of ``n_rows`` rows ``[B, D]``.

    Where ``takes_vectors``, the one row is a vector ``[D]``; else ``n_rows`` only chooses the
    layout, and any number of rows works. It holds the matrix or a copy, without gradients.
    """
    matrix = matrix.detach()
    bias = None if bias is None else bias.detach()
    if takes_vectors(matrix, n_rows):
        n_outputs, n_inputs = matrix.shape
        # Longer contiguous runs, of rows or columns, are read faster.
        ordered = matrix.contiguous() if n_inputs > n_outputs else matrix.t().contiguous().t()
        if bias is None:
            return lambda x: torch.mv(ordered, x)
        return lambda x: torch.addmv(bias, ordered, x)
    # MKL is faster on Intel's processors, oneDNN on others: benchmarks/kernel_choices.py.
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    is_float_on_cpu = matrix.device.type == "cpu" and matrix.dtype == torch.float32
    if n_rows <= _FEW_ROWS and has_mkl and is_float_on_cpu and "Intel" in processor():
        return transposed(matrix, bias)
    if _packs(matrix):
        return packed(matrix, bias, n_rows)
    return lambda x: F.linear(x, matrix, bias)


def transposed(matrix: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None) -> PackedLinear:
    """Build the map from a transposed copy, multiplied by MKL."""
    columns = matrix.t().contiguous()
    if bias is None:
        return lambda x: torch.mm(x, columns)
    return lambda x: torch.mm(x, columns).add_(bias)


def packed(
    matrix: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None, n_rows: int
) -> PackedLinear:
    """Build the map from a copy that oneDNN packs for ``n_rows``."""
    ordered = torch.ops.mkldnn._reorder_linear_weight(matrix.contiguous(), n_rows)
    apply = torch.ops.mkldnn._linear_pointwise
    return lambda x: apply(x, ordered, bias, "none", [], "")


def _packs(matrix: Tensor) -> bool:
    """Check whether oneDNN has packed products for a matrix."""
    has_mkldnn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if matrix.device.type != "cpu" or not has_mkldnn:
        return False
    # PyTorch's compiler uses the same names.
    names = ("_reorder_linear_weight", "_linear_pointwise")
    has_operations = all(hasattr(torch.ops.mkldnn, name) for name in names)
    if matrix.dtype == torch.bfloat16:
        return has_operations and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return has_operations and matrix.dtype == torch.float32


Branch = Callable[..., Tensor]
"""A sub-layer's function: of the rows, and of further arguments of its kind."""


Residual = Callable[..., Tensor]
"""Residual sub-layers in parallel, mostly one: of the rows, and for each of them the tuple of
further arguments of its function."""


def residuals(
    stack: Stack, unroll: Callable[[Sublayer], Branch]
) -> list[list[tuple[range, Residual]]]:
    """Unroll every executed block into residual sub-layers, with the indices of their entries.

    ``unroll`` unrolls the function of a sub-layer.
    """

    def unrolled(sublayer: AnySublayer) -> tuple[Sublayer, Branch]:
        assert isinstance(sublayer, Sublayer), "LSTMs have a separate stepper, and no encoder"
        return sublayer, unroll(sublayer)

    return [
        [(group, residual([block[index] for index in group])) for group in stack.groups]
        for block in stack.map_slots(unrolled)
    ]


def residual(parallel: Sequence[tuple[Sublayer, Branch]]) -> Residual:
    """Build residual sub-layers in parallel from their functions, with norms and step sizes.

    There is no dropout.
    """
    parts: list[tuple[Branch, Branch, float]] = []
    for sublayer, function in parallel:
        # The method, not the module: a module's call looks for hooks, which costs every step.
        branch, norm = function, sublayer.norm.forward
        if sublayer.output_norm is not None:
            branch = _after(function, sublayer.output_norm.forward)
        parts.append((branch, norm, sublayer.step_size))
    first = parallel[0][0]
    (branch, norm, step_size), *joined = parts
    is_pre_norm, shares_norm = first.is_pre_norm, first.shares_norm

    def add_all(x: Tensor, rest: tuple[Any, ...], *rests: tuple[Any, ...]) -> Tensor:
        normed = norm(x) if is_pre_norm else x
        total = torch.add(x, branch(normed, *rest), alpha=step_size)
        for (its_branch, its_norm, its_step), its_rest in zip(joined, rests, strict=True):
            its_input = its_norm(normed if shares_norm else x)
            total = torch.add(total, its_branch(its_input, *its_rest), alpha=its_step)
        return total if is_pre_norm else norm(total)

    if joined:
        return add_all
    if is_pre_norm:
        return lambda x, rest: torch.add(x, branch(norm(x), *rest), alpha=step_size)
    return lambda x, rest: norm(torch.add(x, branch(x, *rest), alpha=step_size))


def _after(function: Branch, norm: Branch) -> Branch:
    return lambda x, *rest: norm(function(x, *rest))


def feed_forward(ffn: nn.Module, n_rows: int) -> Branch:
    """Unroll a feed-forward network, for ``n_rows`` rows at a time; without dropout.

    A module of another kind is called unchanged, on one token of each row.
    """
    if not isinstance(ffn, FeedForward):
        return lambda x, *_: ffn(x.view(-1, 1, x.shape[-1]), None).view(x.shape)
    up = linear(ffn.input, n_rows)
    down = linear(ffn.output, n_rows)
    activation = ffn.activation

    def plain(x: Tensor, *_: Any) -> Tensor:
        return down(activation(up(x)))

    def gated(x: Tensor, *_: Any) -> Tensor:
        gate, value = up(x).chunk(2, dim=-1)
        return down(activation(gate) * value)

    return gated if ffn.is_gated else plain


def linear(module: Linear | StackedLinear, n_rows: int) -> PackedLinear:
    """Unroll a linear map, or stacked ones with concatenated outputs."""
    matrix = module.weight.flatten(0, -2)  # stacked maps one below another
    bias = None if module.bias is None else module.bias.flatten()
    return pack_linear(matrix, bias, n_rows)


def unrolled_head(model: Transformer, n_rows: int) -> PackedLinear:
    """Unroll the head that predicts tokens: logits ``[R, V]`` of final hidden states.

    One row may be a vector, where ``takes_vectors``.
    """
    matrix, bias = model.vocabulary_head.output(model.embedding.weight)
    output = pack_linear(matrix, bias, n_rows)
    head = model.vocabulary_head
    project = None if head.projection is None else linear(head.projection, n_rows)

    def logits(x: Tensor) -> Tensor:
        scores = soft_cap(output(head.finish(x if project is None else project(x))), head.cap)
        return scores[None] if scores.dim() == 1 else scores

    return logits


_FIRST_ROOM = 64
"""Initial capacity in keys."""


class StepBias:
    """Attention bias of a stack's newest query over all keys.

    It depends only on the distance between key and query, so that the bias over many keys ends with
    the bias over fewer.
    """

    def __init__(self, scheme: Positions) -> None:
        self._scheme = scheme
        self._room = 0
        self._bias: Tensor | None = None  # [1, H, 1, room]

    def of(
        self,
        n_positions: int,
        dtype: torch.dtype,
        device: torch.device,
        form: AttentionForm = GLOBAL,
    ) -> Float[Tensor, "1 H 1 S"] | None:
        """Return the bias of a query at the last of ``n_positions``, for keys as a cache has them.

        S is ``n_positions``, or the window of a local attention, if that is less; None for none.
        """
        if not (self._scheme.biases_scores and form.has_positions):
            return None
        if n_positions > self._room:
            self._room = max(_FIRST_ROOM, 2 * n_positions)
            keys = torch.arange(self._room, device=device)
            self._bias = self._scheme.score_bias(keys[-1:], keys, dtype)
        assert self._bias is not None, "the scheme's row says that it biases scores"
        if form.window is not None and n_positions > form.window:
            # The ring's first key is the newest whose position is a multiple of its size.
            return self._bias[..., -form.window :].roll(n_positions % form.window, -1)
        return self._bias[..., -n_positions:]


_ALL = StepKeys()


@runtime_checkable
class StepKeyValues(Protocol):
    """Key/value cache of one attention that a step appends to and reads."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the cache."""

    def append_folded(
        self, k: Float[Tensor, "B H T K"], v: Float[Tensor, "B H T K"]
    ) -> tuple[Float[Tensor, "BH S K"], Float[Tensor, "BH S K"]]:
        """Append a token's keys and values; return all, rows and heads as one axis."""


class Stepper:
    """Append a token to every row of a cache without padding; return the next-token logits.

    Packed weights are copies: they are valid while the model's do not change. Without dropout.
    ``n_rows`` is the number of rows of every call; one row in float32 or float64 on a CPU is
    computed as a vector, not as a matrix of one row.
    """

    def __init__(self, model: Decoder, n_rows: int) -> None:
        self._model = model
        self._n_rows = n_rows
        self._is_vector = takes_vectors(model.embedding.weight, n_rows)
        self._step_bias = StepBias(model.positions)
        blocks = residuals(model.stack, self._function)
        # Of each group of entries their indices, and their forms of attention.
        self._layers = [
            [([(index, numbers[index]) for index in group], branch) for group, branch in block]
            for block, numbers in zip(blocks, model.form_numbers, strict=True)
        ]
        self._logits = unrolled_head(model, n_rows)

    def __call__(self, tokens: Int[Tensor, " B"], cache: Cache) -> Float[Tensor, "B V"]:
        """Take the step at position ``cache.length``, which grows by one.

        Raises ConfigError where the cache is full, which then stays as it is.
        """
        cache.check(1)
        position = cache.length
        # Filled, not copied: a copy would synchronise with the device at every token.
        positions = torch.full((1,), position, device=tokens.device)
        biases = [
            self.bias_of(position + 1, cache.dtype, tokens.device, form)
            for form in self._model.forms
        ]

        def key_values(layer: int, index: int) -> KeyValues | None:
            cached = cache.key_values(layer, index)
            assert cached is None or isinstance(cached, KeyValues), "a decoder alone has no others"
            return cached

        logits = self.compute(tokens, positions, biases, key_values)
        cache.advance(1, None)
        return logits

    def bias_of(
        self,
        n_positions: int,
        dtype: torch.dtype,
        device: torch.device,
        form: AttentionForm = GLOBAL,
    ) -> Float[Tensor, "BH 1 S"] | None:
        """Return the attention bias of a token at the last of ``n_positions`` positions."""
        bias = self._step_bias.of(n_positions, dtype, device, form)
        return None if bias is None else bias.expand(self._n_rows, -1, -1, -1).flatten(0, 1)

    def compute(
        self,
        tokens: Int[Tensor, " B"],
        positions: Int[Tensor, " 1"],
        biases: Sequence[Float[Tensor, "#BH 1 _"] | None],
        key_values: Callable[[int, int], StepKeyValues | None],
    ) -> Float[Tensor, "B V"]:
        """Compute the next-token logits at a position, and write keys and values.

        ``biases``, one for each form of attention, are added to scores; ``key_values`` returns the
        cache of an executed attention.
        """
        model = self._model
        x = model.embed_tokens(tokens[:, None], positions)[:, 0]  # [B, D]
        rotations = model.rotations(positions, x.dtype)
        values: list[Tensor] | None = [] if model.mixes_values else None
        if self._is_vector:
            x = x[0]
        for layer, sublayers in enumerate(self._layers):
            if layer > 0:
                vectors = model.positions.vectors(layer, positions, x.dtype)
                x = x if vectors is None else x + vectors[0]
            for group, sublayer in sublayers:
                x = sublayer(
                    x, *[(key_values(layer, i), rotations[n], biases[n], values) for i, n in group]
                )
        return self._logits(model.final_norm(x))

    def _function(self, sublayer: Sublayer) -> Branch:
        function = sublayer.function
        assert not isinstance(function, CrossAttention), "a decoder alone has no cross entries"
        if isinstance(function, Attention):
            return self._attention(function)
        return feed_forward(function, self._n_rows)

    def _attention(self, attention: Attention) -> Branch:
        project = pack_linear(*attention.maps(), self._n_rows)
        output = linear(attention.output, self._n_rows)
        gate = None if attention.gate is None else linear(attention.gate, self._n_rows)
        heads = attention.heads
        n_heads = sum(heads)
        d_head = attention.d_head
        scale, cap, sinks = attention.scale, attention.score_cap, attention.sinks

        def step(
            x: Tensor,
            key_values: StepKeyValues | None,
            rotations: Rotations | None,
            bias: Tensor | None,
            values: list[Tensor] | None,
        ) -> Tensor:
            assert key_values is not None, "every attention has keys and values in a cache"
            projected = project(x).view(-1, n_heads, 1, d_head)
            q, k, v = projected.split_with_sizes(heads, 1)  # [B, H or G, 1, K] each
            q, k = attention.placed(q, k, rotations)
            if values is not None:
                v = attention.mix_values(v, values)
            every_k, every_v = key_values.append_folded(k, v)  # [B G, S, K] each
            # Scaled here: the product is contiguous, so that folding rows and heads copies nothing.
            queries = (q.to(key_values.dtype) * scale).view(-1, 1, d_head)  # [B H, 1, K]
            mixed = attend(
                queries, every_k, every_v, _ALL, bias, scale=1.0, cap=cap, sinks=sinks
            )  # [B H, 1, K]
            by_row = mixed.to(x.dtype).view(*x.shape[:-1], -1)  # [B, H K]
            return output(by_row if gate is None else gated(by_row, gate(x)))

        return step


class PlainStepper:
    """Read one token of every row; return the next-token logits.

    The layers, of an LSTM or with sub-layers of plugins that read other tokens, run as a forward
    pass of one token. A packed output matrix is a copy: it is valid while the model's weights do
    not change.
    """

    def __init__(self, model: Decoder, n_rows: int) -> None:
        self._model = model
        self._logits = unrolled_head(model, n_rows)
        self._is_vector = takes_vectors(model.embedding.weight, n_rows)

    def __call__(self, tokens: Int[Tensor, " B"], cache: Cache) -> Float[Tensor, "B V"]:
        """Take the step; the states of the cache change. Raises ConfigError where it is full."""
        cache.check(1)
        model = self._model
        rows = tokens[:, None]
        layout = Layout.causal(rows, past=cache.n_past)
        states = model.hidden(rows, layout, cache=cache).final[:, 0]  # [B, D]
        cache.advance(1, None)
        return self._logits(states[0] if self._is_vector else states)


def is_unrolled(model: Decoder) -> bool:
    """Check whether ``Stepper`` knows all sub-layers that read other tokens."""
    return all(
        entry.kind.attends_to == "nothing" or entry.name == "attention"
        for entry in entries(model.config)
        if not entry.kind.is_recurrent
    ) and not isinstance(model, Lstm)


Compute = Callable[[], Tensor]
"""Computes from tensors at fixed addresses, and writes to such."""
Record = Callable[[Compute], Compute]
"""Turns a computation into a replay of it that returns the same tensor each time."""


@dataclass(frozen=True)
class _Placed:
    """The first ``room`` keys and values of an attention, written at a place in a tensor."""

    key_values: KeyValues
    place: Int[Tensor, " 1"]
    room: int

    @property
    def dtype(self) -> torch.dtype:
        return self.key_values.dtype

    def append_folded(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.key_values.append_at(k, v, self.place, self.room)


class FixedStepper:
    """``Stepper`` for one cache, replayed from a CUDA graph.

    It attends to a fixed room of the cache, positions beyond the token masked. A full room is
    doubled and the step recorded again.
    """

    def __init__(self, model: Decoder, n_rows: int, cache: Cache, record: Record) -> None:
        self._model = model
        self._stepper = Stepper(model, n_rows)
        self._cache = cache
        self._record = record
        device = cache.mask.device
        self._tokens = torch.zeros(n_rows, dtype=torch.long, device=device)
        self._position = torch.zeros(1, dtype=torch.long, device=device)
        self._room = 0
        self._step: Compute | None = None

    def __call__(self, tokens: Int[Tensor, " B"], cache: Cache) -> Float[Tensor, "B V"]:
        """Take the step in its cache; the next step overwrites the logits.

        Raises ConfigError where the cache is full.
        """
        assert cache is self._cache, "a recorded step reads one cache"
        cache.check(1)
        self._tokens.copy_(tokens)
        self._position.fill_(cache.length)
        if self._step is None or cache.length >= self._room:
            self._step = self._recorded(cache.length + 1)
        logits = self._step()
        cache.advance(1, None)
        return logits

    def _recorded(self, n_needed: int) -> Compute:
        self._room = _FIRST_ROOM
        while self._room < n_needed:
            self._room *= 2
        room = min(self._room, self._cache.max_len)
        device, dtype, position = self._position.device, self._cache.dtype, self._position
        # The bias of the room's last position contains all others.
        table = self._stepper.bias_of(room, dtype, device)  # [B H, 1, S]
        model = self._model
        # The places of each form's keys, of which a local attention has a ring.
        all_keys = [
            torch.arange(min(form.window or room, room), device=device) for form in model.forms
        ]

        def compute() -> Tensor:
            biases = []
            places = []
            for form, keys in zip(model.forms, all_keys, strict=True):
                size = len(keys)
                bias = torch.zeros(1, 1, size, dtype=dtype, device=device)
                if table is not None and form.has_positions:
                    bias = table.index_select(2, (room - 1) - (position - keys).remainder(size))
                biases.append(bias.masked_fill(keys > position, -torch.inf))
                places.append(position if size == room else position % size)

            def key_values(layer: int, index: int) -> _Placed | None:
                cached = self._cache.key_values(layer, index)
                if not isinstance(cached, KeyValues):
                    return None
                form = model.form_numbers[layer][index]
                return _Placed(cached, places[form], len(all_keys[form]))

            return self._stepper.compute(self._tokens, position, biases, key_values)

        return self._record(compute)


_N_WARMING = 2
_FEWEST_TOKENS = 64
"""Estimated, not measured: recording takes as long as some dozens of steps."""


def pays(device: torch.device, n_tokens: int) -> bool:
    """Check whether recording a step pays off for ``n_tokens`` tokens."""
    return device.type == "cuda" and n_tokens >= _FEWEST_TOKENS


def record(compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Record a computation; return its replay, which overwrites and returns the same tensor.

    It must use the same memory in every call, never synchronise, and be idempotent: it runs before
    it is recorded. Source: the documentation of ``torch.cuda.CUDAGraph``.
    """
    current = torch.cuda.current_stream()
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        for _ in range(_N_WARMING):
            compute()
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = compute()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay
