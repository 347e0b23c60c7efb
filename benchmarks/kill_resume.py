"""Kill training runs at random moments, resume them, and compare with unbroken runs bit for bit.

    python benchmarks/kill_resume.py --runs 30 --seed 1

Each run is a process of its own that gets SIGKILL after a random time, as often as it takes to
reach the end; half of the recipes use momentum SGD, all use dropout and accumulation, one has
losses of blocks that stop on the way. Prints a line per run; exits with 1 if any differs.
"""

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPES = {
    "gpt": [],
    "llama-2023": ["train.evaluate_steps=7"],
    "char-small": ["model.dropout_ffn=0.1"],
    "macaron": ["optimizer.kind=sgd", "optimizer.lr=0.1", "data.windows=shuffled"],
}
SETTINGS = [
    *(
        "model.d_model=64",
        "model.n_layers=3",
        "model.dropout=0.1",
        "data.context=64",
        "data.corpus=python",
    ),
    *(
        "train.steps=120",
        "train.checkpoint_steps=10",
        "train.micro_batch_sequences=4",
        "train.evaluate_tokens=4096",
    ),
    *("train.threads=1", "train.precision=float32"),
]


def command(recipe: str, folder: Path) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)  # where nothing is, nothing is resumed
    settings = [*SETTINGS, *RECIPES[recipe]]
    if recipe == "macaron":
        settings.append("model.d_ff=128")
    return [
        sys.executable,
        "-m",
        "sublayer",
        "train",
        recipe,
        *settings,
        "--out",
        str(folder),
        "--resume",
    ]


def result(folder: Path) -> tuple[str, str]:
    """Return the results that must not differ: hash of the model, and figures but for times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    figures = json.dumps(
        [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
    )
    weights = (folder / "model" / "model.safetensors").read_bytes()
    return hashlib.sha256(weights).hexdigest()[:16], hashlib.sha256(figures.encode()).hexdigest()[
        :16
    ]


def run_with_kills(recipe: str, folder: Path, draw: random.Random, unbroken_s: float) -> int:
    kills = 0
    while True:
        process = subprocess.Popen(
            command(recipe, folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            # The first kills come early and often; the later ones leave time to get somewhere.
            _, errors = process.communicate(timeout=draw.uniform(0.2, 1.0 + kills / 4) * unbroken_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
            continue
        if process.returncode != 0:
            raise SystemExit(f"{recipe} in {folder} failed after {kills} kills: {errors}")
        return kills


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    differing = total_kills = 0
    with tempfile.TemporaryDirectory() as name:
        expected, unbroken_s = {}, {}
        for recipe in RECIPES:
            begun = time.monotonic()
            subprocess.run(command(recipe, Path(name) / recipe), check=True, capture_output=True)
            unbroken_s[recipe] = time.monotonic() - begun
            expected[recipe] = result(Path(name) / recipe)
        for number in range(options.runs):
            recipe = list(RECIPES)[number % len(RECIPES)]
            folder = Path(name) / f"{recipe}-{number}"
            kills = run_with_kills(recipe, folder, draw, unbroken_s[recipe])
            same = result(folder) == expected[recipe]
            differing += not same
            total_kills += kills
            print(
                f"{number + 1:3d} {recipe:8s} {kills} kills: "
                f"{'identical' if same else 'DIFFERENT'}",
                flush=True,
            )
    print(f"{options.runs} runs, {total_kills} kills, {differing} different from the unbroken runs")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
