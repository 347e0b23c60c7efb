"""The report of a single run: its curves, what its recipe sets, its cost, text and a sample."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from sublayer.config.catalog import HEADINGS
from sublayer.config.load import load_recipe
from sublayer.config.messages import show
from sublayer.numbers import DASH, format_duration, format_quantity
from sublayer.plot import look, page_svg, palette
from sublayer.reporting.figures import draw_probes, probed_run
from sublayer.runs.folder import MODEL, RunFolder
from sublayer.study.samples import SEED, TEMPERATURE, decoded
from sublayer.training.metrics import METRICS, read_metrics

_INCHES = 4.8, 2.8
_PROMPT = "The "
_SAMPLE_TOKENS = 180
_NO_METRIC = frozenset({"kind", "step", "tokens", "seconds"})
_CSS = """
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font-family: var(--sans, sans-serif);
  color: var(--ink); background: var(--paper, white); line-height: 1.5; }
svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; } td, th { text-align: left; padding: .15rem .8rem .15rem 0; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
td { overflow-wrap: anywhere; min-width: 4.5rem; }
"""


def render_run(run: Path) -> str:
    """Render a run's report as HTML; of one that has not ended, with what there is.

    Raises ConfigError where the folder holds no run, and CheckpointError where one is damaged.
    """
    folder = RunFolder(run)
    recipe = folder.recipe()
    record = folder.record()
    lines = list(read_metrics(run / METRICS))
    name = escape(run.absolute().name)
    state = "" if record is not None else f"<p>Unfinished: {_standing(lines)}.</p>"
    parts = [
        f"<h1>{name}</h1><p>{escape(recipe.title)}</p>{state}",
        f"<h2>Curves</h2>{''.join(_figures(lines))}",
        _probes(name, record, lines),
        f"<h2>What its recipe sets</h2>{_table(_changed(run))}",
    ]
    if record is not None:
        parts.append(f"<h2>Quality and cost</h2>{_table(_costs(record))}")
        parts.append(f"<h2>Text</h2>{_table(_text(record))}")
        sample = _sample(run, recipe.model.kind, recipe.data.context)
        if sample:
            parts.append(f"<h2>What it writes</h2><pre>{escape(sample)}</pre>")
    body = "\n".join(filter(None, parts))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{palette()}{_CSS}</style></head>\n<body>\n{body}\n"
        "</body></html>\n"
    )


def _probes(name: str, record: Mapping[str, Any] | None, lines: Sequence[Mapping[str, Any]]) -> str:
    """Draw what a run was asked along its training; nothing of one that was not, or goes on."""
    run = probed_run(name, record, lines)
    figure = None if run is None else draw_probes([run])
    return "" if figure is None else f"<h2>Zero-shot probes</h2>{figure}"


def _standing(lines: Sequence[Mapping[str, Any]]) -> str:
    steps = [line["step"] for line in lines]
    if not steps:
        return "no step has been logged"
    return f"logged up to step {max(steps):,}"


def _figures(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Draw the loss of training and validation, the learning rate and all further metrics."""
    names: dict[str, None] = {}
    for line in lines:
        for key in line:
            if key not in _NO_METRIC:
                names.setdefault(key)
    figures = []
    for name in names:
        series = []
        for kind in ("train", "valid"):
            points = [
                (line["step"], line[name])
                for line in lines
                if line["kind"] == kind and isinstance(line.get(name), int | float)
            ]
            if points:
                series.append((kind, points))
        # A line has two ends.
        if any(len(points) > 1 for _, points in series):
            figures.append(_figure(name, series))
    return figures


def _figure(name: str, series: Sequence[tuple[str, Sequence[tuple[int, float]]]]) -> str:
    words = {"train": "training", "valid": "validation"}
    label = {"lr": "learning rate"}.get(name, name.replace("_", " "))

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for kind, points in series:
            style = look(1 if kind == "train" else 0)
            steps, values = zip(*points, strict=True)
            mark = "o" if len(points) == 1 else ""
            axes.plot(
                steps, values, style.line, marker=mark, color=style.placeholder, label=words[kind]
            )
        axes.set_xlim(left=0)
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("optimizer steps")
        axes.set_ylabel(label)
        axes.grid(axis="y")
        if len(series) > 1:
            axes.legend(frameon=False)

    return page_svg(draw, _INCHES, escape(label), name)


def _changed(run: Path) -> dict[str, str]:
    """Return the fields that the run's recipe sets other than their defaults, and were given."""
    loaded = load_recipe(run)
    changed = {}
    for key, origin in loaded.origins.items():
        table, _, name = key.partition(".")
        if origin == "default" or key in HEADINGS:
            continue
        changed[key] = show(getattr(getattr(loaded.recipe, table), name))
    return changed


def _costs(record: Mapping[str, Any]) -> dict[str, str]:
    valid = record["valid"]
    scores = {
        (key if "/" in key else f"validation {key.replace('_', ' ')}"): f"{value:.4f}"
        for key, value in valid.items()
        if key not in _NO_METRIC
    }
    parameters = record.get("parameters")
    return {
        **scores,
        "best evaluation": f"step {valid['step']:,} of {record['step']:,}",
        "parameters": f"{parameters['total']:,}" if parameters else DASH,
        "FLOPs per token": format_quantity(record.get("flops_per_token")),
        "tokens": format_quantity(record["tokens"]),
        "tokens/s": format_quantity(record["tokens_per_s"]),
        "memory": format_quantity(record.get("peak_memory_bytes"), "B"),
        "time": format_duration(record["seconds"]),
        "precision": str(record["precision"]),
        "threads": format_quantity(record.get("threads")),
    }


def _text(record: Mapping[str, Any]) -> dict[str, str]:
    data = record["data"]
    size = f", {data['vocab_size']:,} tokens" if "vocab_size" in data else ""
    rows = {"tokenizer": f"{data.get('tokenizer', DASH)}{size}"}
    for split in ("train", "valid", "test"):
        if split not in record["data"]:
            continue
        sizes = data.get(split, {})
        rows[split] = ", ".join(
            f"{value:,} {key.replace('_', ' ')}" for key, value in sizes.items()
        )
    for name, value in data["checksums"].items():
        rows[f"SHA-256, {name}"] = str(value)
    return rows


def _table(rows: Mapping[str, str]) -> str:
    if not rows:
        return "<p>Nothing but defaults.</p>"
    cells = [f"<tr><th>{escape(key)}</th><td>{escape(rows[key])}</td></tr>" for key in rows]
    return f"<table>{''.join(cells)}</table>"


def _sample(run: Path, kind: str, context: int) -> str:
    """Return what a decoder writes after a prompt; nothing of other models, or without a model."""
    if kind != "decoder" or not (run / MODEL).is_dir():
        return ""
    import torch

    from sublayer.decode.sample import Sampling, generate
    from sublayer.loading import load
    from sublayer.model.build import Decoder

    model = load(run)
    assert isinstance(model, Decoder), "its recipe says so"
    if model.tokenizer is None:
        return ""
    ids = model.tokenizer.encode(_PROMPT.encode()).tolist()
    steps = generate(
        model,
        torch.tensor([ids]),
        _SAMPLE_TOKENS,
        Sampling(TEMPERATURE),
        seed=SEED,
        window="rolling",
        context=context,
    )
    return _PROMPT + decoded(model.tokenizer, (int(step[0]) for step in steps))
