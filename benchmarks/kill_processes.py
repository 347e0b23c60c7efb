"""Kill processes that train together at random moments, and compare with unbroken runs bit for bit.

    python benchmarks/kill_processes.py --kills 60 --out runs/kills

Each run is started by ``torchrun --max-restarts`` on 2 or 4 processes, sharded or not. Of its
processes one is killed at a random moment, or stopped so that it hangs, or all are killed with the
launcher and the run is resumed, on another number of processes where it is ``exact``. What has
been done stands in ``kills.jsonl`` of the folder, from which the same command goes on. Exits with 1
if any run differs, if an error is not told in one line, or if more steps are lost than lie between
checkpoints.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from kill_resume import result

CASES: dict[str, dict[str, object]] = {
    "2 whole": {"processes": 2},
    "2 optimizer": {"processes": 2, "train.shard": "optimizer"},
    "2 full": {"processes": 2, "train.shard": "full"},
    "4 whole": {"processes": 4},
    "4 full": {"processes": 4, "train.shard": "full"},
    "exact": {"processes": 4, "train.exact": "true"},
}
EXACT_PROCESSES = (1, 2, 4)
SETTINGS = {
    "model.n_layers": 2,
    "model.d_model": 32,
    "model.n_heads": 2,
    "model.dropout": 0.1,
    "data.context": 32,
    "data.corpus": "python",
    "train.steps": 120,
    "train.batch_sequences": 8,
    "train.micro_batch_sequences": 1,
    "train.evaluate_steps": 40,
    "train.evaluate_tokens": 2048,
    "train.checkpoint_steps": 10,
    "train.threads": 1,
    "train.precision": "float32",
    "train.hang_minutes": 0.25,
}
WAYS = ("kill one", "hang one", "kill all")
_LIMIT_S = 900.0
_MOST_WAIT_S = 0.4


def command(case: dict[str, object], folder: Path, processes: int) -> list[str]:
    settings = {**SETTINGS, **{key: value for key, value in case.items() if "." in key}}
    words = [f"{key}={value}" for key, value in settings.items()]
    run = ["sublayer", "train", "gpt", *words, "--out", str(folder), "--resume"]
    if processes == 1:
        return [sys.executable, "-m", *run]
    launcher = ["torch.distributed.run", "--standalone", "--max-restarts", "20"]
    return [sys.executable, "-m", *launcher, "--nproc-per-node", str(processes), "-m", *run]


def workers(folder: Path) -> list[int]:
    """The processes that train in a folder, the launcher not."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            if str(folder).encode() in words and b"torch.distributed.run" not in words:
                found.append(int(path.name))
    return sorted(found)


def steps_done(folder: Path) -> int:
    return max((int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*")), default=0)


def check_errors(text: str) -> None:
    """An error of ours is one line; what torchrun logs of it is its own."""
    if "Traceback" in text.split("torch/distributed/elastic")[0]:
        raise SystemExit(f"a traceback:\n{text[-4000:]}")


def run_with_a_kill(
    case: dict[str, object], folder: Path, way: str, draw: random.Random
) -> dict[str, object]:
    """Train to the end, with one kill: soon after the start, or after a checkpoint has come."""
    # Not after the last step: who is stopped when all is done is waited for by the launcher alone.
    # Nor before the first, where others wait ten minutes for who is stopped.
    first = 10 if way == "hang one" else 0
    after_step, wait_s = draw.randrange(first, 101, 10), draw.uniform(0.0, _MOST_WAIT_S)
    processes = int(str(case["processes"]))
    log = folder.with_suffix(".log")
    with log.open("w") as errors:
        started = subprocess.Popen(
            command(case, folder, processes), stdout=subprocess.DEVNULL, stderr=errors
        )
        while len(workers(folder)) < processes:
            time.sleep(0.05)
        while steps_done(folder) < after_step and started.poll() is None:
            time.sleep(0.01)
        time.sleep(wait_s)
        before = steps_done(folder)
        victims = workers(folder)
        if way == "kill all":
            os.kill(started.pid, signal.SIGKILL)
            for pid in victims:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        elif victims:
            number = signal.SIGKILL if way == "kill one" else signal.SIGSTOP
            with suppress(ProcessLookupError):
                os.kill(draw.choice(victims), number)
        started.wait(_LIMIT_S)
        went_on_with = processes
        if way == "kill all":
            if case.get("train.exact"):
                went_on_with = draw.choice(EXACT_PROCESSES)
            again = subprocess.run(
                command(case, folder, went_on_with),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=_LIMIT_S,
            )
            code = again.returncode
        else:
            code = started.returncode
    text = log.read_text(errors="replace")
    check_errors(text)
    if code != 0:
        raise SystemExit(f"{folder} ended with {code}:\n{text[-4000:]}")
    return {"killed": len(victims), "after_step": before, "went_on_with": went_on_with}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/kills"))
    options = parser.parse_args()
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    record = out / "kills.jsonl"
    done = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    for name, case in CASES.items():
        folder = out / f"unbroken-{name.replace(' ', '-')}"
        processes = int(str(case["processes"]))
        subprocess.run(command(case, folder, processes), check=True, capture_output=True)
        case["result"] = result(folder)
    for number in range(len(done), options.kills):
        draw = random.Random(f"{options.seed} {number}")
        name = list(CASES)[number % len(CASES)]
        case, way = CASES[name], WAYS[number // len(CASES) % len(WAYS)]
        folder = out / f"run-{number:03d}"
        shutil.rmtree(folder, ignore_errors=True)
        found = run_with_a_kill(case, folder, way, draw)
        is_same = result(folder) == case["result"]
        line = {"case": name, "way": way, **found, "same": is_same}
        with record.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{number + 1:3d} {json.dumps(line)}", flush=True)
        done.append(line)
        shutil.rmtree(folder)
    n_killed = sum(line["killed"] > 0 for line in done)
    differing = [line for line in done if not line["same"]]
    print(
        f"{len(done)} runs, {n_killed} of them killed while they ran, {len(differing)} different "
        "from the unbroken runs"
    )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
