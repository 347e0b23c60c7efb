"""Text turned into tokens: memory of all processes, rate of a core, killed and resumed.

python benchmarks/text_preparation.py --text books --megabytes 5000     # half an hour
python benchmarks/text_preparation.py --text books --megabytes 100 --check-megabytes 100

The text is made of that of --text, again and again: its paragraphs in another order each time, each
with a number of its own, and one in fifty with its letters exchanged, so that new words come up.
Each preparation is a process that gets SIGKILL when half of the training text is done, and is then
resumed. At --check-megabytes the stored ids are compared with those of an unbroken preparation by
one process.
"""

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from report import RESULTS, describe_conditions, heading, keep, result_name

from sublayer.data.shards import SHARD_BYTES
from sublayer.data.text.files import read_path

AIMS = {"bytes": 20.0, "bpe": 5.0}
"""Megabytes of text for a second of a core."""
_TICK_S = 0.05
_EXCHANGED = 50
_CHILD = """
import json, os, sys
from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare, prepare_tokenizer
what, path, tokenizer, cores = sys.argv[1:]
if cores == "1":
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
config = DataConfig(path=path, tokenizer=tokenizer)
if what == "tokenizer":
    prepare_tokenizer(config)
else:
    prepare(config)
"""


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    measured = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        large, small = folder / "large.txt", folder / "small.txt"
        _write_text(options.text, large, round(options.megabytes * 1e6))
        _write_text(options.text, small, round(options.check_megabytes * 1e6))
        for tokenizer in options.tokenizers:
            found = _prepare_broken(large, tokenizer, folder / "cache")
            found["is_same"] = _is_same(small, tokenizer, folder)
            measured[tokenizer] = found
            print(f"{tokenizer}: {found}", file=sys.stderr, flush=True)
    result = {
        "conditions": describe_conditions("cpu"),
        "megabytes": options.megabytes,
        "check_megabytes": options.check_megabytes,
        "was_shared": options.shared,
        "measured": measured,
    }
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "text preparation"))
    print(table)


def _write_text(source: str, path: Path, n_bytes: int) -> None:
    paragraphs: list[bytes] = []
    for document in read_path(source, path.parent / "cache"):
        text = document.read()[:]
        paragraphs += [each for each in text.split(b"\n\n") if each.strip()]
    drawn = random.Random(1)
    letters = string.ascii_lowercase.encode()
    n_written = 0
    with path.open("wb") as file:
        for number in range(1 << 40):
            drawn.shuffle(paragraphs)
            exchanged = bytes.maketrans(letters, bytes(drawn.sample(letters, len(letters))))
            for index, paragraph in enumerate(paragraphs):
                text = paragraph.translate(exchanged) if index % _EXCHANGED == 0 else paragraph
                n_written += file.write(b"%d.%d " % (number, drawn.randrange(100_000)))
                n_written += file.write(text + b"\n\n")
            if n_written >= n_bytes:
                return


def _prepare_broken(path: Path, tokenizer: str, cache: Path) -> dict[str, Any]:
    """Prepare a text, kill that when half is done, prepare the rest; return time and memory."""
    shutil.rmtree(cache, ignore_errors=True)
    training = _Watched("tokenizer", path, tokenizer, cache)
    training.wait()
    killed = _Watched("text", path, tokenizer, cache)
    n_half = round(0.5 * 0.9 * path.stat().st_size / SHARD_BYTES)
    n_before = killed.kill_after(n_half, cache)
    resumed = _Watched("text", path, tokenizer, cache)
    resumed.wait()
    n_bytes = path.stat().st_size - n_before * SHARD_BYTES
    stored = sorted((cache / "tokens").iterdir(), key=lambda each: each.stat().st_size)
    found = {
        "tokenizer_s": training.seconds,
        "tokenizer_peak_gib": training.peak_bytes / (1 << 30),
        "shards_before": n_before,
        "resumed_megabytes": n_bytes / 1e6,
        "resumed_s": resumed.seconds,
        "resumed_cpu_s": resumed.cpu_s,
        "mb_per_s": n_bytes / 1e6 / resumed.seconds,
        "mb_per_cpu_s": n_bytes / 1e6 / resumed.cpu_s,
        "n_processes": resumed.n_processes,
        "peak_gib": max(killed.peak_bytes, resumed.peak_bytes) / (1 << 30),
        "sha256_of_training_ids": _sha256(stored[-1]),
    }
    shutil.rmtree(cache)
    return found


