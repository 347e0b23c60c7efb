"""Measurements as JSON and as a table."""

import json
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import compiled
import torch
from contestants import OURS, SIZES, Setup, our_recipe, resolved_recipe
from peaks import peak_of
from products import share_of_products
from rounds import Rounds, Timing

from sublayer.config.recipe import ResolvedRecipe
from sublayer.config.resolve import resolve_model
from sublayer.model.estimates import flops_per_token
from sublayer.system.machine import cores, describe_machine, processor

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "transformers", "x-transformers", "numpy")


AIMED_SHARES = {"float32": 0.85, "bfloat16": 0.6}
"""Of the speed of products, where the peers leave no room for more."""


def compare(rounds: Rounds, recipe: ResolvedRecipe) -> dict[str, Any]:
    """Describe a case: each contestant in its best setup, fastest first, and how we compare.

    ``recipe`` is ours: of which the products are that were timed beside. Ours is compared as it is,
    with peers as they are, and apart with peers compiled on a CPU.
    """
    timings, product_speed = rounds.timings, statistics.median(rounds.product_flops_per_s)
    best = best_setups(timings)
    ours = best[OURS]
    fastest_peer = next(
        timing
        for timing in best.values()
        if timing.setup.contestant != OURS and not timing.setup.is_compiled_on_cpu
    )
    contestants = [_describe(timing, ours) for timing in best.values()]
    return {
        "contestants": contestants,
        "speed_over_fastest_peer": ours.median / fastest_peer.median,
        "memory_over_fastest_peer": ours.peak_bytes / fastest_peer.peak_bytes,
        "rounds": len(ours.tokens_per_s),
        "product_gflops_per_s": [speed / 1e9 for speed in rounds.product_flops_per_s],
        "share_of_products": share_of_products(recipe, ours.median, product_speed),
        **compiled.compare(contestants, rounds.not_compiled),
        "all_setups": [
            {**timing.setup.described(), "tokens_per_s": timing.median} for timing in timings
        ],
    }


def best_setups(timings: Sequence[Timing]) -> dict[str, Timing]:
    """Give each contestant's best setup, compiled on a CPU apart, the fastest first."""
    best: dict[str, Timing] = {}
    for timing in sorted(timings, key=lambda timing: timing.median, reverse=True):
        best.setdefault(timing.setup.name, timing)
    return best


def describe_case(rounds: Rounds) -> dict[str, Any]:
    """Describe one case of decoders."""
    best = best_setups(rounds.timings)
    ours = best[OURS]
    setup = ours.setup
    case = compare(rounds, resolved_recipe(setup))
    for described, timing in zip(case["contestants"], best.values(), strict=True):
        utilisation = _utilisation(timing, setup)
        if utilisation is not None:
            described["flops_utilisation"] = utilisation
    over = (
        ours.median / timing.median
        for timing in best.values()
        if "transformers " in timing.setup.contestant and not timing.setup.is_compiled_on_cpu
    )
    return {
        "size": setup.size,
        "description": f"{SIZES[setup.size]}, dropout {setup.dropout:g}",
        "dropout": setup.dropout,
        **case,
        "speed_over_transformers": min(over, default=None),
        "loading_share_of_a_step": (ours.loading_s or 0.0) / ours.step_s,
    }


def describe_conditions(device: str) -> dict[str, Any]:
    """Describe time, machine and versions of a measurement."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short=12", "HEAD")
        + ("+changes" if _git("status", "--porcelain", "-uno") else ""),
        "machine": describe_machine(torch.device(device)),
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        },
    }


def markdown(result: Mapping[str, Any], verdict: Callable[[Mapping[str, Any]], str]) -> str:
    """Write the tables, with a sentence on each case."""
    lines = [f"{heading(result)}; up to {result['rounds']} interleaved rounds, medians."]
    for case in result["cases"]:
        lines += [
            "",
            f"**{case['description']}**; {case['rounds']} rounds",
            "",
            *training_table(case),
            "",
        ]
        lines += [verdict(case), "", products_verdict(case), *compiled.lines(case)]
    if result["not_compiled"] is not None:
        lines += ["", f"No contestant was compiled apart: {result['not_compiled']}."]
    return "\n".join(lines) + "\n"


def heading(result: Mapping[str, Any]) -> str:
    """Write time, machine and versions of a measurement."""
    conditions = result["conditions"]
    versions = ", ".join(f"{name} {number}" for name, number in conditions["versions"].items())
    machine = conditions["machine"]
    return (
        f"{conditions['time']}, commit {conditions['commit']}: "
        f"{machine.get('gpu', machine['processor'])}, "
        f"{conditions['threads']} threads; {versions}"
    )


def keep(result: Mapping[str, Any], table: str, path: Path) -> None:
    """Write measurements and their table, as ``path`` with .json and .md."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.json").write_text(json.dumps(result, indent=1) + "\n")
    path.with_name(f"{path.name}.md").write_text(table)
    print(f"kept in {path}.json and .md", file=sys.stderr, flush=True)


