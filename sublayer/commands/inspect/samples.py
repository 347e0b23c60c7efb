"""The sample of a text that each stack of a model reads for ``sublayer inspect``."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sublayer.errors import DataError
from sublayer.objective.evaluation import batch_sequences, context_of
from sublayer.runs.texts import other_text, own_split

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.split import Split
    from sublayer.inspection.sample import Sample
    from sublayer.model.encoder_decoder import EncoderDecoder
    from sublayer.model.transformer import Transformer


@dataclass(frozen=True)
class SampleOptions:
    """Which text is read, how many of its tokens at most, how many rows at a time, and where.

    None is each run's validation split, the number of rows that a device is quick with, and the
    device that there is.
    """

    path: str | None
    max_tokens: int
    batch: int | None
    device: str | None

    def read_text(self, run: Path, model: "Transformer", recipe: "Recipe | None") -> "Split":
        """Read the text: a run's own validation split, unless another was named."""
        if self.path is None:
            return own_split(run, recipe, model, "valid")
        return other_text(run, model, self.path, None, "valid")

    def rows(self, model: "Transformer", context: int) -> int:
        """Return how many rows of a context are computed at a time."""
        return self.batch or batch_sequences(model, context)


@dataclass(frozen=True)
class StackSamples:
    """A sample for each stack that reads something: an encoder's first, then a decoder's."""

    samples: "tuple[Sample, ...]"
    sources: tuple[str, ...]
    """What they were taken from."""


def sample_stacks(
    run: Path,
    model: "Transformer",
    recipe: "Recipe | None",
    options: SampleOptions,
    *,
    cuts_windows: bool = False,
) -> StackSamples:
    """Sample what each stack of a model reads of the text that was asked for.

    A translator reads pairs of its validation split; of the lines of ``--path``, which have no
    translation, its encoder alone. A model that fills gaps reads pieces of the text, corrupted as
    where it is scored. All others read windows, an encoder-decoder that answers tasks with its
    encoder alone; with ``cuts_windows`` these are no longer than the text.

    Raises ConfigError where there is no text, DataError where it is too short.
    """
    from sublayer.inspection.sample import spread_windows
    from sublayer.model.encoder_decoder import EncoderDecoder
    from sublayer.objective.families import family_of_model

    if isinstance(model, EncoderDecoder):
        kind, _ = family_of_model(model, recipe)
        if kind == "translation":
            if options.path is None:
                return _pairs(run, model, recipe, options.max_tokens)
            return _lines(model, options.path, options.max_tokens)
        if kind == "span":
            return _pieces(run, model, recipe, options)
    text = options.read_text(run, model, recipe)
    context = context_of(model, recipe)
    if cuts_windows:
        context = min(context, len(text.ids))
    windows = spread_windows(
        text,
        context=context,
        max_tokens=options.max_tokens,
        respect_boundaries=recipe is not None and recipe.data.boundaries == "respect",
    )
    return StackSamples((windows,), text.sources)


def _pairs(
    run: Path, model: "EncoderDecoder", recipe: "Recipe | None", tokens: int
) -> StackSamples:
    """Sample what a translator reads of its validation split: sources, and targets."""
    from sublayer.inspection.sample import spread_pairs
    from sublayer.objective.translation.loss import scoring_batches

    split = own_split(run, recipe, model, "valid")
    assert recipe is not None, "a split of its own belongs to a run"
    pairs = spread_pairs(scoring_batches(recipe, split), max_tokens=tokens)
    return StackSamples(pairs, split.sources)


def _lines(model: "EncoderDecoder", path: str, tokens: int) -> StackSamples:
    """Sample what a translator's encoder reads of the lines of a file."""
    from sublayer.decode.translate import tokenizer_of
    from sublayer.files.lines import text_lines
    from sublayer.inspection.sample import spread_rows

    tokenizer = tokenizer_of(model)
    longest = context_of(model, None)
    assert tokenizer.sep_id is not None, "the vocabulary was checked"
    assert tokenizer.pad_id is not None, "the vocabulary was checked"
    rows = tokenizer.encode_source(text_lines(Path(path)))
    kept = []
    for row in rows:
        if 0 < len(row) < longest:
            kept.append(np.append(row, tokenizer.sep_id))
    if not kept:
        raise DataError(
            f"{path} has no line of 1 to {longest - 1:,} tokens, of which a sample could be taken"
        )
    sample = spread_rows(kept, pad_id=tokenizer.pad_id, max_tokens=tokens)
    return StackSamples((sample,), (path,))


def _pieces(
    run: Path, model: "EncoderDecoder", recipe: "Recipe | None", options: SampleOptions
) -> StackSamples:
    """Sample what a model that fills gaps reads of a text: pieces with gaps, and what fills them.

    Outside a run they are corrupted as T5 was trained.
    """
    from sublayer.config.objectives.span import SpanObjective
    from sublayer.inspection.sample import corrupted_rows
    from sublayer.objective.span import scored_pieces

    text = options.read_text(run, model, recipe)
    objective = SpanObjective()
    if recipe is not None:
        assert isinstance(recipe.objective, SpanObjective), "the row is of span corruption"
        objective = recipe.objective
    pieces = scored_pieces(
        model,
        text,
        objective,
        context=context_of(model, recipe),
        boundaries="ignore" if recipe is None else recipe.data.boundaries,
        most_tokens=options.max_tokens,
    )
    return StackSamples(corrupted_rows(pieces), text.sources)
