"""A small study, made here and on a cluster, and what of both must be the same to the bit."""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WORDS = ("the", "reed", "by", "the", "river", "bends", "and", "does", "not", "break")
SETTINGS = """
    data.path=river.txt model.n_layers=2 model.d_model=32 model.n_heads=2 data.context=32
    train.batch_sequences=8 train.steps=300 train.checkpoint_steps=30 train.threads=1
"""
STUDY = ["gpt", *SETTINGS.split(), "--vary", "model.ffn=gelu,swiglu", "--seeds", "3"]
TIMES_AND_PLACES = {"command", "date", "environment", "peak_memory_bytes", "report", "seconds"}
TIMES_AND_PLACES |= {"tokens_per_s", "training_seconds"}
"""Fields of results.json that tell how long something took, or where."""


def write_text(path: Path) -> None:
    """Write sentences that are drawn by a fixed seed."""
    draw = random.Random(5)
    lines = [" ".join(draw.choices(WORDS, k=12)) + "." for _ in range(4000)]
    path.write_text("\n".join(lines))


class Command:
    """A ``sublayer compare`` in the folder of the trial, whose lines are printed as they come."""

    def __init__(self, folder: Path, *words: str, is_quiet: bool = False) -> None:
        given = {word.partition("=")[0] for word in words if "=" in word}
        own = [word for word in STUDY if word.partition("=")[0] not in given]
        line = ["sublayer", "compare", *own, *words]
        print(f"$ {' '.join(line)}", flush=True)
        own_path = {"PYTHONPATH": str(Path(__file__).parents[2])}
        environment = {**os.environ, **own_path, "SUBLAYER_CACHE": str(folder / "cache")}
        self._folder = folder
        self._is_quiet = is_quiet
        self._process = subprocess.Popen(
            [sys.executable, "-m", *line],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        print("^C", flush=True)
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Wait until it has ended, and return its exit code."""
        code = self._process.wait()
        self._reader.join()
        print(f"exit code {code}", flush=True)
        return code

    def wait_for(self, pattern: str, n_times: int = 1) -> None:
        """Wait until so many of its lines match; raise where it ends before."""
        while sum(bool(re.search(pattern, line)) for line in list(self.lines)) < n_times:
            if self._process.poll() is not None:
                raise SystemExit(f"it ended without {pattern!r}")
            time.sleep(0.1)

    def _read(self) -> None:
        for line in self._process.stdout:
            text = line.decode().rstrip().replace(str(self._folder), "FOLDER")
            self.lines.append(text)
            if not self._is_quiet:
                print(text, flush=True)


def refuse(folder: Path, *words: str) -> None:
    """Ask for what there is not: the command must end with a line, and leave nothing."""
    command = Command(folder, *words, "--out", "refused", is_quiet=True)
    assert command.wait() == 2, command.lines
    print(command.lines[-1], flush=True)
    assert not (folder / "refused").exists()


def leave_and_join(folder, on, show, lose):
    """Begin the study, leave it, join it again, and lose a node while both have a run."""
    first = Command(folder, *on)
    first.wait_for(r"^\[1/6")
    first.wait_for(r": on ", 3)
    first.interrupt()
    assert first.wait() == 130
    show()
    again = Command(folder, *on)
    again.wait_for(r": joined")
    again.wait_for(r"^\[3/6")
    again.wait_for(r": on ", 3)
    wait_until(lambda: len(list((folder / "there").glob("arms/*/*/checkpoints/step-*"))) >= 3)
    print("# one of the two nodes is lost", flush=True)
    lose()
    assert again.wait() == 0


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    while not is_so():
        time.sleep(0.1)


def check_equal(folder: Path, here: str, there: str) -> None:
    """Compare two studies of the folder; raise where more than times and places differs."""
    one, other = (
        dict(_values(json.loads((folder / name / "results.json").read_text())))
        for name in (here, there)
    )
    differing = [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]
    if differing:
        raise SystemExit(f"{len(differing)} values differ, {sorted(differing)[:5]} first")
    print(f"{len(one):,} values of {here}/results.json and {there}/results.json: the same")
    dropped = ", ".join(sorted(TIMES_AND_PLACES))
    print(f"not compared: {dropped}, and the note on time on clusters")
    for name in ("model.safetensors", "test.json", "items.safetensors"):
        sums = [_sums(folder / each, name) for each in (here, there)]
        if not sums[0] or sums[0] != sums[1]:
            raise SystemExit(f"{name} differs")
        print(f"{len(sums[0])} files {name}: the same bytes")


def _values(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(content, dict):
        for key in content.keys() - TIMES_AND_PLACES:
            yield from _values(content[key], f"{place}.{key}")
    elif isinstance(content, list):
        own = [each for each in content if "made on a cluster" not in str(each)[:80]]
        for number, value in enumerate(own):
            yield from _values(value, f"{place}.{number}")
    else:
        yield place, content


def _sums(study: Path, name: str) -> dict[str, str]:
    return {
        str(path.relative_to(study)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(study.rglob(name))
    }
