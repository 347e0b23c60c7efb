"""Run everything that needs a GPU, in 45 minutes and by one command. See README.md.

    python benchmarks/gpu.py                       # on the first GPU
    python benchmarks/gpu.py --dry-run             # the same code on a CPU, small: no measurement
    python benchmarks/gpu.py --only tests t5       # some parts; the others are left as they are

Each part is a process with its own minutes, its log and its JSON in --out. The same command again
runs what is missing or failed; what is there is not run again. The report names what was not run.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gpu_cases import CASES
from gpu_report import report
from options import note
from report import RESULTS, describe_conditions, keep, result_name

HERE = Path(__file__).resolve().parent
STUDY = [
    "model.d_model=256",
    "model.n_layers=4",
    "data.context=256",
    "train.batch_sequences=32",
    "train.steps=300",
]
DRY_STUDY = [
    "model.d_model=32",
    "model.n_layers=1",
    "model.n_heads=2",
    "data.context=32",
    "train.batch_sequences=2",
    "train.steps=6",
    "train.precision=float32",
]


SCRIPTS = {
    "generation": "gpu_generation.py",
    "batches": "batches_ahead.py",
    "attention": "gpu_attention.py",
}
"""Command that measures a part by itself."""

DRY_PATIENCE = 4
"""Factor of time that a part may take without a GPU, where nothing is measured."""


@dataclass(frozen=True)
class Part:
    """Something that is run by itself, in so many minutes at most."""

    name: str
    title: str
    minutes: float


PARTS = [
    Part("tests", "Tests marked gpu", 8.0),
    *(Part(name, f"Training: {case.title}", 6.0) for name, case in CASES.items()),
    Part("generation", "Generation: GPT-2 small", 6.0),
    Part("batches", "Batches prepared ahead, and when they are due", 2.0),
    Part("attention", "Attention without padding, and under a mask", 1.0),
    Part("study", "A study: GELU against SwiGLU, three seeds", 4.0),
]


def main() -> None:
    """Run what the command line asks for, and write the report of what there is."""
    options = _options()
    device = "cpu" if options.dry_run else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(
            "error: there is no CUDA GPU here: give --dry-run to try it all on a CPU, or run it "
            "where torch.cuda.is_available() is True"
        )
    what = "gpu dry run" if options.dry_run else "gpu"
    out = options.out or RESULTS / result_name(device, what)
    out.mkdir(parents=True, exist_ok=True)
    conditions = describe_conditions(device)
    _require_same_place(out, conditions, is_dry=options.dry_run)
    for part in PARTS:
        if options.only and part.name not in options.only:
            continue
        kept = _kept(out, part)
        if kept is not None and kept["outcome"] == "passed":
            note(f"{part.name}: done before")
            continue
        _run(part, out, is_dry=options.dry_run)
    parts = {part.name: (part.title, _kept(out, part)) for part in PARTS}
    result = {"conditions": conditions, "is_dry": options.dry_run, "parts": parts}
    table = report(result)
    keep(result, table, out / "report")
    print(table)
    failed = [name for name, (_, kept) in parts.items() if kept and kept["outcome"] != "passed"]
    if failed:
        raise SystemExit(f"error: {', '.join(failed)} did not pass: see the logs in {out}")


def command_of(part: str, out: Path, *, is_dry: bool, minutes: float) -> list[str]:
    """Return the command of a part, which writes ``<part>.json`` where it measures something."""
    dry = ["--dry-run"] if is_dry else []
    result = ["--out", str(out / f"{part}.result.json")]
    if part == "tests":
        # Without a GPU the same bodies run on the CPU: those marked gpu are skipped, with reasons.
        chosen = [] if is_dry else ["-m", "gpu"]
        junit = f"--junitxml={out / 'tests.xml'}"
        return [sys.executable, "-m", "pytest", "-q", "-rs", "tests/gpu", *chosen, junit]
    if part == "study":
        sizes, device = (DRY_STUDY, "cpu") if is_dry else (STUDY, "cuda")
        arms = ["--vary", "model.ffn=gelu,swiglu", "--seeds", "3", "--device", device]
        place = ["--out", str(out / "study"), "--json"]
        return [sys.executable, "-m", "sublayer", "compare", "gpt", *arms, *place, *sizes]
    if part in SCRIPTS:
        return [sys.executable, str(HERE / SCRIPTS[part]), *dry, *result]
    # What compiling takes beside the rounds is not a round's.
    within = ["--minutes", f"{0.8 * minutes:g}"]
    return [sys.executable, str(HERE / "gpu_training.py"), part, *dry, *within, *result]


def _run(part: Part, out: Path, *, is_dry: bool) -> None:
    limit = part.minutes * (DRY_PATIENCE if is_dry else 1)
    note(f"{part.name}: at most {limit:g} minutes")
    command = command_of(part.name, out, is_dry=is_dry, minutes=1.0 if is_dry else part.minutes)
    log = out / f"{part.name}.log"
    begun = time.monotonic()
    # On a GPU every row of a table of tests is tried.
    breadth = {} if is_dry else {"TESTS_ALL": "1"}
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), **breadth}
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=HERE.parent,
            env=environment,
            stdout=subprocess.PIPE if part.name == "study" else file,
            stderr=file,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=60 * limit)
            outcome = "passed" if process.returncode == 0 else f"failed: code {process.returncode}"
        except subprocess.TimeoutExpired:
            # All that it started, too.
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            outcome = f"not finished in {limit:g} minutes"
    kept: dict[str, Any] = {
        "outcome": outcome,
        "seconds": round(time.monotonic() - begun, 1),
        "command": command[1:],
    }
    result = out / f"{part.name}.result.json"
    if outcome == "passed":
        if part.name == "study":
            kept["result"] = json.loads(output)
        elif result.exists():
            kept["result"] = json.loads(result.read_text())
    (out / f"{part.name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    note(f"{part.name}: {outcome} after {kept['seconds']:.0f} s")


def _kept(out: Path, part: Part) -> dict[str, Any] | None:
    path = out / f"{part.name}.json"
    if not path.exists():
        return None
    kept: dict[str, Any] = json.loads(path.read_text())
    return kept


def _require_same_place(out: Path, conditions: dict[str, Any], *, is_dry: bool) -> None:
    """Refuse to mix parts of two devices, commits or sizes in one report."""
    path = out / "place.json"
    place = {
        "commit": conditions["commit"],
        "device": conditions["machine"].get("gpu", "cpu"),
        "is_dry": is_dry,
        "versions": conditions["versions"],
    }
    if path.exists() and json.loads(path.read_text()) != place:
        raise SystemExit(
            f"error: {out} has parts of another device, commit or version, as its place.json says: "
            "give another --out"
        )
    path.write_text(json.dumps(place, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run everything that needs a GPU, in 45 minutes.",
        epilog="example: python benchmarks/gpu.py --dry-run --out /tmp/dry",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="on a CPU and small, to try the code: no measurement"
    )
    names = [part.name for part in PARTS]
    parser.add_argument("--only", nargs="+", choices=names, help="run these parts alone")
    parser.add_argument("--out", type=Path, help="the folder of parts, logs and report")
    return parser.parse_args()


if __name__ == "__main__":
    main()
