"""``sublayer inspect layers``: what each block does to the embeddings of a text."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.commands.inspect.plot_file import short_names, write_plot
from sublayer.commands.inspect.samples import SampleOptions
from sublayer.commands.shared.base import JsonObject
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.files.paths import as_typed
from sublayer.objective.evaluation import context_of
from sublayer.runs.texts import TokenProgress, recipe_of
from sublayer.system.stages import stage
from sublayer.system.terminal import paragraph, terminal_width
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.inspection.layer_change import LayerChange

_HEADINGS = (
    "block",
    "distance",
    "quartiles",
    "angle",
    "quartiles",
    "cosine",
    "norm in",
    "norm out",
)


def inspect_layers(
    runs: Sequence[Path], options: SampleOptions, beyond: int | None, out: Path | None
) -> dict[str, Any]:
    """Measure the layers of runs, draw them where asked, and return the result as JSON.

    ``beyond`` further executions are of the runs that are one block. Raises ConfigError where none
    is.
    """
    from sublayer.config.architecture.stacks import is_one_block
    from sublayer.inspection.layer_change import draw_layers, flat
    from sublayer.loading import find_model
    from sublayer.model.model_folder import read_config

    if beyond is not None and not any(is_one_block(read_config(find_model(run))) for run in runs):
        raise ConfigError(
            "--beyond runs the block that all layers share, and layers of "
            f"{runs[0]} have weights or positions of their own: leave it out, or name a run with "
            "model.share = all"
        )
    measured = []
    for run in runs:
        with stage(f"inspecting {run}"):
            measured.append(_measure(run, options, beyond or 0))
    if out is not None:
        by_name = zip(short_names(runs), (changes for _, changes in measured), strict=True)
        write_plot(out, draw_layers(dict(by_name)))
    results = []
    for about, changes in measured:
        results.append({**about, "layers": [flat(change) for change in changes]})
    return {"what": "layers", "runs": results, "out": out}


def _measure(
    run: Path, options: SampleOptions, beyond: int
) -> "tuple[dict[str, Any], list[LayerChange]]":
    """Measure a model's layers; return what was read, and the changes of each layer.

    Raises ConfigError where the model's blocks read two texts.
    """
    from sublayer.config.architecture.stacks import is_one_block
    from sublayer.inspection.layers import measure_layers
    from sublayer.inspection.sample import spread_windows
    from sublayer.loading import load
    from sublayer.system.machine import choose_device

    model = load(run, device=choose_device(options.device))
    if len(model.stacks) > 1:
        raise ConfigError(
            f"{run} is an {model.config.kind}, whose blocks read two texts: "
            "name a decoder or an encoder, or inspect splitting"
        )
    recipe = recipe_of(run)
    context = context_of(model, recipe)
    text = options.read_text(run, model, recipe)
    sample = spread_windows(
        text,
        context=context,
        max_tokens=options.max_tokens,
        respect_boundaries=recipe is not None and recipe.data.boundaries == "respect",
    )
    changes = measure_layers(
        model,
        sample,
        batch_sequences=options.rows(model, context),
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
        "split": None if options.path else text.name,
        "sources": list(text.sources),
        "sha256": text.store.sha256,
    }
    return about, changes


def render_layers(result: JsonObject) -> str:
    """Format what was read, and what was measured."""
    runs = result["runs"]
    parts = []
    for run in runs:
        layers = _table(run["layers"])
        parts.append(f"{paragraph(_describe(run))}\n{layers}")
    digests = {run["sha256"] for run in runs}
    if len(digests) > 1:
        parts.append("the runs read different texts: give one to all by --path")
    if result["out"] is not None:
        parts.append(f"drawn in {result['out']}")
    return "\n\n".join(parts)


def _describe(run: JsonObject) -> str:
    sources = ", ".join(map(as_typed, run["sources"]))
    if run["split"] is not None:
        sources = f"the {run['split']} split of {sources}"
    windows = f"{count(run['windows'], 'window')} of {run['context']:,}"
    read = f"{run['run']}: {count(run['tokens'], 'token')} of {sources}, in {windows}"
    n_beyond = len(run["layers"]) - run["n_layers"]
    if not n_beyond:
        return read
    return f"{read}; from block {run['n_layers'] + 1} on the shared one is run beyond the model's"


def _table(layers: Sequence[JsonObject]) -> str:
    rows = [_row(layer) for layer in layers]
    return table(_HEADINGS, rows, right=[0, 1, 3, 5, 6, 7], width=terminal_width())


def _row(layer: JsonObject) -> list[str]:
    return [
        str(layer["layer"]),
        _number(layer["distance"], ".4g"),
        _quartiles(layer["distance_quartiles"], ".4g"),
        f"{_number(layer['angle_degrees'], '.2f')}°",
        _quartiles(layer["angle_degrees_quartiles"], ".1f"),
        _number(layer["cosine"], ".4f"),
        _number(layer["norm_in"], ".4g"),
        _number(layer["norm_out"], ".4g"),
    ]


def _quartiles(values: Sequence[float | None], form: str) -> str:
    lower, _, upper = values
    return f"{_number(lower, form)} to {_number(upper, form)}"


def _number(value: float | None, form: str) -> str:
    return format(math.nan if value is None else value, form)
