"""How ``sublayer inspect paths`` prints what the steps do."""

import math
from collections.abc import Iterator

from sublayer.commands.shared.base import JsonObject
from sublayer.commands.shared.paragraphs import paragraph
from sublayer.counts import count
from sublayer.files.paths import as_typed
from sublayer.system.terminal import terminal_width
from sublayer.tables import table

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
