"""The insides of models: what blocks do to the tokens of a text, measured, drawn and printed."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sublayer.api.arguments import Device, as_path
from sublayer.api.results import Result, check_new, write_plot
from sublayer.config.limits import MOST_LAYERS, MOST_ROWS
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.files.paths import as_typed, resolved
from sublayer.options import Option, PathText, checked
from sublayer.system.stages import stage
from sublayer.system.terminal import paragraph, terminal_width
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.inspection.paths import Panel

_FEWEST_FOLLOWED, _MOST_FOLLOWED = 2, 256

TextPath = Annotated[
    PathText | None,
    Option(
        "The text to read: a file, a folder or a glob. Default: each run's validation split.",
        metavar="PATH",
    ),
]
Tokens = Annotated[
    int | None,
    Option(
        "The most tokens to read, in windows spread evenly over the text; at least one "
        "window. Default: 8192. Of paths the most tokens to follow, the first of one window: 2 to "
        "256. Default: 16.",
        least=1,
        most=1_000_000_000,
    ),
]
PlotFile = Annotated[
    PathText | None, Option("The new .svg file to draw a plot to.", metavar="FILE")
]
Batch = Annotated[
    int | None,
    Option("Windows computed at a time; affects speed and memory only.", least=1, most=MOST_ROWS),
]


@checked
def inspect_layers(
    *runs: PathText,
    path: TextPath = None,
    tokens: Tokens = None,
    beyond: Annotated[
        int | None,
        Option(
            "Of layers: run the block that all layers share so many times more than the model "
            "does.",
            least=1,
            most=MOST_LAYERS,
        ),
    ] = None,
    out: PlotFile = None,
    batch: Batch = None,
    device: Device = None,
) -> Result:
    """Measure the effect of each block of models on the tokens of a text.

    Distances, angles in degrees and norms, over ``tokens`` tokens at most (8192) of each run's
    validation split, or of the text of ``path``; a block that all layers share is run ``beyond``
    times more; ``out`` is an SVG file of the plot. Raises ConfigError for encoder-decoders.
    """
    models, file = _checked(runs, out, "layers")
    from sublayer.config.stacks import is_one_block
    from sublayer.inspection.layer_change import draw_layers, flat
    from sublayer.loading import find_model
    from sublayer.model.model_folder import read_config
    from sublayer.runs import inspections

    if beyond and not any(is_one_block(read_config(find_model(run))) for run in models):
        raise ConfigError(
            "--beyond runs the block that all layers share, and layers of "
            f"{models[0]} have weights or positions of their own: leave it out, or name a run with "
            "model.share = all"
        )
    reading = inspections.Reading(_text(path), tokens or 8192, batch, device)
    found, changes = [], []
    for run in models:
        with stage(f"inspecting {run}"):
            about, of_run = inspections.inspect_layers(run, reading, beyond or 0)
        found.append({**about, "layers": list(map(flat, of_run))})
        changes.append(of_run)
    if file is not None:
        write_plot(file, draw_layers(dict(zip(_short_names(models), changes, strict=True))))
    return Result({"what": "layers", "runs": found, "out": file}, _render_layers)


@checked
def inspect_splitting(
    *runs: PathText,
    path: TextPath = None,
    tokens: Tokens = None,
    out: PlotFile = None,
    batch: Batch = None,
    device: Device = None,
) -> Result:
    """Measure how far each layer's step is from following its own flows; arguments as above.

    Without runs, the errors of splittings on equations whose flows are known.
    """
    models, file = _checked(runs, out)
    from sublayer.inspection.layer_splitting import draw_layers
    from sublayer.inspection.splitting import draw_errors, known_errors, leading_terms
    from sublayer.runs import inspections

    reading = inspections.Reading(_text(path), tokens or 8192, batch, device)
    found: dict[str, Any] = {"what": "splitting"}
    if models:
        found["runs"] = []
        for run in models:
            with stage(f"inspecting {run}"):
                found["runs"].append(inspections.inspect_splitting(run, reading))
        layers = [run["layers"] for run in found["runs"]]
    else:
        with stage("following known flows"):
            found |= {"local_errors": known_errors(), "leading_terms": leading_terms()}
    if file is not None and models:
        write_plot(file, draw_layers(dict(zip(_short_names(models), layers, strict=True))))
    elif file is not None:
        write_plot(file, draw_errors(found["local_errors"]))
    return Result({**found, "out": file}, _render_splitting)


@checked
def inspect_paths(
    *runs: PathText,
    path: TextPath = None,
    tokens: Tokens = None,
    out: PlotFile = None,
    batch: Batch = None,
    device: Device = None,
) -> Result:
    """Follow the first tokens of a text through every sub-layer of models.

    They are the first ``tokens`` (16) of one window of each run's validation split, or of the text
    of ``path``; ``out`` is an SVG file of their paths. Coordinates are in the plane of the two
    principal components of all their states. Raises ConfigError for LSTMs, and for a ``batch``.
    """
    models, file = _checked(runs, out, "paths")
    if batch is not None:
        raise ConfigError("--batch is of windows, and inspect paths reads one: leave it out")
    if tokens is not None and tokens < _FEWEST_FOLLOWED:
        raise ConfigError(
            f"--tokens {tokens} is too few for inspect paths: a token that is alone is "
            f"moved by no other; give at least {_FEWEST_FOLLOWED}"
        )
    if tokens is not None and tokens > _MOST_FOLLOWED:
        raise ConfigError(
            f"--tokens {tokens:,} is more than inspect paths draws: give at most {_MOST_FOLLOWED}"
        )
    from sublayer.inspection.paths import draw_paths
    from sublayer.runs import inspections

    reading = inspections.Reading(_text(path), tokens or 16, batch, device)
    panels: list[Panel] = []
    titles: list[str] = []
    found = []
    for run, name in zip(models, _short_names(models), strict=True):
        with stage(f"inspecting {run}"):
            about, of_run = inspections.inspect_paths(run, reading)
        found.append({**about, "stacks": [asdict(panel) for panel in of_run]})
        panels += of_run
        titles += [name if len(models) > 1 else ""] * len(of_run)
    if file is not None:
        write_plot(file, draw_paths(panels, titles))
    return Result({"what": "paths", "runs": found, "out": file}, _render_paths)


def _text(path: PathText | None) -> str | None:
    return None if path is None else str(path)


def _checked(
    runs: Sequence[PathText], out: PathText | None, kind: str = ""
) -> tuple[list[Path], Path | None]:
    """Return the runs and the plot's file; raise ConfigError for none, and for one given twice.

    ``kind`` is of an inspection that needs a run.
    """
    from sublayer.loading import find_model

    models = [as_path(run) for run in runs]
    seen: set[Path] = set()
    for run in models:
        model = resolved(find_model(run))
        if model in seen:
            raise ConfigError(f"{run} is given twice: name each model once")
        seen.add(model)
    file = None if out is None else Path(out)
    if file is not None:
        check_new(file)
    if kind and not models:
        raise ConfigError(f"inspect {kind} needs a run: name one or more")
    return models, file


def _short_names(runs: Sequence[Path]) -> list[str]:
    """Return the names of runs in a plot: their folders', or paths where those are equal."""
    names = [resolved(run).name for run in runs]
    return names if len(set(names)) == len(names) else list(map(str, runs))


