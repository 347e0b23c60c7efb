"""Blocks of a stack: attention, feed-forward networks and LSTM layers, as sub-layers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils.checkpoint import checkpoint

from sublayer.config.model import BiasedMap, Entry, Role, cap_of, factor_of, parallel_entries
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import (
    StackShape,
    has_bias,
    key_heads,
    learned_shares,
    n_gates,
    n_norms,
    slot,
)
from sublayer.model.cache import Cache, KeyValues, LstmState, MemoryKeyValues
from sublayer.model.context import Context, Keys, Queries
from sublayer.model.kernels.attention import attend, split_heads
from sublayer.model.kernels.elementwise import (
    Activation,
    add_branch,
    dropout,
)
from sublayer.model.kernels.products import linear, to_autocast
from sublayer.model.layers import Linear, StackedLinear, build_activation, build_norm
from sublayer.model.positions import Positions

Turned = Callable[[Tensor], Tensor]
"""Rotation of queries or of keys."""


_MAPS: tuple[BiasedMap, ...] = ("query", "key", "value", "output", "gate")
FIRST_SHARE = 0.5
"""Share of the first attention's values in later ones: fixed, or at first (Zhou et al. 2024)."""


def gated(
    x: Float[Tensor, "*rows HK"], gates: Float[Tensor, "*rows G"]
) -> Float[Tensor, "*rows HK"]:
    """Multiply each of G runs of features by the sigmoid of its gate. Source: Qiu et al. 2025."""
    runs = x.reshape(*gates.shape, -1)  # [*rows, G, HK/G]
    return (runs * gates.sigmoid()[..., None]).flatten(-2)


def _qk_norm(config: ResolvedModel, width: int) -> nn.Module:
    """Build the norm of queries or keys; a norm to length 1 is an RMS norm, not scaled."""
    kind, eps = config.qk_norm, config.norm_eps
    if kind == "l2":
        kind, eps = "rms", eps / width
    return build_norm(kind, width, eps=eps, affine=config.qk_norm_gain, bias=config.norm_bias)