def result_name(device: str, what: str = "") -> str:
    """Name a result after the day, the machine and the measurement."""
    where = torch.cuda.get_device_name() if device == "cuda" else f"{processor()} x{cores()}"
    words = re.sub(r"[^a-z0-9]+", "-", f"{where} {what}".lower()).strip("-")
    return f"{datetime.now(UTC):%Y-%m-%d}-{words}"


def _describe(timing: Timing, ours: Timing) -> dict[str, Any]:
    return {
        "name": timing.setup.name,
        "contestant": timing.setup.contestant,
        "setup": str(timing.setup),
        "tokens_per_s": timing.median,
        "slowest_round": min(timing.tokens_per_s),
        "fastest_round": max(timing.tokens_per_s),
        "peak_bytes": timing.peak_bytes,
        "peak_steps": timing.peak_steps,
        "starting_s": timing.starting_s,
        "ours_over_it": ours.median / timing.median,
        "our_memory_over_its": ours.peak_bytes / timing.peak_bytes,
    }


def _utilisation(timing: Timing, ours: Setup) -> float | None:
    if timing.setup.device != "cuda":
        return None
    peak = peak_of(torch.cuda.get_device_name())
    size = SIZES[ours.size]
    config = resolve_model(
        our_recipe(ours).recipe.model, vocab_size=size.vocab_size, context=size.context
    )
    if peak is None:
        return None
    return timing.median * flops_per_token(config, size.context) / peak.flops


def training_table(case: Mapping[str, Any]) -> list[str]:
    has_utilisation = "flops_utilisation" in case["contestants"][0]
    has_compiled = any(each.get("starting_s") is not None for each in case["contestants"])
    extra = (" FLOPs utilisation |", " ---: |") if has_utilisation else ("", "")
    if has_compiled:
        extra = (f"{extra[0]} compiling | pays from |", f"{extra[1]} ---: | ---: |")
    rows = [
        "| training step | setup | tokens/s | slowest to fastest round | ours / it "
        "| peak memory | ours / its |" + extra[0],
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |" + extra[1],
    ]
    for each in case["contestants"]:
        cells = [
            each["name"],
            each["setup"],
            f"{each['tokens_per_s']:,.0f}",
            f"{each['slowest_round']:,.0f} to {each['fastest_round']:,.0f}",
            f"{each['ours_over_it']:.2f}",
            f"{each['peak_bytes'] / 1e6:,.0f} MB",
            f"{each['our_memory_over_its']:.2f}",
            *([f"{each['flops_utilisation']:.1%}"] if has_utilisation else []),
            *(compiled.cells(each) if has_compiled else []),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def verdict(case: Mapping[str, Any]) -> str:
    """Say how a case of decoders compares with its target."""
    over, aim = case["speed_over_transformers"], 0.74 if case["size"] == "muon" else 1.25
    transformers = "" if over is None else f"{over:.2f} times transformers (aim 1.5), "
    return (
        f"{case['speed_over_fastest_peer']:.2f} times the fastest peer (aim {aim}), {transformers}"
        f"{case['memory_over_fastest_peer']:.2f} of the fastest peer's memory (aim 0.6); "
        f"loading data takes {case['loading_share_of_a_step']:.2%} of a step (aim below 2 %)."
    )


def products_verdict(case: Mapping[str, Any]) -> str:
    """Say how near training is to the speed of its own matrix products."""
    ours = next(each for each in case["contestants"] if each["name"] == OURS)
    speeds, aim = case["product_gflops_per_s"], AIMED_SHARES[ours["setup"].partition(",")[0]]
    return (
        f"Products of its shapes run at {statistics.median(speeds):,.0f} GFLOP/s here "
        f"({min(speeds):,.0f} to {max(speeds):,.0f}, {ours['setup']}), "
        f"our training at {case['share_of_products']:.0%} of that (aim {aim:.0%} "
        "where the peers leave no room)."
    )


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    done = subprocess.run(
        ["git", *arguments], cwd=here, check=False, capture_output=True, text=True
    )
    return done.stdout.strip() or ("unknown" if arguments[0] == "rev-parse" else "")
