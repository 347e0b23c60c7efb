"""Loading as the public name does it: a model that also answers rows of its task."""

from os import PathLike
from typing import TYPE_CHECKING

from sublayer.api.ask import as_text

if TYPE_CHECKING:
    import torch

    from sublayer.model.transformer import Transformer


def load(
    path: str | PathLike[str],
    device: "str | torch.device" = "cpu",
    dtype: "torch.dtype | None" = None,
    *,
    average: int | None = None,
) -> "Transformer":
    """Load a model in evaluation mode, with its ``.config``, ``.tokenizer`` and ``.task``.

    ``path`` is a run, a checkpoint, or a model folder (as training saves it and ``sublayer import``
    writes it). Of a run it is the final model, or, before there is one, the checkpoint of the best
    evaluation, or else the newest whole one. ``average`` gives the mean of a run's newest
    checkpoints, so many, instead (Vaswani et al. 2017, sec. 6.1). ``dtype`` converts the weights;
    None makes them float32, but where all were saved as float64. ``.tokenizer`` is None where the
    folder has none; ``predict`` answers rows where the model was fine-tuned, ``fill`` fills masks
    and ``embed`` gives vectors of texts.

    Raises CheckpointError where there is no such model, or it is damaged, or of another format;
    ConfigError for a device that is not there, or fewer checkpoints than are asked for.
    """
    from sublayer.decode.gaps import fill_masks
    from sublayer.evaluation.vectors import embed_all
    from sublayer.loading import load as load_model
    from sublayer.objective.supervised.answering import predict_rows

    model = load_model(as_text(path), device=device, dtype=dtype, average=average)
    model.functions = {"predict": predict_rows, "fill": fill_masks, "embed": embed_all}
    return model