class _Attention(nn.Module):
    """Linear maps of an attention: to queries, keys and values, and of its output.

    Maps of equal shape are stacked: ``projection`` has all three, or those to keys and values if
    these have fewer heads. Scores are multiplied by ``scale``; ``score_cap`` and ``sinks`` are as
    in ``attend``. Sources: Ainslie et al. 2023 (2305.13245), grouped queries; Henry et al. 2020
    (2010.04245), normalised queries and keys.
    """

    roles: ClassVar[Mapping[str, Role]] = {"sinks": "bias", "first_share": "gain"}
    initial: ClassVar[Mapping[str, float]] = {"first_share": FIRST_SHARE}

    def __init__(self, config: ResolvedModel, entry: Entry) -> None:
        super().__init__()
        d_model, d_head, n_kv_heads = config.d_model, config.d_head, key_heads(config)
        width, key_width = config.n_heads * d_head, n_kv_heads * d_head
        biases = [has_bias(config, name) for name in _MAPS]
        self.queries: Linear | None = None
        if n_kv_heads == config.n_heads:
            self.projection = StackedLinear(3, d_model, width, bias=biases[:3])
        else:
            self.queries = Linear(d_model, width, bias=biases[0])
            self.projection = StackedLinear(2, d_model, key_width, bias=biases[1:3])
        self.output = Linear(width, d_model, bias=biases[3], ends_branch=True)
        n_of_gates = n_gates(config) if entry.kind.attends_to == "itself" else 0
        self.gate = Linear(d_model, n_of_gates, bias=biases[4]) if n_of_gates else None
        self.first_share: nn.Parameter | None = None
        """Learned share of the stack's first attention's values, in a single number."""
        self.n_heads = config.n_heads
        self.heads = (config.n_heads, n_kv_heads, n_kv_heads)
        """Numbers of heads of queries, keys and values, in the order of their maps."""
        self.d_head = d_head
        self.scale = factor_of(config.attention_scale, d_head)
        self.score_cap = cap_of(config.score_cap)
        self.sinks = nn.Parameter(torch.empty(config.n_heads)) if config.sinks else None
        self.p_weights = config.dropout_attention
        self.query_norm: nn.Module | None = None
        self.key_norm: nn.Module | None = None
        self.norms_by_head = config.qk_norm_over == "head"
        """Whether each head of queries and keys is normalised, not all together."""
        self.norms_after = config.qk_norm_place == "after"
        """Whether queries and keys are rotated before they are normalised."""
        if config.qk_norm != "none":
            widths = (d_head, d_head) if self.norms_by_head else (width, key_width)
            self.query_norm, self.key_norm = (_qk_norm(config, width) for width in widths)
            if config.qk_norm == "l2":
                # Of length 1 instead of the roots of their widths.
                self.scale /= math.sqrt(widths[0] * widths[1])

    def _mix(
        self, q: Tensor, k: Tensor, v: Tensor, keys: Keys, bias: Tensor | None = None
    ) -> Float[Tensor, "B H Q K"]:
        return attend(
            q,
            k,
            v,
            keys,
            bias,
            scale=self.scale,
            p_dropout=self.p_weights if self.training else 0.0,
            cap=self.score_cap,
            sinks=self.sinks,
        )

    @property
    def stored_maps(self) -> dict[nn.Module, int]:
        """Return the modules that hold the maps to queries, keys and values.

        The value is the number of query maps in the module, which come first.
        """
        if self.queries is None:
            return {self.projection: 1}
        return {self.queries: 1, self.projection: 0}

    def maps(
        self, start: int = 0, stop: int = 3
    ) -> tuple[Float[Tensor, "HK D"], Float[Tensor, " HK"] | None]:
        """Return the concatenated matrix and bias of the maps to queries, keys and values.

        ``start`` and ``stop`` select a range of the three: differentiable views, or copies where
        their shapes differ.
        """
        if self.queries is None:
            return self.projection.part(start, stop)
        if start > 0:
            return self.projection.part(start - 1, stop - 1)
        of_queries = self.queries.weight, self.queries.bias
        if stop == 1:
            return of_queries
        parts = (of_queries, self.projection.part(0, stop - 1))
        weight = torch.cat([weight for weight, _ in parts])
        if all(bias is None for _, bias in parts):
            return weight, None
        biases = [w.new_zeros(len(w)) if bias is None else bias for w, bias in parts]
        return weight, torch.cat(biases)

    def normed(
        self, x: Float[Tensor, "*B H T K"], norm: nn.Module | None
    ) -> Float[Tensor, "*B H T K"]:
        """Normalise queries or keys by their norm, if any: each head, or all heads together."""
        if norm is None:
            return x
        if self.norms_by_head:
            normed: Tensor = norm(x)
            return normed.to(x.dtype)
        by_token = x.transpose(-3, -2)  # [*B, T, H, K]
        normed = norm(by_token.flatten(-2)).to(x.dtype)
        return normed.view(by_token.shape).transpose(-3, -2)

    def placed(
        self, q: Tensor, k: Tensor, turns: tuple[Turned, Turned] | None
    ) -> tuple[Float[Tensor, "*B H Q K"], Float[Tensor, "*B G T K"]]:
        """Normalise and rotate queries and keys of self-attention, in the model's order."""
        if self.query_norm is not None and not self.norms_after:
            q, k = self.normed(q, self.query_norm), self.normed(k, self.key_norm)
        if turns is not None:
            q, k = turns[0](q), turns[1](k)
        if self.query_norm is not None and self.norms_after:
            q, k = self.normed(q, self.query_norm), self.normed(k, self.key_norm)
        return q, k

    def query(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T H K"]:
        """Compute the queries alone."""
        weight, bias = self.maps(0, 1)
        by_head = (*x.shape[:-1], self.n_heads, self.d_head)
        return linear(x, weight, bias).view(by_head)

    def key_value(
        self, states: Float[Tensor, "B S D"]
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """Compute the keys and values alone, of G heads, as non-contiguous views of one product.

        Keys are as projected, neither normalised nor rotated.
        """
        weight, bias = self.maps(1, 3)
        by_head = (*states.shape[:-1], 2, self.heads[1], self.d_head)
        projected = linear(states, weight, bias).view(by_head)  # [B, S, 2, G, K]
        k, v = projected.permute(2, 0, 3, 1, 4).unbind()  # [B, G, S, K] each
        return k, v


class Attention(_Attention):
    """Multi-head self-attention. Source: Vaswani et al. 2017, sec. 3.2.

    Its output may be gated by its input (Qiu et al. 2025, 2505.06708, SDPA output gate), and its
    values mixed with those of the stack's first attention (Zhou et al. 2024, 2410.17897).
    """

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B Q D"]:
        """Let tokens attend to their visible tokens.

        Keys and values are appended to the context's cache, in its dtype. Q is T, or the number of
        the context's queries.
        """
        if self.queries is not None or self.gate is not None:
            x = to_autocast(x)
        picked = x if context.queries is None else context.queries.pick(x)  # [B, Q, D]
        if context.queries is None and self.queries is None:
            q, k, v = split_heads(self.projection(x), self.n_heads)  # [B, H, T, K] each
        else:
            q = self.query(picked).transpose(1, 2)  # [B, H, Q, K]
            k, v = self.key_value(x)
        dtype = q.dtype
        q, k = self.placed(q, k, context.rotations)
        if context.values is not None:
            v = self.mix_values(v, context.values)
        if context.key_values is not None:
            assert isinstance(context.key_values, KeyValues), "self-attention caches its own keys"
            k, v = context.key_values.append(k, v)
            q = q.to(k.dtype)
        mixed = self._mix(q, k, v, context.layout.keys, context.bias)
        by_token = mixed.to(dtype).transpose(1, 2).flatten(2)  # [B, Q, H K]
        if self.gate is not None:
            by_token = gated(by_token, self.gate(picked))
        output: Tensor = self.output(by_token)  # [B, Q, D]
        return output

    def mix_values(
        self, v: Float[Tensor, "B G T K"], values: list[Tensor]
    ) -> Float[Tensor, "B G T K"]:
        """Mix the values of the stack's first attention into those of a later one.

        ``values`` is empty at the first attention, which appends its own. Source: Zhou et al. 2024,
        Identity- and Learnable-ResFormer. Departure: one number s with ``v + s (first - v)``
        instead of a factor for each term, one of which the map to values makes redundant.
        """
        if not values:
            # Contiguous, since a view would keep the queries and keys as well.
            values.append(v.contiguous())
            return values[0]
        if self.first_share is None:
            return torch.lerp(v, values[0], FIRST_SHARE)
        return torch.addcmul(v, self.first_share.to(v.dtype), values[0] - v)


class CrossAttention(_Attention):
    """Multi-head attention of a decoder to an encoder's output. Source: ibid., sec. 3.2.3.

    It has neither rotations nor position bias, which belong to self-attention.
    """

    def query(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T H K"]:
        """Compute the queries, normalised."""
        by_head = super().query(x).transpose(1, 2)  # [B, H, T, K]
        return self.normed(by_head, self.query_norm).transpose(1, 2)

    def key_value(
        self, states: Float[Tensor, "B S D"]
    ) -> tuple[Float[Tensor, "B G S K"], Float[Tensor, "B G S K"]]:
        """Compute the keys, normalised, and the values, of G heads."""
        k, v = super().key_value(states)
        return self.normed(k, self.key_norm), v

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B T D"]:
        """Let each token attend to the real tokens of the memory.

        There may be several consecutive rows of tokens per row of the memory. A cache keeps the
        keys and values of the first call, even if the memory changes later.
        """
        memory = context.memory
        assert memory is not None, "cross-attention needs the encoder's output as its memory"
        if context.key_values is None:
            k, v = self.key_value(memory.states)
        else:
            assert isinstance(context.key_values, MemoryKeyValues), (
                "cross-attention caches the keys and values of the memory"
            )
            k, v = context.key_values.get(lambda: self.key_value(memory.states))
        q = self.query(x)  # [B, T, H, K]
        # Rows that share a row of the memory are treated as queries of one sequence.
        n_sequences = k.shape[0]
        by_sequence = q.reshape(n_sequences, -1, self.n_heads, self.d_head)  # [B', n T, H, K]
        together = by_sequence.transpose(1, 2)  # [B', H, n T, K]
        mixed = self._mix(together.to(k.dtype), k, v, memory.layout.keys)  # [B', H, n T, K]
        n_rows, n_tokens, _ = x.shape
        by_token = mixed.to(q.dtype).transpose(1, 2).reshape(n_rows, n_tokens, -1)  # [B, T, H K]
        output: Tensor = self.output(by_token)  # [B, T, D]
        return output


class FeedForward(nn.Module):
    """Compute ``W2 (activation(W x))``, or ``W2 (activation(W x) * V x)`` if gated.

    Dropout acts on hidden units after the gating product, before ``W2`` (Mesh-TensorFlow, as
    released).
    """

    def __init__(self, config: ResolvedModel, entry: Entry) -> None:
        super().__init__()
        ffn, d_model, d_ff = entry.ffn, config.d_model, config.d_ff
        assert ffn is not None, "an ffn entry must have a variant"
        bias = has_bias(config, "ffn")
        self.is_gated = ffn.is_gated
        self.activation = build_activation(ffn.activation, config.gelu, config.swish_beta)
        self.compiled: Activation | None = None
        self.input: StackedLinear | Linear
        if ffn.is_gated:
            self.input = StackedLinear(2, d_model, d_ff, bias=bias)
        else:
            self.input = Linear(d_model, d_ff, bias=bias)
        self.output = Linear(d_ff, d_model, bias=bias, ends_branch=True)
        self.p_hidden = config.dropout_ffn

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B T D"]:
        """Transform each token separately; the context is ignored."""
        hidden = self.input(x)  # [B, T, F], or [B, T, 2 F]
        if self.compiled is not None and hidden.requires_grad:
            hidden = self.compiled(hidden)
        elif self.is_gated:
            gate, value = hidden.chunk(2, dim=-1)
            hidden = self.activation(gate) * value
        else:
            hidden = self.activation(hidden)
        hidden = dropout(hidden, self.p_hidden, self.training)
        output: Tensor = self.output(hidden)  # [B, T, D]
        return output


_WORTH_PACKING = 0.5
"""Share of real tokens below which a CPU packs padded rows instead of reading them in full: about
the break-even with AVX2; with AVX-512 full rows remain faster (benchmarks/kernel_choices.py)."""


class GateMaps(nn.LSTM):
    """PyTorch's LSTM of one layer, with unset weights, which parameters.py initializes.

    ``i, f, o = sigmoid(W x + U h + b)`` each, ``g = tanh(W x + U h + b)``, ``c = f c + i g``, ``h =
    o tanh(c)``; b is the sum of two vectors, as in cuDNN (Hochreiter and Schmidhuber 1997, with the
    forget gate of Gers et al. 2000).
    """

    roles: ClassVar[Mapping[str, Role]] = {
        "weight_ih_l0": "matrix",
        "weight_hh_l0": "matrix",
        "bias_ih_l0": "bias",
        "bias_hh_l0": "bias",
    }

    def __init__(self, config: ResolvedModel) -> None:
        has_biases = bool(config.bias)
        super().__init__(config.d_model, config.d_model, bias=has_biases, batch_first=True)

    def reset_parameters(self) -> None:
        """Leave the weights unset, and the global generator unchanged."""


class LstmLayer(nn.Module):
    """Compute the states of an LSTM layer, with dropout, without a residual connection.

    Documents start from zero states, and padding is not read. Under autocast a CPU computes in
    float32, since not every processor has bfloat16 kernels.
    """

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        self.function = GateMaps(config)
        self.p_output = config.dropout

    def forward(
        self, x: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], None]:
        """Compute the state at each token, continuing the cache's; zero at padding."""
        state = context.key_values
        assert state is None or isinstance(state, LstmState), "an LSTM layer caches its state"
        device = x.device.type
        with torch.autocast(device, enabled=device != "cpu" and torch.is_autocast_enabled(device)):
            runs = context.layout.runs
            # Padded rows are read in full where that is correct and faster.
            if runs is None:
                y = self._read(x, state)
            elif (
                state is None
                and device == "cpu"
                and runs.is_one_a_row
                and runs.real_share >= _WORTH_PACKING
            ):
                # Padding at the right cannot affect earlier tokens.
                y = self._read(x, None).masked_fill(~runs.is_real[:, :, None], 0.0)
            else:
                tokens, batch_sizes, sequences = runs.packing()
                if len(tokens):
                    rows = x.flatten(0, 1)
                    packed = PackedSequence(rows.index_select(0, tokens), batch_sizes)
                    # Documents are separated only without a past; with one, a sequence is a row.
                    read = self._read(packed, state, sequences).data
                    every = read.new_zeros(len(rows), read.shape[1])
                    y = every.index_copy(0, tokens, read).view(x.shape)
                else:
                    y = torch.zeros_like(x)
        # Autocast must not narrow states between layers.
        return dropout(y.to(x.dtype), self.p_output, self.training), None

    def _read(
        self,
        x: Tensor | PackedSequence,
        state: LstmState | None,
        sequences: Int[Tensor, " S"] | None = None,
    ) -> Any:
        """Read sequences of consecutive tokens, starting from their states."""
        before = None if state is None else state.get(x.data.dtype, sequences)
        y, after = self.function(x, before)
        if state is not None:
            output, cell = after
            state.set(output, cell, sequences)
        return y


Passed = tuple[Float[Tensor, "B Q D"], Float[Tensor, ""] | None]
"""Residual stream after sub-layers, and their auxiliary losses, summed over the batch's sequences;
None if there are none. The function of a sub-layer with such losses returns them with its output,
but only in training."""


def add_losses(
    one: Float[Tensor, ""] | None, other: Float[Tensor, ""] | None
) -> Float[Tensor, ""] | None:
    """Add two auxiliary losses, of which either may be None."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


Function = Attention | CrossAttention | FeedForward
FUNCTIONS: dict[str, Callable[[ResolvedModel, Entry], Function]] = {
    "attention": Attention,
    "cross": CrossAttention,
    "ffn": FeedForward,
}
"""Builder of each kind of sub-layer, by its name in a block."""


Parallel = Sequence[tuple["JoinedSublayer", Context]]
"""Sub-layers in parallel to another, with their contexts."""


class Sublayer(nn.Module):
    """Compute ``x + step * f(norm(x))`` (pre-norm) or ``norm(x + step * f(x))`` (post-norm).

    With the norm after f it is ``x + step * norm(f(x))``, with norms around it
    ``x + step * output_norm(f(norm(x)))``. Parallel functions read one input, and all their
    branches are added to it: ``x + step * f(norm(x)) + step' * f'(norm(x))``.

    Dropout acts on the branch, before the step (Macaron Net, as released). The step size is that of
    the block's entry, 1/2 for Macaron's two feed-forward networks, times ``config.residual_scale``.
    """

    def __init__(self, config: ResolvedModel, entry: Entry) -> None:
        super().__init__()
        build = partial(
            build_norm,
            d_model=config.d_model,
            eps=config.norm_eps,
            affine=config.norm_affine,
            bias=config.norm_bias,
        )
        is_pre_norm, (n_before, n_after) = config.norm_order != "post", n_norms(config, entry)
        self.norm = build(config.norm if (n_before if is_pre_norm else n_after) else "none")
        self.function = FUNCTIONS[entry.name](config, entry)
        self.output_norm = build(config.norm) if is_pre_norm and n_after else None
        self.step_size = entry.step * config.residual_scale
        self.p_output = config.dropout
        self.is_pre_norm = is_pre_norm
        """Whether ``norm`` precedes the function."""
        self.shares_norm = config.parallel_norm == "shared"
        """Whether parallel functions read the output of this sub-layer's norm."""
        self.attends = entry.kind.attends_to == "itself"

    def forward(
        self, x: Float[Tensor, "B T D"], context: Context, parallel: Parallel = ()
    ) -> Passed:
        """Apply the sub-layer, with its norms and those in ``parallel``.

        Q is T, or the number of the context's queries.
        """
        total, auxiliary = self.add(x, context, parallel)
        return (total if self.is_pre_norm else self.norm(total)), auxiliary

    def add(self, x: Float[Tensor, "B T D"], context: Context, parallel: Parallel = ()) -> Passed:
        """Apply the sub-layer without a norm after the sum."""
        total = x if context.queries is None else context.queries.pick(x)
        normed = self.norm(x) if self.is_pre_norm else x
        branch, auxiliary = self.branch(normed, context)
        total = add_branch(
            total, branch, step=self.step_size, p=self.p_output, training=self.training
        )
        for joined, its_context in parallel:
            branch, loss = joined(normed if self.shares_norm else x, its_context)
            total = add_branch(
                total, branch, step=joined.step_size, p=self.p_output, training=self.training
            )
            auxiliary = add_losses(auxiliary, loss)
        return total, auxiliary

    def branch(self, normed: Float[Tensor, "B T D"], context: Context) -> Passed:
        """Compute the function and the norm of its output, before dropout and step."""
        if context.queries is not None and not self.attends:
            normed = context.queries.pick(normed)
        branch, auxiliary = self.function(normed, context), None
        if isinstance(branch, tuple):
            branch, auxiliary = branch
        if self.output_norm is not None:
            branch = self.output_norm(branch.to(normed.dtype))
        return branch, auxiliary


class JoinedSublayer(Sublayer):
    """Function in parallel to that of an earlier entry, which adds both branches to the stream."""

    def forward(
        self, x: Float[Tensor, "B T D"], context: Context, parallel: Parallel = ()
    ) -> Passed:
        """Compute the branch, with its own norm of the input, if any."""
        return self.branch(self.norm(x), context)


AnySublayer = Sublayer | LstmLayer
FirstValues = tuple[Float[Tensor, "B G T K"], ...]
"""Values of the stack's first self-attention; empty before it, and where no others mix them in."""


_T = TypeVar("_T")


class Stack(nn.Module):
    """Stack of executed blocks. A set of weights exists once, as ``sublayers[entry][slot]``.

    With ``recomputes``, the backward pass recomputes every block, dropout included, instead of
    keeping activations: equal gradients in less memory, for one more forward pass (Chen et al.
    2016, 1604.06174).
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__()
        self.recomputes = False
        self.slots = [
            [slot(config, shape, layer, entry) for entry in shape.block]
            for layer in range(shape.n_layers)
        ]
        self.groups = parallel_entries(shape.block)
        """Indices of a block's entries, with parallel entries in one group."""
        self.last_attention = shape.last_attention
        self.sublayers = nn.ModuleList()
        for index, entry in enumerate(shape.block):
            last = max(slots[index] for slots in self.slots)
            n_sets = last + 1
            residual = JoinedSublayer if entry.is_joined else Sublayer
            self.sublayers.append(
                nn.ModuleList(
                    LstmLayer(config) if entry.kind.is_recurrent else residual(config, entry)
                    for _ in range(n_sets)
                )
            )
        if not config.first_norm:
            first = self.block(0)[0]
            assert isinstance(first, Sublayer), "an LSTM has no blocks"
            first.norm = nn.Identity()
        shares = set(learned_shares(config, shape))
        for layer, slots in enumerate(self.slots):
            for place, sublayer in zip(enumerate(slots), self.block(layer), strict=True):
                if place in shares:
                    assert isinstance(sublayer.function, Attention), "it attends to itself"
                    sublayer.function.first_share = nn.Parameter(torch.empty(1))

    def block(self, layer: int) -> list[AnySublayer]:
        """Return the sub-layers of an executed block, counted from 0, in order."""
        sets: list[list[AnySublayer]] = list(self.sublayers)  # type: ignore[arg-type]
        return [by_slot[slot] for by_slot, slot in zip(sets, self.slots[layer], strict=True)]

    def map_slots(self, function: Callable[[AnySublayer], _T]) -> list[list[_T]]:
        """Apply a function once per set of weights, and return the results by block and entry.

        Blocks that share weights share the result object.
        """
        sets: list[list[AnySublayer]] = list(self.sublayers)  # type: ignore[arg-type]
        results = [
            [function(sublayer) for sublayer in by_slot] for by_slot in sets
        ]  # by entry and set
        by_layer = []
        for slots in self.slots:
            chosen = [by_slot[slot] for by_slot, slot in zip(results, slots, strict=True)]
            by_layer.append(chosen)
        return by_layer

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        context: Context,
        positions: Positions,
        cache: Cache | None = None,
        capture: Sequence[int] = (),
        queries: Queries | None = None,
    ) -> tuple[Passed, dict[int, Tensor]]:
        """Run every block, and return the residual stream also at the depths in ``capture``.

        A depth is the number of preceding blocks. ``positions`` are added before every block but
        the first, for which ``Body.enter`` has added them, even at depth 0. Keys and values are
        appended to a ``cache``. With ``queries`` the last attention, and everything after it, is
        computed only at these Q positions.
        """
        has_more = cache is not None or context.memory is not None or len(capture) > 0
        assert queries is None or not has_more, "cache, memory and capture need all positions"
        captured = {0: x} if 0 in capture else {}
        auxiliary = None
        first: FirstValues = ()
        for layer in range(len(self.slots)):
            if layer > 0:
                x = positions.add(x, layer, context.layout.positions)
            given = layer, x, context, cache, queries, first
            if self.recomputes and torch.is_grad_enabled():
                passed, first = checkpoint(self._run, *given, use_reentrant=False)
            else:
                passed, first = self._run(*given)
            x = passed[0]
            auxiliary = add_losses(auxiliary, passed[1])
            if layer + 1 in capture:
                captured[layer + 1] = x
        if queries is not None and not self.last_attention:
            x = queries.pick(x)
        return (x, auxiliary), captured

    def after_first(self, x: Float[Tensor, "B T D"], context: Context) -> Context:
        """Return the context of the blocks after the first, whose input is ``x``."""
        if context.values is None:
            return context
        _, first = self._run(0, x, context, None, None, ())
        return replace(context, values=[*first])

    def _run(
        self,
        layer: int,
        x: Tensor,
        context: Context,
        cache: Cache | None,
        queries: Queries | None,
        first: FirstValues,
    ) -> tuple[Passed, FirstValues]:
        """Run a block without changing its arguments, which recomputation reads again."""
        values = [*first]
        if context.values is not None:
            context = replace(context, values=values)
        return self.run_block(layer, x, context, cache, queries), (*values,)

    def run_block(
        self,
        layer: int,
        x: Float[Tensor, "B T D"],
        context: Context,
        cache: Cache | None = None,
        queries: Queries | None = None,
    ) -> Passed:
        """Run an executed block, counted from 0; ``queries`` are those of the last attention.

        The stack's first attention appends to the context's ``values``.
        """
        auxiliary = None
        is_last = layer == len(self.slots) - 1
        contexts = [context.of(layer, index) for index in range(len(self.sublayers))]
        if cache is not None:
            for index, each in enumerate(contexts):
                contexts[index] = replace(each, key_values=cache.key_values(layer, index))
        if queries is not None and is_last:
            for index in self.last_attention:
                contexts[index] = contexts[index].at(queries)
        parts = list(zip(self.block(layer), contexts, strict=True))
        for first, *joined in self.groups:
            sublayer, sub_context = parts[first]
            if joined:
                x, loss = sublayer(x, sub_context, [parts[index] for index in joined])
            else:
                x, loss = sublayer(x, sub_context)
            auxiliary = add_losses(auxiliary, loss)
        return x, auxiliary