def _is_same(path: Path, tokenizer: str, folder: Path) -> bool:
    """Return whether a broken preparation stores what an unbroken one by one process stores."""
    found = []
    for name in ("unbroken", "broken"):
        cache = folder / name
        if name == "broken":
            n_shards = max(1, round(0.3 * path.stat().st_size / SHARD_BYTES))
            _Watched("text", path, tokenizer, cache).kill_after(n_shards, cache)
        _Watched("text", path, tokenizer, cache, cores="1" if name == "unbroken" else "all").wait()
        stored = sorted((cache / "tokens").iterdir())
        found.append([(each.name, _sha256(each)) for each in stored])
        shutil.rmtree(cache)
    return found[0] == found[1]


class _Watched:
    """A process that prepares a text, and the memory of it and of those that it starts."""

    def __init__(
        self, what: str, path: Path, tokenizer: str, cache: Path, cores: str = "all"
    ) -> None:
        self.peak_bytes = 0
        self.n_processes = 0
        self.seconds = 0.0
        self.cpu_s = 0.0
        self._begun = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, what, str(path), tokenizer, cores],
            env={**os.environ, "SUBLAYER_CACHE": str(cache)},
        )

    def wait(self) -> None:
        """Wait until it is done."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        while self._process.poll() is None:
            self._look()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seconds = time.monotonic() - self._begun
        self.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if self._process.returncode:
            sys.exit(f"it ended with code {self._process.returncode}")

    def kill_after(self, n_shards: int, cache: Path) -> int:
        """Kill it once so many shards, or a few more, were joined; return how many were."""
        while self._process.poll() is None:
            self._look()
            n_joined = _n_joined(cache)
            if n_joined >= n_shards or (n_joined == 0 and _n_parts(cache) >= n_shards):
                break
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        return _n_joined(cache)

    def _look(self) -> None:
        processes = list(process_tree(self._process.pid))
        self.n_processes = max(self.n_processes, len(processes))
        self.peak_bytes = max(self.peak_bytes, sum(map(_resident, processes)))
        time.sleep(_TICK_S)


def _n_joined(cache: Path) -> int:
    for journal in cache.glob("tokens/*.unfinished/journal.json"):
        return int(json.loads(journal.read_bytes())["n_shards"])
    return 0


def _n_parts(cache: Path) -> int:
    return len(list(cache.glob("tokens/*.unfinished/*.shard")))


def process_tree(pid: int) -> Iterator[int]:
    """Yield a process and all that it started."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            numbers = children.read_text().split()
        except OSError:  # it has just ended
            continue
        for number in numbers:
            yield from process_tree(int(number))


def _resident(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _markdown(result: Mapping[str, Any]) -> str:
    shared = "; the machine did other work meanwhile" if result["was_shared"] else ""
    lines = [
        f"{heading(result)}; {result['megabytes']:,.0f} MB of text{shared}. Killed with SIGKILL "
        "when about half of the training text was done, and resumed: rates are those of the rest, "
        "CPU of all processes, hashing what was done before with it. Memory is the resident set of "
        "all processes together, at its peak. The same ids: compared at "
        f"{result['check_megabytes']:,.0f} MB with an unbroken preparation by one process.",
        "",
        "| | MB/s | MB for a CPU second | aim | peak memory, GiB (aim 2) | processes "
        "| shards taken over | same ids | tokenizer trained, s | its peak, GiB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for name, found in result["measured"].items():
        lines.append(
            f"| {name} | {found['mb_per_s']:.1f} | {found['mb_per_cpu_s']:.1f} | {AIMS[name]:g} "
            f"| {found['peak_gib']:.2f} | {found['n_processes']} | {found['shards_before']} "
            f"| {'yes' if found['is_same'] else '**no**'} | {found['tokenizer_s']:.0f} "
            f"| {found['tokenizer_peak_gib']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure memory and rate of turning a large text into tokens.",
        epilog="example: python benchmarks/text_preparation.py --text books --megabytes 5000",
    )
    parser.add_argument("--text", required=True, help="a file, a folder or a glob, to make it of")
    parser.add_argument("--megabytes", type=float, default=5000.0, help="of the text that is made")
    parser.add_argument("--check-megabytes", type=float, default=200.0, help="of the one compared")
    parser.add_argument("--tokenizers", nargs="+", default=list(AIMS), choices=list(AIMS))
    parser.add_argument("--folder", type=Path, help="for text and cache, removed in the end")
    parser.add_argument("--shared", action="store_true", help="say that the machine was shared")
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    return parser.parse_args()


if __name__ == "__main__":
    main()
