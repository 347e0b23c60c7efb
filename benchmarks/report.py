"""What was measured, as JSON and as a table."""

import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from contestants import OURS, SIZES, Setup, our_recipe
from rounds import Timing

from sublayer.config.resolve import resolve_model
from sublayer.model.cost import flops_per_token
from sublayer.train.machine import describe_machine

PACKAGES = ("torch", "transformers", "x-transformers", "numpy")
# Dense bf16 FLOP/s as their vendor states them; model-FLOPs utilisation is a share of this.
PEAK_FLOPS = {"H100": 989.4e12, "H200": 989.4e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "RTX 4090": 165.2e12}


def describe_case(timings: Sequence[Timing]) -> dict[str, Any]:
    """Describe one case: each contestant in its best setup, fastest first, and how we compare."""
    best: dict[str, Timing] = {}
    for timing in sorted(timings, key=lambda timing: timing.median, reverse=True):
        best.setdefault(timing.setup.contestant, timing)
    ours = best[OURS]
    peers = [timing for name, timing in best.items() if name != OURS]
    setup = ours.setup
    return {
        "size": setup.size,
        "description": str(SIZES[setup.size]),
        "dropout": setup.dropout,
        "contestants": [_describe(timing, ours) for timing in best.values()],
        "speed_over_fastest_peer": ours.median / peers[0].median,
        "speed_over_transformers": min(
            (ours.median / t.median for t in peers if "transformers " in t.setup.contestant), default=None
        ),
        "memory_over_fastest_peer": ours.peak_bytes / peers[0].peak_bytes,
        "loading_share_of_a_step": (ours.loading_s or 0.0) * ours.median / SIZES[setup.size].tokens_per_step,
        "all_setups": [{**asdict(timing.setup), "tokens_per_s": timing.median} for timing in timings],
    }


def describe_conditions(device: str) -> dict[str, Any]:
    """Describe when, where and with what was measured."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short=12", "HEAD")
        + ("+changes" if _git("status", "--porcelain", "-uno") else ""),
        "machine": describe_machine(torch.device(device)),
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def markdown(result: Mapping[str, Any]) -> str:
    """Write the tables."""
    conditions = result["conditions"]
    versions = ", ".join(f"{name} {number}" for name, number in conditions["versions"].items())
    machine = conditions["machine"]
    lines = [
        f"{conditions['time']}, commit {conditions['commit']}: {machine.get('gpu', machine['processor'])}, "
        f"{conditions['threads']} threads; {versions}; {result['rounds']} interleaved rounds, medians.",
    ]
    for case in result["cases"]:
        lines += ["", f"**{case['description']}, dropout {case['dropout']:g}**", "", *_table(case), "", _verdict(case)]
    return "\n".join(lines) + "\n"


def _describe(timing: Timing, ours: Timing) -> dict[str, Any]:
    described = {
        "name": timing.setup.contestant,
        "setup": str(timing.setup),
        "tokens_per_s": timing.median,
        "slowest_round": min(timing.tokens_per_s),
        "fastest_round": max(timing.tokens_per_s),
        "peak_bytes": timing.peak_bytes,
        "ours_over_it": ours.median / timing.median,
        "our_memory_over_its": ours.peak_bytes / timing.peak_bytes,
    }
    utilisation = _utilisation(timing, ours.setup)
    return described if utilisation is None else {**described, "flops_utilisation": utilisation}


def _utilisation(timing: Timing, ours: Setup) -> float | None:
    if timing.setup.device != "cuda":
        return None
    name = torch.cuda.get_device_name()
    peak = next((flops for key, flops in PEAK_FLOPS.items() if key in name), None)
    size = SIZES[ours.size]
    config = resolve_model(our_recipe(ours).recipe.model, vocab_size=size.vocab_size, context=size.context)
    return None if peak is None else timing.median * flops_per_token(config, size.context) / peak


def _table(case: Mapping[str, Any]) -> list[str]:
    has_utilisation = "flops_utilisation" in case["contestants"][0]
    extra = (" FLOPs utilisation |", " ---: |") if has_utilisation else ("", "")
    rows = [
        "| training step | setup | tokens/s | slowest to fastest round | ours / it | peak memory | ours / its |"
        + extra[0],
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
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _verdict(case: Mapping[str, Any]) -> str:
    over = case["speed_over_transformers"]
    transformers = "" if over is None else f"{over:.2f} times transformers (aim 1.5), "
    return (
        f"{case['speed_over_fastest_peer']:.2f} times the fastest peer (aim 1.25), {transformers}"
        f"{case['memory_over_fastest_peer']:.2f} of the fastest peer's memory (aim 0.6); "
        f"loading data takes {case['loading_share_of_a_step']:.2%} of a step (aim below 2 %)."
    )


def _git(*arguments: str) -> str:
    here = Path(__file__).parent
    done = subprocess.run(["git", *arguments], cwd=here, check=False, capture_output=True, text=True)
    return done.stdout.strip() or ("unknown" if arguments[0] == "rev-parse" else "")
