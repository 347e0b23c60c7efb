"""Distance and angle between each block's input and output."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sublayer.config.stacks import is_one_block
from sublayer.data.arrays import Floats
from sublayer.inspection.layer_change import LayerChange, Spread
from sublayer.inspection.sample import Sample
from sublayer.model.transformer import Transformer, evaluating


def measure_layers(
    model: Transformer,
    sample: Sample,
    *,
    batch_sequences: int,
    beyond: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[LayerChange]:
    """Compare input and output of every executed block over a sample's real tokens.

    A block's input includes position vectors added before it; its output is taken after the norm of
    a post-norm block, before the model's final norm. Blocks that share weights all count. An
    encoder reads its rows as first segments. The single block of a model (``is_one_block``) is
    executed ``beyond`` more times, on its last output. ``batch_sequences``, the rows per batch,
    changes speed and memory only; ``progress`` receives the tokens done and the total.

    Blocks compute in the dtype of the weights, the comparison in float64; a state of 0 has no
    angle, and makes the block's NaN. Source: Lan et al. 2020 (1909.11942), sec. 3.1 and Fig. 1,
    which do not name the text; the angle is averaged over tokens, not computed from the mean
    cosine. Departure: executions beyond the model's blocks, which the figure lacks.
    """
    assert beyond == 0 or is_one_block(model.config), "blocks of their own have no further one"
    device = next(model.parameters()).device
    batches: list[list[Floats]] = []  # by batch and block, [5, N]
    n_done = 0
    with evaluating(model):
        for low in range(0, len(sample), batch_sequences):
            high = low + batch_sequences
            rows = sample[low:high].to(device)
            compared = _compare_blocks(model, rows, beyond)
            batches.append([values.cpu().numpy() for values in compared])
            n_done += rows.n_tokens
            if progress is not None:
                progress(n_done, sample.n_tokens)
    changes = []
    layers = zip(*batches, strict=True)
    for layer, of_batches in enumerate(layers, start=1):
        values = np.concatenate(of_batches, axis=1)  # [5, all tokens]
        spreads = map(_spread, values)
        is_beyond = layer > model.config.n_layers
        changes.append(LayerChange(layer, *spreads, is_beyond=is_beyond))
    return changes


def compare_states(
    before: Float[Tensor, "N D"], after: Float[Tensor, "N D"]
) -> Float[Tensor, "5 N"]:
    """Compute the quantities of ``LayerChange`` for each token, in its order, in float64.

    A state of 0 has no direction: its cosine and its angle are NaN.
    """
    before = before.double()
    after = after.double()
    norm_in = before.norm(dim=1)  # [N], like all quantities
    norm_out = after.norm(dim=1)
    unit_in = before / norm_in[:, None]
    unit_out = after / norm_out[:, None]
    distance = (after - before).norm(dim=1)
    product = (unit_in * unit_out).sum(1)
    cosine = product.clamp(-1.0, 1.0)
    # The arc cosine would lose small angles to rounding.
    half_sine = (unit_in - unit_out).norm(dim=1)
    half_cosine = (unit_in + unit_out).norm(dim=1)
    angle = 2.0 * torch.atan2(half_sine, half_cosine)
    return torch.stack([distance, cosine, angle.rad2deg(), norm_in, norm_out])


@torch.inference_mode()
def _compare_blocks(model: Transformer, rows: Sample, beyond: int) -> list[Tensor]:
    """Compare the real tokens' states before and after each block, ``[5, N]`` each."""
    layout = rows.layout(model.shape)
    n_layers = model.config.n_layers
    states = model.hidden(rows.tokens, layout, capture=range(n_layers + 1)).captured
    real = rows.is_real
    compared = []
    for layer in range(n_layers):
        before = states[layer]
        after = states[layer + 1]
        # What enters the first block was captured with its positions.
        if layer > 0:
            before = model.positions.add(before, layer, layout.positions)
        quantities = compare_states(before[real], after[real])
        compared.append(quantities)
    x = states[n_layers]
    context = model.context(layout, x.dtype)
    for _ in range(beyond):
        before = x
        for sublayer in model.stack.block(0):
            x, _ = sublayer(x, context)
        compared.append(compare_states(before[real], x[real]))
    return compared


def _spread(values: Floats) -> Spread:
    quartiles = np.quantile(values, (0.25, 0.5, 0.75))
    lower, median, upper = quartiles.tolist()
    return Spread(float(values.mean()), (lower, median, upper))
