"""Compute what claims of the papers need no training for: ``records/arithmetic``.

    python benchmarks/claims_by_arithmetic.py

That is how the error of one step of each splitting falls with its length, on equations whose flows
are known (Lu et al. 2019, sec. 3 and theorem 1), and how many parameters, and operations a token,
the published models have. Takes seconds.
"""

import json
import math
from pathlib import Path
from typing import Any

import sublayer
from sublayer.inspection.splitting import (
    SPLITTINGS,
    STEPS,
    linear_problem,
    local_errors,
    nonlinear_problem,
)

RECORD = Path(__file__).parent.parent / "records" / "arithmetic"
MODELS = (
    "iwslt14-small-transformer-paper",
    "iwslt14-small-macaron-paper",
    "wmt14-base-transformer-paper",
    "wmt14-base-macaron-paper",
    "wmt14-big-transformer-paper",
    "bert-base",
    "bert-large",
    "albert-base",
    "albert-large",
    "albert-xlarge",
    "albert-xxlarge",
)


def splitting_orders() -> list[dict[str, Any]]:
    """Return the slope of each splitting's error of one step, at the smallest halving measured."""
    rows = []
    for problem in (linear_problem(), nonlinear_problem()):
        for substeps in ("exact", "midpoint", "Euler"):
            for splitting in SPLITTINGS:
                found = local_errors(problem, splitting, substeps)
                slopes = [slope for slope in found.slopes if math.isfinite(slope)]
                rows.append(
                    {
                        "equation": problem.name,
                        "substeps": substeps,
                        "splitting": splitting,
                        "slope": slopes[-1],
                        "error": found.errors[0],
                    }
                )
    return rows


def model_sizes() -> dict[str, dict[str, Any]]:
    """Return the parameters in training and the operations a token of published models."""
    sizes = {}
    for name in MODELS:
        (arm,) = sublayer.plan(name).arms
        sizes[name] = {"parameters": arm["parameters"]["total"], "flops": arm["flops_per_token"]}
    return sizes


def tables(orders: list[dict[str, Any]], sizes: dict[str, dict[str, Any]]) -> str:
    """Lay out both as Markdown."""
    lines = [
        "How the error of one step falls where its length is halved: the exponent, at the smallest",
        f"step of 1/{round(1 / STEPS[-1])}. The order of a scheme is one less.",
        "",
        "| equation | each part is followed | splitting | exponent | error at a step of 1/8 |",
        "| --- | --- | --- | ---: | ---: |",
    ]
    for row in orders:
        how = {"exact": "exactly", "midpoint": "by a midpoint step", "Euler": "by an Euler step"}
        cells = (row["equation"], how[row["substeps"]], row["splitting"])
        lines.append(f"| {' | '.join(cells)} | {row['slope']:.2f} | {row['error']:.2g} |")
    lines += [
        "",
        "| recipe | parameters in training | operations a token |",
        "| --- | ---: | ---: |",
    ]
    for name, size in sizes.items():
        lines.append(f"| `{name}` | {size['parameters']:,} | {size['flops']:,} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Write the results, as numbers and as tables."""
    orders, sizes = splitting_orders(), model_sizes()
    RECORD.mkdir(exist_ok=True)
    content = {"orders": orders, "sizes": sizes}
    written = json.dumps(content, indent=1) + "\n"
    (RECORD / "arithmetic.json").write_text(written, encoding="utf-8")
    (RECORD / "TABLES.md").write_text(tables(orders, sizes), encoding="utf-8")
    print(tables(orders, sizes))


if __name__ == "__main__":
    main()