def _drawn(result: Mapping[str, Any]) -> list[str]:
    return [] if result["out"] is None else [f"drawn in {result['out']}"]


def _sources(run: Mapping[str, Any]) -> str:
    sources = ", ".join(map(as_typed, run["sources"]))
    return sources if run["split"] is None else f"the {run['split']} split of {sources}"


def _render_layers(result: Mapping[str, Any]) -> str:
    headings = (
        "block",
        "distance",
        "quartiles",
        "angle",
        "quartiles",
        "cosine",
        "norm in",
        "norm out",
    )
    parts = []
    for run in result["runs"]:
        windows = f"{count(run['windows'], 'window')} of {run['context']:,}"
        read = f"{run['run']}: {count(run['tokens'], 'token')} of {_sources(run)}, in {windows}"
        if len(run["layers"]) > run["n_layers"]:
            first = run["n_layers"] + 1
            read += f"; from block {first} on the shared one is run beyond the model's"
        rows = [
            [
                str(layer["layer"]),
                _number(layer["distance"], ".4g"),
                _quartiles(layer["distance_quartiles"], ".4g"),
                f"{_number(layer['angle_degrees'], '.2f')}°",
                _quartiles(layer["angle_degrees_quartiles"], ".1f"),
                _number(layer["cosine"], ".4f"),
                _number(layer["norm_in"], ".4g"),
                _number(layer["norm_out"], ".4g"),
            ]
            for layer in run["layers"]
        ]
        layers = table(headings, rows, right=[0, 1, 3, 5, 6, 7], width=terminal_width())
        parts.append(f"{paragraph(read)}\n{layers}")
    if len({run["sha256"] for run in result["runs"]}) > 1:
        parts.append("the runs read different texts: give one to all by --path")
    return "\n\n".join([*parts, *_drawn(result)])


