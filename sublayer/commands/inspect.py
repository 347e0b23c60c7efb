"""``sublayer inspect``: what happens inside a model."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sublayer.commands.base import BatchOption, DeviceOption, JsonOption, emit, table
from sublayer.commands.reading import TokenProgress, batch_sequences, context_of, other_text, own_split, recipe_of
from sublayer.config.texts import resolved
from sublayer.errors import ConfigError

if TYPE_CHECKING:
    from sublayer.inspect.layers import LayerChange

EXAMPLE = "sublayer inspect layers runs/bert runs/albert --path book.txt --out layers.svg"


def command(
    what: Annotated[
        Literal["layers", "splitting"],
        typer.Argument(
            metavar="WHAT",
            help="layers: distance and angle between each block's input and its output; splitting: what a step of "
            "attention and feed-forward network errs by.",
        ),
    ],
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN...", help="Runs, checkpoints, or imported folders.")
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            "--path", help="A text to read: a file, a folder or a glob. Default: each run's validation split."
        ),
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(
            "--tokens",
            min=1,
            max=1_000_000_000,
            help="Tokens to read at most, in evenly spread windows; at least one window.",
        ),
    ] = 8192,
    out: Annotated[Path | None, typer.Option("--out", help="The new .svg file to draw the plot in.")] = None,
    batch: BatchOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what each block of a model does to the tokens of a text, and compare models by it.

    layers: the L2 distance, the cosine and the angle between what enters each block and what leaves it, and the norms
    of both, as means over tokens and quartiles (Lan et al. 2020, Fig. 1). The arithmetic is that of the saved weights.

    splitting: without a run, the error of a step of each splitting on equations whose flows are known (Lu et al. 2019,
    sec. 3); of runs, how far each layer's step is from following its own attention and feed-forward flows.
    """
    runs = runs or []
    _check_different(runs)
    if out is not None:
        _check_new(out)
    if what == "splitting":
        _splitting(runs, path, tokens, batch, device, out, as_json)
        return
    if not runs:
        raise ConfigError("inspect layers needs a run: name one or more")
    found = [_layers(run, path, tokens, batch, device) for run in runs]
    if out is not None:
        _draw(out, runs, [changes for _, changes in found])
    results = [{**about, "layers": [_flat(change) for change in changes]} for about, changes in found]
    emit({"what": what, "runs": results, "out": out}, as_json, _render)


def _splitting(
    runs: Sequence[Path],
    path: str | None,
    tokens: int,
    batch: int | None,
    device: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    from sublayer.commands.inspect_splitting import known_flows, render_splitting, trained_layers
    from sublayer.inspect.splitting_figure import draw_errors, draw_layers

    if runs:
        found = [trained_layers(run, path, tokens, batch, device) for run in runs]
        result: dict[str, Any] = {"what": "splitting", "runs": found}
    else:
        result = known_flows()
    if out is not None:
        layers = dict(zip(_names(runs), (run["layers"] for run in result.get("runs", ())), strict=True))
        _write(out, draw_layers(layers) if runs else draw_errors(result["local_errors"]))
    emit({**result, "out": out}, as_json, render_splitting)


def _check_different(runs: Sequence[Path]) -> None:
    from sublayer.load import find_model

    seen: set[Path] = set()
    for run in runs:
        model = resolved(find_model(run))
        if model in seen:
            raise ConfigError(f"{run} is given twice: name each model once")
        seen.add(model)


def _check_new(out: Path) -> None:
    if out.suffix != ".svg":
        raise ConfigError(f"--out {out} is not an .svg file: the plot is drawn as SVG")
    if out.exists():
        raise ConfigError(f"{out} exists, and nothing is overwritten: name another file")


def _layers(
    run: Path, path: str | None, tokens: int, batch: int | None, device: str | None
) -> tuple[dict[str, Any], "list[LayerChange]"]:
    from sublayer.inspect.layers import measure_layers
    from sublayer.inspect.sample import spread_windows
    from sublayer.load import load
    from sublayer.machine import choose_device

    model = load(run, device=choose_device(device))
    if len(model.stacks) > 1:
        raise ConfigError(
            f"{run} is an {model.config.kind}, whose blocks read two texts: name a decoder or an encoder, or inspect "
            "splitting"
        )
    recipe = recipe_of(run)
    context = context_of(model, recipe)
    text = own_split(run, recipe, model, "valid") if path is None else other_text(run, model, path, None, "valid")
    respects = recipe is not None and recipe.data.boundaries == "respect"
    sample = spread_windows(text, context=context, max_tokens=tokens, respect_boundaries=respects)
    changes = measure_layers(
        model, sample, batch_sequences=batch or batch_sequences(model, context), progress=TokenProgress(f"{run}: read")
    )
    read = {"tokens": sample.n_tokens, "windows": len(sample), "context": context}
    source = {"split": None if path else text.name, "sources": list(text.sources), "sha256": text.store.sha256}
    return {"run": str(run), "kind": model.config.kind, **read, **source}, changes


def _draw(out: Path, runs: Sequence[Path], changes: "Sequence[Sequence[LayerChange]]") -> None:
    from sublayer.inspect.figure import draw_layers

    _write(out, draw_layers(dict(zip(_names(runs), changes, strict=True))))


def _names(runs: Sequence[Path]) -> list[str]:
    short = [resolved(run).name for run in runs]
    return short if len(set(short)) == len(short) else [str(run) for run in runs]


def _write(out: Path, drawn: str) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("x", encoding="utf-8") as file:
        file.write(drawn)


def _flat(change: "LayerChange") -> dict[str, Any]:
    spreads = {name: spread for name, spread in asdict(change).items() if name != "layer"}
    means = {name: spread["mean"] for name, spread in spreads.items()}
    quartiles = {f"{name}_quartiles": list(spread["quartiles"]) for name, spread in spreads.items()}
    return {"layer": change.layer, **means, **quartiles}


def _render(result: Mapping[str, Any]) -> str:
    parts = [f"{_read(run)}\n{_table(run['layers'])}" for run in result["runs"]]
    if len({run["sha256"] for run in result["runs"]}) > 1:
        parts.append("the runs read different texts: give one to all by --path")
    if result["out"] is not None:
        parts.append(f"drawn in {result['out']}")
    return "\n\n".join(parts)


def _read(run: Mapping[str, Any]) -> str:
    what = "" if run["split"] is None else f"the {run['split']} split of "
    windows = "a window" if run["windows"] == 1 else f"{run['windows']:,} windows"
    return (
        f"{run['run']}: {run['tokens']:,} tokens of {what}{', '.join(run['sources'])}, "
        f"in {windows} of {run['context']:,}"
    )


def _table(layers: Sequence[Mapping[str, Any]]) -> str:
    headings = ["block", "distance", "quartiles", "angle", "quartiles", "cosine", "norm in", "norm out"]
    rows = [
        (
            str(layer["layer"]),
            f"{layer['distance']:.4g}",
            _quartiles(layer["distance_quartiles"], ".4g"),
            f"{layer['angle_degrees']:.2f}°",
            _quartiles(layer["angle_degrees_quartiles"], ".1f"),
            f"{layer['cosine']:.4f}",
            f"{layer['norm_in']:.4g}",
            f"{layer['norm_out']:.4g}",
        )
        for layer in layers
    ]
    return table(headings, rows, right=[0, 1, 3, 5, 6, 7])


def _quartiles(values: Sequence[float], form: str) -> str:
    return f"{values[0]:{form}} to {values[2]:{form}}"
