"""Inspections of models: effects of blocks on a text's tokens, measured, drawn and printed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

from sublayer.api.arguments import Device, Plugins, as_path, starting
from sublayer.api.results import Found, check_new, write_plot
from sublayer.config.table import MOST_LAYERS, MOST_ROWS
from sublayer.errors import ConfigError
from sublayer.files.storage import as_typed, resolved
from sublayer.numbers import count
from sublayer.options import Option, PathText, checked
from sublayer.system.terminal import paragraph, stage, terminal_width
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.runs.inspections import InspectedText

_FEWEST_FOLLOWED, _MOST_FOLLOWED = 2, 256


class InspectionOptions(TypedDict, total=False):
    """The inspected text, the plot's file, and the device of models."""

    path: Annotated[
        PathText | None,
        Option(
            "The text to read: a file, a folder or a glob. Default: each run's validation split.",
            metavar="PATH",
        ),
    ]
    tokens: Annotated[
        int | None,
        Option(
            "Largest number of tokens to read, in windows spread evenly over the text, at least "
            "one window (default: 8192); for paths, the number of first tokens of one window to "
            "follow, 2 to 256 (default: 16).",
            least=1,
            most=1_000_000_000,
        ),
    ]
    out: Annotated[PathText | None, Option("The new .svg file to draw a plot to.", metavar="FILE")]
    batch: Annotated[
        int | None,
        Option(
            "Windows computed at a time; affects speed and memory only.", least=1, most=MOST_ROWS
        ),
    ]
    device: Device
    plugins: Plugins


@checked
def inspect_layers(
    *runs: PathText,
    beyond: Annotated[
        int | None,
        Option(
            "Extra applications, in inspect layers, of the block shared by all layers.",
            least=1,
            most=MOST_LAYERS,
        ),
    ] = None,
    **options: Unpack[InspectionOptions],
) -> Found:
    """Measure the effect of each block of models on the tokens of a text.

    Distances, angles in degrees and norms, over ``tokens`` tokens at most (8192) of each run's
    validation split, or of the text of ``path``; a block shared by all layers is run ``beyond``
    times more; ``out`` is an SVG file of the plot. Raises ConfigError for encoder-decoders.
    """
    models = _models(runs, options, "layers")
    from sublayer.config.stacks import is_one_block
    from sublayer.inspection.layer_change import LayerChange, draw_layers
    from sublayer.loading import find_model
    from sublayer.model.model_folder import read_config
    from sublayer.runs import inspections

    if beyond and not any(is_one_block(read_config(find_model(run))) for run in models):
        raise ConfigError(
            f"--beyond needs one block shared by all layers, but layers of {models[0]} have their "
            "own weights or positions: leave it out, or name a run with model.share = all"
        )
    changes: list[Sequence[LayerChange]] = []

    def measure(run: Path, reading: "InspectedText") -> dict[str, Any]:
        about, of_run = inspections.inspect_layers(run, reading, beyond or 0)
        changes.append(of_run)
        return {**about, "layers": [change.flat() for change in of_run]}

    results = _measured("layers", models, options, measure)
    _draw(options, lambda: draw_layers(dict(zip(_short_names(models), changes, strict=True))))
    parts = []
    for run in results["runs"]:
        windows = f"{count(run['windows'], 'window')} of {run['context']:,}"
        read = f"{run['run']}: {count(run['tokens'], 'token')} of {_sources(run)}, in {windows}"
        if len(run["layers"]) > run["n_layers"]:
            first = run["n_layers"] + 1
            read += f"; blocks from {first} on run the shared block beyond the model's layers"
        parts.append(f"{paragraph(read)}\n{_table(_CHANGES, run['layers'])}")
    if len({run["sha256"] for run in results["runs"]}) > 1:
        parts.append("the runs read different texts: give one to all by --path")
    return Found(results, "\n\n".join([*parts, *_drawn(results)]))