def _number(value: float | None, form: str) -> str:
    return format(math.nan if value is None else value, form)


def _quartiles(values: Sequence[float | None], form: str) -> str:
    lower, _, upper = values
    return f"{_number(lower, form)} to {_number(upper, form)}"


_ERRORS = "the error of a single step of size h, and its order in h"
_TERMS = (
    "Euler sub-steps: all err by h^2; "
    "how much of each product of a flow's derivative with a flow is in it (scheme "
    "less exact), and the length of their sum, as worked out and as measured (linear equation)"
)
_LAYERS = "the distance between a step and what its flows lead to, as a fraction of the way"


def _render_splitting(result: Mapping[str, Any]) -> str:
    parts = []
    if "local_errors" in result:
        parts = [_error_table(result["local_errors"]), _term_table(result["leading_terms"])]
    for run in result.get("runs", ()):
        read = f"{run['run']}: {count(run['tokens'], 'token')}; {_LAYERS}"
        rows = [
            [
                layer["stack"],
                str(layer["layer"]),
                f"{layer['lie']:.4f}",
                f"{layer['strang']:.4f}",
                f"{layer['own']:.4f}",
                f"{layer['way']:.4g}",
            ]
            for layer in run["layers"]
        ]
        headings = ("stack", "layer", "Lie", "Strang", "as trained", "way")
        parts.append(f"{paragraph(read)}\n{table(headings, rows, right=range(1, 6))}")
    return "\n\n".join([*parts, *_drawn(result)])


def _error_table(errors: Sequence[Mapping[str, Any]]) -> str:
    largest, *_, smallest = errors[0]["steps"]
    sizes = (f"error, h = {largest:g}", f"h = {smallest:.4g}")
    headings = ["equation", "sub-steps", "splitting", *sizes, "order"]
    rows = []
    for row in errors:
        names = [row["equation"], row["substeps"], row["splitting"]]
        order = row["slopes"][-1]
        numbers = [f"{row['errors'][0]:.2e}", f"{row['errors'][-1]:.2e}"]
        rows.append([*names, *numbers, "none" if math.isnan(order) else f"{order:.2f}"])
    shown = table(headings, rows, right=[3, 4, 5], width=terminal_width())
    return f"{paragraph(_ERRORS)}\n{shown}"


def _term_table(terms: Sequence[Mapping[str, Any]]) -> str:
    headings = ["splitting", *terms[0]["coefficients"], "worked out", "measured"]
    rows = []
    for term in terms:
        coefficients = [f"{round(number, 9):.4g}" for number in term["coefficients"].values()]
        lengths = [f"{math.hypot(*term[name]):.4f}" for name in ("predicted", "measured")]
        rows.append([term["splitting"], *coefficients, *lengths])
    shown = table(headings, rows, right=range(1, len(headings)), width=terminal_width())
    return f"{paragraph(_TERMS)}\n{shown}"


def _render_paths(result: Mapping[str, Any]) -> str:
    lines = [paragraph(line) for run in result["runs"] for line in _followed(run)]
    return "\n".join([*lines, *_drawn(result)])


def _followed(run: Mapping[str, Any]) -> Iterator[str]:
    """Generate a line for each stack: its tokens, and the variance along both axes."""
    for stack in run["stacks"]:
        # States that are all equal have no variance, and no shares of it.
        first, second = (
            "none" if math.isnan(share) else f"{share:.1%}" for share in stack["shares"]
        )
        yield (
            f"{run['run']}, {stack['stack']}: the first {count(len(stack['tokens']), 'token')} of "
            f"{_sources(run)}; the plane has {first} and {second} of the variance of their states"
        )
