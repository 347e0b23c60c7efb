"""``sublayer inspect paths``: the tokens of a text as particles that sub-layers move."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.commands.inspect.plot_file import short_names, write_plot
from sublayer.commands.inspect.samples import SampleOptions, sample_stacks
from sublayer.commands.shared.base import JsonObject, emit
from sublayer.commands.shared.paragraphs import paragraph
from sublayer.commands.shared.text_options import recipe_of
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.files.paths import as_typed
from sublayer.system.stages import stage
from sublayer.system.terminal import terminal_width
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.data.tokenizers.base import Tokenizer
    from sublayer.inspection.paths import Paths
    from sublayer.inspection.sample import Sample

_FEWEST_TOKENS, _MOST_TOKENS = 2, 256
_ONE_ROW = 1
"""The most tokens that are sampled: there is a row at least, whatever its length."""


def inspect_paths(
    runs: Sequence[Path], options: SampleOptions, out: Path | None, as_json: bool
) -> None:
    """Follow the first tokens of a text through runs, draw them where asked, and print the steps.

    Raises ConfigError for an option that has no effect here.
    """
    if options.batch is not None:
        raise ConfigError("--batch is of windows, and inspect paths reads one: leave it out")
    if options.max_tokens < _FEWEST_TOKENS:
        raise ConfigError(
            f"--tokens {options.max_tokens} is too few for inspect paths: a token that is alone is "
            f"moved by no other; give at least {_FEWEST_TOKENS}"
        )
    if options.max_tokens > _MOST_TOKENS:
        raise ConfigError(
            f"--tokens {options.max_tokens:,} is more than inspect paths draws: give at most "
            f"{_MOST_TOKENS}"
        )
    results = []
    for run in runs:
        with stage(f"inspecting {run}"):
            results.append(_follow(run, options))
    if out is not None:
        _draw(out, runs, results)
    emit({"what": "paths", "runs": results, "out": out}, as_json, render_paths)


def _follow(run: Path, options: SampleOptions) -> dict[str, Any]:
    """Follow tokens through a model; return what was read, and what was found of each stack."""
    from sublayer.inspection.paths import check_steps, follow_tokens
    from sublayer.loading import load
    from sublayer.system.machine import choose_device

    model = load(run, device=choose_device(options.device))
    check_steps(model.config, str(run))
    recipe = recipe_of(run)
    one_row = replace(options, max_tokens=_ONE_ROW)
    read = sample_stacks(run, model, recipe, one_row, cuts_windows=True)
    paths = follow_tokens(model, read.samples, n_tokens=options.max_tokens)
    stacks = []
    for of_stack, sample in zip(paths, read.samples, strict=True):
        stacks.append(_found(of_stack, sample, model.tokenizer))
    return {
        "run": str(run),
        "kind": model.config.kind,
        "split": None if options.path else "valid",
        "sources": list(read.sources),
        "stacks": stacks,
    }


def _found(paths: "Paths", sample: "Sample", tokenizer: "Tokenizer") -> dict[str, Any]:
    """Return a stack's tokens, its steps, and the coordinates of its states in their plane."""
    from sublayer.data.tokenizers.shown import show_tokens
    from sublayer.inspection.paths import fit_plane, measure_motions, measure_spread

    _, n_followed, d_model = paths.states.shape
    plane = fit_plane(paths.states.reshape(-1, d_model))
    real_ids = sample.tokens[sample.is_real]
    ids = real_ids[:n_followed].numpy()
    motions = measure_motions(paths.states, plane)
    steps = []
    for step, motion in zip(paths.steps, motions, strict=True):
        steps.append({**asdict(step), **asdict(motion)})
    return {
        "stack": paths.stack,
        "read": len(real_ids),
        "ids": ids.tolist(),
        "tokens": show_tokens(ids, tokenizer),
        "shares": list(plane.shares),
        "spread": measure_spread(paths.states[0]),
        "steps": steps,
        "coordinates": plane.coordinates(paths.states).tolist(),
    }


def _draw(out: Path, runs: Sequence[Path], results: Sequence[dict[str, Any]]) -> None:
    from sublayer.inspection.paths import Panel, draw_paths

    panels = []
    for name, result in zip(short_names(runs), results, strict=True):
        for stack in result["stacks"]:
            panel = Panel(
                title=name if len(runs) > 1 else "",
                stack=stack["stack"],
                tokens=stack["tokens"],
                kinds=[step["kind"] for step in stack["steps"]],
                shares=tuple(stack["shares"]),
                coordinates=stack["coordinates"],
            )
            panels.append(panel)
    write_plot(out, draw_paths(panels))


_HEADINGS = ("block", "step", "length", "in the plane", "spread after it")


def render_paths(result: JsonObject) -> str:
    """Format the steps of each stack as a table."""
    parts: list[str] = []
    for run in result["runs"]:
        parts += _describe_run(run)
    if result["out"] is not None:
        parts.append(f"drawn in {result['out']}")
    return "\n\n".join(parts)


def _describe_run(run: JsonObject) -> Iterator[str]:
    sources = ", ".join(map(as_typed, run["sources"]))
    if run["split"] is not None:
        sources = f"the {run['split']} split of {sources}"
    for stack in run["stacks"]:
        n_followed = len(stack["tokens"])
        tokens = f"the first {n_followed} of {count(stack['read'], 'token')} that it reads"
        if n_followed == stack["read"]:
            tokens = f"the {count(n_followed, 'token')} that it reads"
        about = f"{run['run']}, {stack['stack']}: {tokens} of {sources}"
        yield f"{paragraph(about)}\n{paragraph(_describe_plane(stack))}\n{_steps(stack)}"


def _describe_plane(stack: JsonObject) -> str:
    first, second = stack["shares"]
    n_states = (1 + len(stack["steps"])) * len(stack["tokens"])
    return (
        f"the plane has {_share(first)} and {_share(second)} of the variance of "
        f"{count(n_states, 'state')}; "
        f"the tokens start with a spread of {stack['spread']:.4g}"
    )


def _steps(stack: JsonObject) -> str:
    rows = []
    for step in stack["steps"]:
        row = [
            str(step["layer"]),
            step["name"],
            f"{step['length']:.4g}",
            _share(step["in_plane"]),
            f"{step['spread']:.4g}",
        ]
        rows.append(row)
    return table(_HEADINGS, rows, right=[0, 2, 3, 4], width=terminal_width())


def _share(value: float) -> str:
    # Nothing has no shares.
    return "none" if math.isnan(value) else f"{value:.1%}"