_CHANGES = (
    ("block", "{layer}"),
    ("distance", "{distance:.4g}"),
    ("quartiles", "{distance_quartiles[0]:.4g} to {distance_quartiles[2]:.4g}"),
    ("angle", "{angle_degrees:.2f}°"),
    ("quartiles", "{angle_degrees_quartiles[0]:.1f} to {angle_degrees_quartiles[2]:.1f}"),
    ("cosine", "{cosine:.4f}"),
    ("norm in", "{norm_in:.4g}"),
    ("norm out", "{norm_out:.4g}"),
)
_STEPS = (
    ("stack", "{stack}"),
    ("layer", "{layer}"),
    ("Lie", "{lie:.4f}"),
    ("Strang", "{strang:.4f}"),
    ("as trained", "{own:.4f}"),
    ("way", "{way:.4g}"),
)
"""Columns of tables: their headings, and the format of a row's fields."""
_LAYERS = "the distance between the ends of a step and of its flows, as a fraction of the way"
_ERRORS = "the error of a single step of size h, and its order in h"
_TERMS = (
    "Euler sub-steps: all err by h^2; "
    "how much of each product of a flow's derivative with a flow is in it (scheme "
    "less exact), and the length of their sum, as worked out and as measured (linear equation)"
)


@checked
def inspect_splitting(*runs: PathText, **options: Unpack[InspectionOptions]) -> Found:
    """Measure each layer's deviation from its flows; arguments as above.

    Without runs, the errors of splittings on equations with known flows.
    """
    models = _models(runs, options)
    from sublayer.inspection.splitting import draw_errors, draw_layers, known_errors, leading_terms
    from sublayer.runs.inspections import inspect_splitting as measure

    if models:
        results = _measured("splitting", models, options, measure)
        layers = dict(
            zip(_short_names(models), (run["layers"] for run in results["runs"]), strict=True)
        )
        _draw(options, lambda: draw_layers(layers))
        parts = []
        for run in results["runs"]:
            read = f"{run['run']}: {count(run['tokens'], 'token')}; {_LAYERS}"
            parts.append(f"{paragraph(read)}\n{_table(_STEPS, run['layers'])}")
        return Found(results, "\n\n".join([*parts, *_drawn(results)]))
    with stage("following known flows"):
        errors, terms = known_errors(), leading_terms()
    results = {"what": "splitting", "local_errors": errors, "leading_terms": terms}
    results["out"] = options.get("out")
    _draw(options, lambda: draw_errors(errors))
    largest, *_, smallest = errors[0]["steps"]
    headings = ["equation", "sub-steps", "splitting"]
    headings += [f"error, h = {largest:g}", f"h = {smallest:.4g}", "order"]
    rows = []
    for row in errors:
        order = row["slopes"][-1]
        numbers = [f"{row['errors'][0]:.2e}", f"{row['errors'][-1]:.2e}"]
        names = [row["equation"], row["substeps"], row["splitting"]]
        rows.append([*names, *numbers, "none" if math.isnan(order) else f"{order:.2f}"])
    shown = table(headings, rows, right=[3, 4, 5], width=terminal_width())
    headings = ["splitting", *terms[0]["coefficients"], "worked out", "measured"]
    rows = []
    for term in terms:
        coefficients = [f"{round(number, 9):.4g}" for number in term["coefficients"].values()]
        lengths = [f"{math.hypot(*term[name]):.4f}" for name in ("predicted", "measured")]
        rows.append([term["splitting"], *coefficients, *lengths])
    of_terms = table(headings, rows, right=range(1, len(headings)), width=terminal_width())
    parts = [f"{paragraph(_ERRORS)}\n{shown}", f"{paragraph(_TERMS)}\n{of_terms}", *_drawn(results)]
    return Found(results, "\n\n".join(parts))


