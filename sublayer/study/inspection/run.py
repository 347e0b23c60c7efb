"""The inspection of a run: measured where it was not yet, and kept beside it."""

from pathlib import Path

from sublayer.config.recipe import Recipe
from sublayer.data.split import Split
from sublayer.files.storage import write_json
from sublayer.inspection.layers import measure_layers
from sublayer.inspection.sample import Sample, spread_windows
from sublayer.loading import load
from sublayer.objective.evaluation import batch_sequences
from sublayer.study.inspection.asked import Inspecting
from sublayer.study.inspection.kept import LAYERS, InspectedLayers, kept_layers, read_layers
from sublayer.system.machine import choose_device


def inspect_run(
    run: Path, recipe: Recipe, split: Split, asked: Inspecting, *, device: str | None
) -> None:
    """Measure the layers of a trained run and keep that beside it, unless it is there.

    ``device`` is as on the command line; None for the best there is. Raises DataError where the
    split is too short, and CheckpointError where what is kept, or the model, is damaged.
    """
    if read_layers(run, asked) is not None:
        return
    model = load(run, device=choose_device(device))
    sample = sample_of(recipe, split, asked)
    changes = measure_layers(
        model,
        sample,
        batch_sequences=batch_sequences(model, recipe.data.context),
        beyond=asked.n_beyond(model.config),
    )
    found = InspectedLayers(split.name, sample.n_tokens, len(sample), changes)
    write_json(run / LAYERS, kept_layers(asked, found))


def sample_of(recipe: Recipe, split: Split, asked: Inspecting) -> Sample:
    """Take what is read of a split: the same for all runs of an arm.

    Raises DataError where the split is shorter than a window.
    """
    return spread_windows(
        split,
        context=recipe.data.context,
        max_tokens=asked.tokens,
        respect_boundaries=recipe.data.boundaries == "respect",
    )
