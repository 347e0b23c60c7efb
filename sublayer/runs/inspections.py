"""Inspections of runs: sample of a text for each stack, and the measurements on it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.config.objective import SpanObjective
from sublayer.config.recipe import Recipe
from sublayer.config.stacks import is_one_block
from sublayer.data.store import Split
from sublayer.data.tasks.figure import show_tokens
from sublayer.decode.beam import tokenizer_of
from sublayer.errors import ConfigError, DataError
from sublayer.files.lines import text_lines
from sublayer.inspection.layer_change import LayerChange
from sublayer.inspection.splitting import check_flows, measure_splitting
from sublayer.inspection.states import (
    Panel,
    Sample,
    corrupted_rows,
    follow_tokens,
    measure_layers,
    project,
    spread_pairs,
    spread_rows,
    spread_windows,
)
from sublayer.loading import load
from sublayer.model.transformer import EncoderDecoder, Transformer
from sublayer.objective.base import context_of, family_of_model, scored_sequences
from sublayer.objective.span import scored_pieces
from sublayer.objective.translation import scoring_batches
from sublayer.runs.texts import TokenProgress, other_text, own_split, recipe_of
from sublayer.system.machine import choose_device
from sublayer.text_model import TextModel

_ONE_ROW = 1
"""Most tokens sampled for paths: at least one row, whatever its length."""


@dataclass(frozen=True)
class InspectedText:
    """The text, most tokens, rows computed at a time, and the device of an inspection.

    None: each run's validation split, an efficient number of rows, and the best device.
    """

    path: str | None
    max_tokens: int
    batch: int | None
    device: str | None

    def read_text(self, run: Path, text_model: TextModel, recipe: Recipe | None) -> Split:
        """Read the text: a run's validation split by default."""
        if self.path is None:
            return own_split(run, recipe, text_model, "valid")
        return other_text(run, text_model, self.path, None, "valid")

    def rows(self, model: Transformer, context: int) -> int:
        """Return the rows of a context computed at a time."""
        return self.batch or scored_sequences(model, context)

    def sample_stacks(
        self,
        run: Path,
        text_model: TextModel,
        recipe: Recipe | None,
        *,
        cuts_windows: bool = False,
    ) -> tuple[tuple[Sample, ...], Sequence[str]]:
        """Sample the input of each stack of a model, an encoder first; return samples and sources.

        A translator reads pairs of its validation split; lines of ``--path``, without translations,
        only by its encoder. A model that fills gaps reads pieces of the text, corrupted as in
        scoring. All others read windows, an encoder-decoder that answers tasks only by its encoder;
        with ``cuts_windows`` these are no longer than the text.

        Raises ConfigError without a text, DataError if it is too short.
        """
        model, kind = text_model.model, ""
        if isinstance(model, EncoderDecoder):
            kind, _ = family_of_model(text_model, recipe)
            if kind == "translation" and self.path is not None:
                return (_lines(text_model, self.path, self.max_tokens),), (self.path,)
            if kind == "translation":
                split = own_split(run, recipe, text_model, "valid")
                assert recipe is not None, "a run's own split needs a recipe"
                batches = scoring_batches(recipe, split)
                return spread_pairs(batches, max_tokens=self.max_tokens), split.sources
        text = self.read_text(run, text_model, recipe)
        context = context_of(model, recipe)
        if kind == "span":
            # Outside a run pieces are corrupted as in T5's training.
            objective = SpanObjective() if recipe is None else recipe.objective
            assert isinstance(objective, SpanObjective), "the row is of span corruption"
            assert isinstance(model, EncoderDecoder), "only encoder-decoders fill gaps"
            pieces = scored_pieces(
                model,
                text,
                objective,
                context=context,
                boundaries="ignore" if recipe is None else recipe.data.boundaries,
                most_tokens=self.max_tokens,
            )
            return corrupted_rows(pieces), text.sources
        context = min(context, len(text.ids)) if cuts_windows else context
        return (_windows(text, recipe, context, self.max_tokens),), text.sources


def _windows(text: Split, recipe: Recipe | None, context: int, max_tokens: int) -> Sample:
    return spread_windows(
        text,
        context=context,
        max_tokens=max_tokens,
        respect_boundaries=recipe is not None and recipe.data.boundaries == "respect",
    )


