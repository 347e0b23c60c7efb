"""How far each block moves the embeddings of tokens, and by what angle it turns them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from sublayer.inspect.sample import Sample
from sublayer.model.layout import Layout
from sublayer.model.mode import evaluating
from sublayer.model.transformer import Transformer

QUANTITIES = ("distance", "cosine", "angle_degrees", "norm_in", "norm_out")

_LAYOUTS = {"decoder": Layout.causal, "encoder": Layout.bidirectional}


@dataclass(frozen=True)
class Spread:
    """A quantity over tokens: its mean, and its lower quartile, median and upper quartile."""

    mean: float
    quartiles: tuple[float, float, float]


@dataclass(frozen=True)
class LayerChange:
    """What an executed block, counted from 1, does to tokens: between its input and its output, and their L2 norms."""

    layer: int
    distance: Spread
    cosine: Spread
    angle_degrees: Spread
    norm_in: Spread
    norm_out: Spread


def measure_layers(
    model: Transformer,
    sample: Sample,
    *,
    batch_sequences: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[LayerChange]:
    """Compare the input and the output of every executed block, over the real tokens of a sample.

    A block's input is what enters it: vectors of positions that are added before it belong to it. Its output is what
    leaves it: after the norm of a post-norm block, before the model's final norm. Blocks that share weights all count.
    An encoder reads its rows as first segments. ``batch_sequences`` rows are computed at a time, which changes speed
    and memory only; ``progress`` is told the tokens done and the tokens in all.

    The blocks compute in the type of the model's weights, the comparison is in float64; a token of which a state is 0
    has no angle, and makes the block's NaN. Source: Lan et al. 2020 (1909.11942), sec. 3.1 and Fig. 1, which do not
    name the text; the angle is averaged over tokens, and not that of the mean cosine.
    """
    device = next(model.parameters()).device
    found: list[list[NDArray[np.float64]]] = [[] for _ in range(model.config.n_layers)]
    done = 0
    with evaluating(model):
        for low in range(0, len(sample), batch_sequences):
            rows = sample[low : low + batch_sequences].to(device)
            for values, compared in zip(found, _compare_blocks(model, rows), strict=True):
                values.append(compared.cpu().numpy())
            done += rows.n_tokens
            if progress is not None:
                progress(done, sample.n_tokens)
    return [_change(layer, np.concatenate(values, axis=1)) for layer, values in enumerate(found, start=1)]


def compare_states(before: Float[Tensor, "N D"], after: Float[Tensor, "N D"]) -> Float[Tensor, "5 N"]:
    """Compute the ``QUANTITIES`` of each token's state before and after a block, in float64."""
    before, after = before.double(), after.double()
    norm_in, norm_out = before.norm(dim=1), after.norm(dim=1)
    unit_in, unit_out = before / norm_in[:, None], after / norm_out[:, None]
    cosine = (unit_in * unit_out).sum(1).clamp(-1.0, 1.0)
    # The arc cosine would lose small angles to rounding.
    angle = 2.0 * torch.atan2((unit_in - unit_out).norm(dim=1), (unit_in + unit_out).norm(dim=1))
    return torch.stack([(after - before).norm(dim=1), cosine, angle.rad2deg(), norm_in, norm_out])


@torch.inference_mode()
def _compare_blocks(model: Transformer, rows: Sample) -> list[Tensor]:
    """Compare the real tokens' states before and after each block, ``[5, N]`` each."""
    layout = _LAYOUTS[model.config.kind](rows.tokens, rows.mask, rows.document_ids)
    n_layers = model.config.n_layers
    states = model.hidden(rows.tokens, layout, capture=range(n_layers + 1)).captured
    real = torch.ones_like(rows.tokens, dtype=torch.bool) if rows.mask is None else rows.mask
    compared = []
    for layer in range(n_layers):
        # What enters the first block was captured with its positions.
        before = model.positions.add(states[layer], layer, layout.positions) if layer else states[0]
        compared.append(compare_states(before[real], states[layer + 1][real]))
    return compared


def _change(layer: int, values: NDArray[np.float64]) -> LayerChange:
    return LayerChange(layer, *(_spread(each) for each in values))


def _spread(values: NDArray[np.float64]) -> Spread:
    lower, median, upper = (float(each) for each in np.quantile(values, (0.25, 0.5, 0.75)))
    return Spread(float(values.mean()), (lower, median, upper))
