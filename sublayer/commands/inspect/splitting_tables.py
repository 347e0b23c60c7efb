"""How ``sublayer inspect splitting`` prints its errors."""

import math
from collections.abc import Sequence

from sublayer.commands.shared.base import JsonObject
from sublayer.commands.shared.paragraphs import paragraph
from sublayer.counts import count
from sublayer.system.terminal import terminal_width
from sublayer.tables import table

_ERRORS = "the error of a single step of size h, and its order in h"
_TERMS = (
    "Euler sub-steps: all err by h^2; "
    "how much of each product of a flow's derivative with a flow is in it (scheme "
    "less exact), and the length of their sum, as worked out and as measured (linear equation)"
)
_LAYERS = "the distance between a step and what its flows lead to, as a fraction of the way"
_LAYER_HEADINGS = ("stack", "layer", "Lie", "Strang", "as trained", "way")


def render_splitting(result: JsonObject) -> str:
    """Format the errors as tables."""
    parts = []
    if "local_errors" in result:
        parts.append(_error_table(result["local_errors"]))
        parts.append(_term_table(result["leading_terms"]))
    for run in result.get("runs", ()):
        parts.append(_layer_table(run))
    if result["out"] is not None:
        parts.append(f"drawn in {result['out']}")
    return "\n\n".join(parts)


def _error_table(errors: Sequence[JsonObject]) -> str:
    steps = errors[0]["steps"]
    largest, smallest = steps[0], steps[-1]
    headings = [
        "equation",
        "sub-steps",
        "splitting",
        f"error, h = {largest:g}",
        f"h = {smallest:.4g}",
        "order",
    ]
    rows = [_error_row(each) for each in errors]
    shown = table(headings, rows, right=[3, 4, 5], width=terminal_width())
    return f"{paragraph(_ERRORS)}\n{shown}"


def _error_row(errors: JsonObject) -> list[str]:
    sizes = errors["errors"]
    order = errors["slopes"][-1]
    return [
        errors["equation"],
        errors["substeps"],
        errors["splitting"],
        f"{sizes[0]:.2e}",
        f"{sizes[-1]:.2e}",
        "none" if math.isnan(order) else f"{order:.2f}",
    ]


def _term_table(terms: Sequence[JsonObject]) -> str:
    products = list(terms[0]["coefficients"])
    headings = ["splitting", *products, "worked out", "measured"]
    rows = []
    for term in terms:
        row = [term["splitting"]]
        for product in products:
            coefficient = round(term["coefficients"][product], 9)
            row.append(f"{coefficient:.4g}")
        for vector in (term["predicted"], term["measured"]):
            row.append(f"{math.hypot(*vector):.4f}")
        rows.append(row)
    shown = table(headings, rows, right=range(1, len(headings)), width=terminal_width())
    return f"{paragraph(_TERMS)}\n{shown}"


def _layer_table(run: JsonObject) -> str:
    rows = [_layer_row(layer) for layer in run["layers"]]
    read = f"{run['run']}: {count(run['tokens'], 'token')}"
    layers = table(_LAYER_HEADINGS, rows, right=range(1, len(_LAYER_HEADINGS)))
    return f"{paragraph(f'{read}; {_LAYERS}')}\n{layers}"


def _layer_row(layer: JsonObject) -> list[str]:
    return [
        layer["stack"],
        str(layer["layer"]),
        f"{layer['lie']:.4f}",
        f"{layer['strang']:.4f}",
        f"{layer['own']:.4f}",
        f"{layer['way']:.4g}",
    ]