def inspect_layers(
    run: Path, reading: InspectedText, beyond: int
) -> tuple[dict[str, Any], list[LayerChange]]:
    """Measure a model's layers; return a description of run and text, and each layer's changes.

    Raises ConfigError if the model's blocks read two texts.
    """
    text_model = load(run, device=choose_device(reading.device))
    model = text_model.model
    if len(model.stacks) > 1:
        raise ConfigError(
            f"{run} is an {model.config.kind}, and its decoder's blocks read two texts: "
            "name a decoder or an encoder, or inspect splitting"
        )
    recipe = recipe_of(run)
    context = context_of(model, recipe)
    text = reading.read_text(run, text_model, recipe)
    sample = _windows(text, recipe, context, reading.max_tokens)
    changes = measure_layers(
        model,
        sample,
        batch_sequences=reading.rows(model, context),
        beyond=beyond if is_one_block(model.config) else 0,
        progress=TokenProgress(f"{run}: read"),
    )
    about = {
        "run": str(run),
        "kind": model.config.kind,
        "n_layers": model.config.n_layers,
        "tokens": sample.n_tokens,
        "windows": len(sample),
        "context": context,
        "split": None if reading.path else text.name,
        "sources": list(text.sources),
        "sha256": text.store.sha256,
    }
    return about, changes


def inspect_splitting(run: Path, reading: InspectedText) -> dict[str, Any]:
    """Measure the deviation of a trained model's layers from their flows."""
    text_model = load(run, device="cpu" if reading.device is None else reading.device)
    model = text_model.model
    check_flows(model.config, str(run))
    recipe = recipe_of(run)
    samples, _ = reading.sample_stacks(run, text_model, recipe)
    errors = measure_splitting(
        model,
        *samples,
        batch_sequences=reading.rows(model, context_of(model, recipe)),
        progress=TokenProgress(f"{run}: read"),
    )
    n_tokens = sum(sample.n_tokens for sample in samples)
    return {"run": str(run), "tokens": n_tokens, "layers": [asdict(layer) for layer in errors]}


def inspect_paths(run: Path, reading: InspectedText) -> tuple[dict[str, Any], list[Panel]]:
    """Follow the first tokens of a text; return a description, and a panel for each stack."""
    text_model = load(run, device=choose_device(reading.device))
    model = text_model.model
    if model.config.kind == "lstm":
        raise ConfigError(
            f"{run} is an LSTM, which has no sub-layers that add a step to a token's state: "
            "name a decoder, an encoder or an encoder-decoder"
        )
    one_row = replace(reading, max_tokens=_ONE_ROW)
    samples, sources = one_row.sample_stacks(run, text_model, recipe_of(run), cuts_windows=True)
    panels = []
    all_paths = follow_tokens(model, samples, n_tokens=reading.max_tokens)
    for paths, sample in zip(all_paths, samples, strict=True):
        n_followed = paths.states.shape[1]
        ids = sample.tokens[sample.is_real][:n_followed].numpy()
        assert text_model.tokenizer is not None, "the text was read by it"
        tokens = show_tokens(ids, text_model.tokenizer)
        coordinates, shares = project(paths.states)
        panels.append(Panel(paths.stack, tokens, paths.steps, shares, coordinates.tolist()))
    split = None if reading.path else "valid"
    about = {"run": str(run), "kind": model.config.kind, "split": split, "sources": list(sources)}
    return about, panels


def _lines(text_model: TextModel, path: str, max_tokens: int) -> Sample:
    """Sample the lines of a file as input of a translator's encoder."""
    tokenizer = tokenizer_of(text_model)
    longest = context_of(text_model.model, None)
    assert tokenizer.sep_id is not None, "the vocabulary was checked"
    assert tokenizer.pad_id is not None, "the vocabulary was checked"
    rows = tokenizer.encode_source(text_lines(Path(path)))
    usable = [np.append(row, tokenizer.sep_id) for row in rows if 0 < len(row) < longest]
    if not usable:
        raise DataError(
            f"{path} has no line of 1 to {longest - 1:,} tokens to sample: give other lines"
        )
    return spread_rows(usable, pad_id=tokenizer.pad_id, max_tokens=max_tokens)
