"""Loaded models: a module of PyTorch with its tokenizer, asked by methods."""

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sublayer.api import writing
from sublayer.api.ask import as_text
from sublayer.api.results import Completions, Texts, Translations

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from sublayer.model.output import Filling
    from sublayer.model.transformer import Transformer
    from sublayer.tasks.predicting import NamedPrediction


@dataclass(frozen=True, eq=False, repr=False)
class Pretrained:
    """A loaded model, called as its module is, and asked by methods.

    ``model`` is the module of PyTorch, for what takes one, such as ``torch.compile``. Its
    attributes are found here too: ``config``, ``tokenizer``, ``task``, ``logits``,
    ``state_dict()``, ``parameters()``, ``to``, ``eval`` ... Given to ``sublayer.generate`` or
    ``sublayer.translate`` in place of a path, it is not loaded again.
    """

    model: "Transformer"
    path: Path

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Compute the outputs of the module."""
        return self.model(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "model":
            raise AttributeError(name)
        return getattr(self.model, name)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return repr(self.model)

    def predict(
        self, rows: Iterable[Any], *, task: str | None = None, batch: int | None = None
    ) -> "list[NamedPrediction]":
        """Answer rows: texts, tuples of texts, or mappings by the names of the task's fields.

        Of a choice the choices stand behind the texts of a tuple, and as ``choices`` in a mapping.
        A row with an empty text is not answered. ``task`` names one of several that the model
        answers; ``batch`` rows are computed at a time.

        Raises ConfigError where the model answers no task, and DataError for a row that is none of
        these.
        """
        from sublayer.objective.supervised.answering import predict_rows

        return predict_rows(self.model, rows, task=task, batch=batch)

    def fill(self, text: str, n: int = 5) -> "list[list[Filling]]":
        """Return the ``n`` likeliest fillings of each mask of a text, with their probabilities.

        A mask is ``[MASK]``, ``<mask>`` or, of a T5, ``<extra_id_0>`` and so on, too. Raises as
        ``sublayer.decode.gaps.fill_masks`` does.
        """
        from sublayer.decode.gaps import fill_masks

        return fill_masks(self.model, text, n)

    def embed(
        self,
        texts: Iterable[str],
        *,
        pool: Literal["mean", "first", "last"] = "mean",
        normalize: bool = False,
        batch: int | None = None,
    ) -> "NDArray[np.float32]":
        """Return a vector of each text, ``[N, D]``: its final hidden states, pooled.

        What is cut or empty is said. Raises as ``sublayer.evaluation.vectors.embed_texts`` does.
        """
        from sublayer.evaluation.vectors import embed_all

        return embed_all(self.model, texts, pool=pool, normalize=normalize, batch=batch)

    def generate(self, prompt: str, **options: Any) -> Texts | Completions:
        """Continue a prompt by a decoder, or complete one with gaps: ``sublayer.generate``."""
        return writing.generate(self, prompt, **options)

    def translate(self, lines: Iterable[str], **options: Any) -> Translations:
        """Translate lines: ``sublayer.translate``."""
        return writing.translate(self, lines, **options)


def load(
    path: str | PathLike[str],
    device: "str | torch.device" = "cpu",
    dtype: "torch.dtype | None" = None,
    *,
    average: int | None = None,
) -> Pretrained:
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
    from sublayer.loading import load as load_model

    folder = as_text(path)
    return Pretrained(load_model(folder, device=device, dtype=dtype, average=average), Path(folder))