@checked
def inspect_paths(*runs: PathText, **options: Unpack[InspectionOptions]) -> Found:
    """Follow the first tokens of a text through every sub-layer of models.

    These are the first ``tokens`` (16) of a window of each run's validation split, or of the text
    of ``path``; ``out`` is an SVG file of their paths. Coordinates are in the plane of the first
    two principal components of all states. Raises ConfigError for LSTMs, and for a ``batch``.
    """
    models = _models(runs, options, "paths")
    if options.get("batch") is not None:
        raise ConfigError(
            "--batch counts windows, and inspect paths reads a single window: leave it out"
        )
    tokens = options.get("tokens") or 16
    if not _FEWEST_FOLLOWED <= tokens <= _MOST_FOLLOWED:
        raise ConfigError(
            f"--tokens {tokens:,} is out of the range of inspect paths: give {_FEWEST_FOLLOWED} "
            f"to {_MOST_FOLLOWED}; a single token has no other to move it"
        )
    from sublayer.inspection.states import Panel, draw_paths
    from sublayer.runs import inspections

    panels: list[Panel] = []
    titles: list[str] = []
    names = iter(_short_names(models) if len(models) > 1 else [""])

    def measure(run: Path, reading: "InspectedText") -> dict[str, Any]:
        about, of_run = inspections.inspect_paths(run, reading)
        panels.extend(of_run)
        titles.extend([next(names)] * len(of_run))
        return {**about, "stacks": [asdict(panel) for panel in of_run]}

    results = _measured("paths", models, {**options, "tokens": tokens}, measure)
    _draw(options, lambda: draw_paths(panels, titles))
    lines = []
    for run in results["runs"]:
        for stack in run["stacks"]:
            # Equal states have no variance, and no shares of it.
            first, second = (
                "none" if math.isnan(share) else f"{share:.1%}" for share in stack["shares"]
            )
            lines.append(
                f"{run['run']}, {stack['stack']}: the first "
                f"{count(len(stack['tokens']), 'token')} of {_sources(run)}; the plane has {first} "
                f"and {second} of the variance of their states"
            )
    return Found(results, "\n".join([*map(paragraph, lines), *_drawn(results)]))


def _models(runs: Sequence[PathText], options: InspectionOptions, kind: str = "") -> list[Path]:
    """Return the models to inspect; raise ConfigError for none, duplicates, or the plot's path.

    ``kind`` is an inspection that needs a run.
    """
    models = [as_path(run) for run in runs]
    if kind and not models:
        raise ConfigError(f"inspect {kind} needs a run: name one or more")
    if (out := options.get("out")) is not None:
        check_new(Path(out))
    with starting(*models):
        from sublayer.loading import find_model

    folders = [resolved(find_model(run)) for run in models]
    for number, folder in enumerate(folders):
        if folder in folders[:number]:
            raise ConfigError(f"{models[number]} is given twice: name each model once")
    return models


def _measured(
    what: str,
    models: Sequence[Path],
    options: InspectionOptions,
    measure: Callable[[Path, "InspectedText"], Mapping[str, Any]],
) -> dict[str, Any]:
    """Measure models one by one, and return the results with the plot's file."""
    from sublayer.runs.inspections import InspectedText

    path, batch, device = options.get("path"), options.get("batch"), options.get("device")
    text = None if path is None else str(path)
    reading = InspectedText(text, options.get("tokens") or 8192, batch, device)
    run_results = []
    for run in models:
        with stage(f"inspecting {run}"):
            run_results.append(measure(run, reading))
    return {"what": what, "runs": run_results, "out": options.get("out")}


def _draw(options: InspectionOptions, draw: Callable[[], str]) -> None:
    if (out := options.get("out")) is not None:
        write_plot(Path(out), draw())


def _short_names(runs: Sequence[Path]) -> list[str]:
    """Return the names of runs in a plot: their folders', or paths if those are equal."""
    names = [resolved(run).name for run in runs]
    return names if len(set(names)) == len(names) else list(map(str, runs))


def _drawn(result: Mapping[str, Any]) -> list[str]:
    return [] if result["out"] is None else [f"drawn in {result['out']}"]


def _sources(run: Mapping[str, Any]) -> str:
    sources = ", ".join(map(as_typed, run["sources"]))
    return sources if run["split"] is None else f"the {run['split']} split of {sources}"


def _table(columns: Sequence[tuple[str, str]], rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows in columns, all numeric except the words in the first."""
    cells = [[form.format_map(_with_nan(row)) for _, form in columns] for row in rows]
    right = [
        number
        for number, (heading, _) in enumerate(columns)
        if heading not in ("stack", "quartiles")
    ]
    headings = [heading for heading, _ in columns]
    return table(headings, cells, right=right, width=terminal_width())


def _with_nan(value: Any) -> Any:
    """Return a row with NaN for missing numbers."""
    if isinstance(value, Mapping):
        return {name: _with_nan(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_with_nan, value)]
    return math.nan if value is None else value
