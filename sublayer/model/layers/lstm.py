"""An LSTM layer over the documents of a batch, with its state."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from sublayer.config.recipe import ResolvedModel
from sublayer.config.roles import Role
from sublayer.model.cache import LstmState
from sublayer.model.context import Context, Runs
from sublayer.model.kernels.dropout import dropout

N_GATES = 4
"""Maps that are stored one below another: of the input, forget, cell and output gates."""


_WORTH_PACKING = 0.5
"""The share of real tokens below which a CPU packs rows that it could read whole: about where both
take as long with AVX2; with AVX-512 whole rows stay faster (benchmarks/kernel_choices.py)."""


class GateMaps(nn.LSTM):
    """PyTorch's LSTM of one layer, with unset weights: see init.py.

    ``i, f, o = sigmoid(W x + U h + b)`` each, ``g = tanh(W x + U h + b)``, ``c = f c + i g``, ``h =
    o tanh(c)``; b is the sum of two vectors, as cuDNN has them (Hochreiter and Schmidhuber 1997,
    with the forget gate of Gers et al. 2000).
    """

    roles: ClassVar[Mapping[str, Role]] = {
        "weight_ih_l0": "matrix",
        "weight_hh_l0": "matrix",
        "bias_ih_l0": "bias",
        "bias_hh_l0": "bias",
    }

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__(config.d_model, config.d_model, bias=config.bias, batch_first=True)

    def reset_parameters(self) -> None:
        """Leave the weights unset, and the global generator as it is."""


class LstmLayer(nn.Module):
    """Compute the states of an LSTM layer, with dropout, without a residual connection.

    Documents start from zero states, and padding is not read. Under autocast a CPU computes in
    float32: not every processor has bfloat16 kernels.
    """

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        self.function = GateMaps(config)
        self.p_output = config.dropout

    def forward(
        self, x: Float[Tensor, "B T D"], context: Context
    ) -> tuple[Float[Tensor, "B T D"], None]:
        """Compute the state at each token, after the cache's; zero at padding."""
        state = context.key_values
        assert state is None or isinstance(state, LstmState), "a layer of an LSTM keeps its state"
        device = x.device.type
        with torch.autocast(device, enabled=device != "cpu" and torch.is_autocast_enabled(device)):
            runs = context.layout.runs
            if runs is None:
                y = self._whole(x, state)
            elif state is None and _is_read_whole(runs, device):
                # Later tokens do not affect earlier ones.
                y = self._whole(x, None).masked_fill(~runs.is_real[:, :, None], 0.0)
            else:
                y = self._packed(x, runs, state)
        # Autocast must not narrow states between layers.
        return dropout(y.to(x.dtype), self.p_output, self.training), None

    def _whole(self, x: Tensor, state: LstmState | None) -> Tensor:
        """Read rows in which every token follows the one before."""
        before = None if state is None else state.get(x.dtype)
        y, after = self.function(x, before)
        if state is not None:
            output, cell = after
            state.set(output, cell)
        whole: Tensor = y
        return whole

    def _packed(self, x: Tensor, runs: Runs, state: LstmState | None) -> Tensor:
        """Read the real tokens of each document as a sequence, longest first."""
        packing = runs.packing()
        if not len(packing.tokens):
            return torch.zeros_like(x)
        rows = x.flatten(0, 1)
        sequences = PackedSequence(rows.index_select(0, packing.tokens), packing.batch_sizes)
        before = None
        if state is not None:
            # Documents are separated only without a past: otherwise a sequence is a row.
            before = state.get(x.dtype, packing.sequences)
        y, after = self.function(sequences, before)
        if state is not None:
            output, cell = after
            state.set(output, cell, packing.sequences)
        read: Tensor = y.data
        every = read.new_zeros(len(rows), read.shape[1])
        return every.index_copy(0, packing.tokens, read).view(x.shape)


def _is_read_whole(runs: Runs, device: str) -> bool:
    """Check whether to read padded rows in full: where that is correct and faster."""
    return device == "cpu" and runs.is_one_a_row and runs.real_share >= _WORTH_PACKING
