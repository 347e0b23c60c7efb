"""``sublayer inspect paths``: the tokens of a text as particles that sub-layers move."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.commands.inspect.plot_file import short_names, write_plot
from sublayer.commands.inspect.samples import SampleOptions, sample_stacks
from sublayer.commands.shared.base import JsonObject
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.files.paths import as_typed
from sublayer.runs.texts import recipe_of
from sublayer.system.stages import stage
from sublayer.system.terminal import paragraph

if TYPE_CHECKING:
    from sublayer.inspection.paths import Panel

_FEWEST_TOKENS, _MOST_TOKENS = 2, 256
_ONE_ROW = 1
"""The most tokens that are sampled: there is a row at least, whatever its length."""


def inspect_paths(runs: Sequence[Path], options: SampleOptions, out: Path | None) -> dict[str, Any]:
    """Follow the first tokens of a text through runs, and draw them where asked.

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
    panels: list[Panel] = []
    titles: list[str] = []
    results = []
    for run, name in zip(runs, short_names(runs), strict=True):
        with stage(f"inspecting {run}"):
            about, of_run = _follow(run, options)
        results.append({**about, "stacks": [asdict(panel) for panel in of_run]})
        panels += of_run
        titles += [name if len(runs) > 1 else ""] * len(of_run)
    if out is not None:
        from sublayer.inspection.paths import draw_paths

        write_plot(out, draw_paths(panels, titles))
    return {"what": "paths", "runs": results, "out": out}


def _follow(run: Path, options: SampleOptions) -> "tuple[dict[str, Any], list[Panel]]":
    """Follow tokens through a model; return what was read, and a panel for each stack."""
    from sublayer.data.tokenizers.shown import show_tokens
    from sublayer.inspection.paths import Panel, check_steps, follow_tokens, project
    from sublayer.loading import load
    from sublayer.system.machine import choose_device

    model = load(run, device=choose_device(options.device))
    check_steps(model.config, str(run))
    one_row = replace(options, max_tokens=_ONE_ROW)
    read = sample_stacks(run, model, recipe_of(run), one_row, cuts_windows=True)
    panels = []
    all_paths = follow_tokens(model, read.samples, n_tokens=options.max_tokens)
    for paths, sample in zip(all_paths, read.samples, strict=True):
        n_followed = paths.states.shape[1]
        ids = sample.tokens[sample.is_real][:n_followed].numpy()
        tokens = show_tokens(ids, model.tokenizer)
        coordinates, shares = project(paths.states)
        panels.append(Panel(paths.stack, tokens, paths.steps, shares, coordinates.tolist()))
    about = {
        "run": str(run),
        "kind": model.config.kind,
        "split": None if options.path else "valid",
        "sources": list(read.sources),
    }
    return about, panels


def render_paths(result: JsonObject) -> str:
    """Format what was read, and what was measured."""
    parts: list[str] = []
    for run in result["runs"]:
        parts += map(paragraph, _describe(run))
    if result["out"] is not None:
        parts.append(f"drawn in {result['out']}")
    return "\n".join(parts)


def _describe(run: JsonObject) -> Iterator[str]:
    """Generate a line for each stack: its tokens, and the variance along both axes."""
    sources = ", ".join(map(as_typed, run["sources"]))
    if run["split"] is not None:
        sources = f"the {run['split']} split of {sources}"
    for stack in run["stacks"]:
        # States that are all equal have no variance, and no shares of it.
        first, second = (
            "none" if math.isnan(share) else f"{share:.1%}" for share in stack["shares"]
        )
        yield (
            f"{run['run']}, {stack['stack']}: the first {count(len(stack['tokens']), 'token')} of "
            f"{sources}; the plane has {first} and {second} of the variance of their states"
        )
