"""Memory of each process that turns a text into tokens, by the form of the text and the tokenizer.

python benchmarks/text_memory.py --text books --megabytes 120      # ten minutes on two cores
python benchmarks/text_memory.py --text books --megabytes 5 --out /tmp/text-memory   # if it runs

The text is that of --text again and again, written in each form. Peaks are of the memory that no
file backs (RssAnon), read twenty times a second: of the process that asks, which trains the
tokenizer too, and of the one of those that encode that takes most, each on its own.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from report import RESULTS, describe_conditions, heading, keep, result_name
from text_preparation import process_tree

from sublayer.data.text.files import read_path

_FILE_MEGABYTES = 20
_LINE_MEGABYTES = 16
_TICK_S = 0.05
_CHILD = """
import json, sys
from sublayer.config.data import DataConfig
from sublayer.data.prepare import prepare
prepare(DataConfig(**json.loads(sys.argv[1])))
"""
CASES: dict[str, dict[str, str]] = {
    "a file, bytes": {"form": "file", "tokenizer": "bytes"},
    "a file, bpe": {"form": "file", "tokenizer": "bpe"},
    "a file, wordpiece, lines as sentences": {
        "form": "file",
        "tokenizer": "wordpiece",
        "sentences": "lines",
    },
    f"lines of {_LINE_MEGABYTES} MB, wordpiece, lines as sentences": {
        "form": "line",
        "tokenizer": "wordpiece",
        "sentences": "lines",
    },
    f"files of {_FILE_MEGABYTES} MB, .gz, bytes": {"form": "gz", "tokenizer": "bytes"},
    "JSON lines, bytes": {"form": "jsonl", "tokenizer": "bytes"},
    "Parquet, bytes": {"form": "parquet", "tokenizer": "bytes"},
}


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    measured = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        documents = [document.read()[:] for document in read_path(options.text, folder / "cache")]
        for case, settings in CASES.items():
            if options.only not in case:
                continue
            path = folder / settings["form"]
            if not path.exists():
                _WRITERS[settings["form"]](documents, path, round(options.megabytes * 1e6))
            measured[case] = _measure(path, settings, folder / "cache")
            print(f"{case}: {measured[case]}", file=sys.stderr, flush=True)
    result = {
        "conditions": describe_conditions("cpu"),
        "megabytes": options.megabytes,
        "was_shared": options.shared,
        "measured": measured,
    }
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "text memory"))
    print(table)


def _measure(path: Path, settings: Mapping[str, str], cache: Path) -> dict[str, Any]:
    fields = {name: value for name, value in settings.items() if name != "form"}
    fields["path"] = str(path)
    if settings["form"] in ("jsonl", "parquet"):
        fields["documents"] = "json"
    shutil.rmtree(cache, ignore_errors=True)
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, json.dumps(fields)],
        env={**os.environ, "SUBLAYER_CACHE": str(cache)},
    )
    main = worker = together = 0
    n_workers = 0
    while process.poll() is None:
        held = {pid: _own_bytes(pid) for pid in process_tree(process.pid)}
        together = max(together, sum(held.values()))
        main = max(main, held.pop(process.pid))
        worker = max([worker, *held.values()])
        n_workers = max(n_workers, len(held))
        time.sleep(_TICK_S)
    if process.returncode:
        sys.exit(f"it ended with code {process.returncode}")
    return {
        "main_mib": main / (1 << 20),
        "worker_mib": worker / (1 << 20),
        "together_mib": together / (1 << 20),
        "n_workers": n_workers,
        "seconds": time.monotonic() - begun,
    }


def _own_bytes(pid: int) -> int:
    """Return what a process holds that no file backs; 0 where it has just ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s*(\d+) kB", status)
    return int(found[1]) << 10 if found else 0


def _repeated(documents: list[bytes], n_bytes: int) -> list[bytes]:
    """Return documents, each with a number of its own in front, that have so many bytes."""
    texts: list[bytes] = []
    left = n_bytes
    while left > 0:
        text = b"%d. " % len(texts) + documents[len(texts) % len(documents)]
        texts.append(text[:left])
        left -= len(text)
    return texts


def _write_file(documents: list[bytes], path: Path, n_bytes: int) -> None:
    path.write_bytes(b"\n\n".join(_repeated(documents, n_bytes)))


def _write_line(documents: list[bytes], path: Path, n_bytes: int) -> None:
    text = b" ".join(b"".join(_repeated(documents, n_bytes)).split())
    size = _LINE_MEGABYTES * 1_000_000
    lines = [text[start : start + size] for start in range(0, len(text), size)]
    path.write_bytes(b"\n".join(lines))


def _write_gz(documents: list[bytes], path: Path, n_bytes: int) -> None:
    path.mkdir()
    text = b"\n\n".join(_repeated(documents, n_bytes))
    size = _FILE_MEGABYTES * 1_000_000
    for number, start in enumerate(range(0, len(text), size)):
        packed = gzip.compress(b"%d. " % number + text[start : start + size], 1)
        (path / f"{number}.txt.gz").write_bytes(packed)


def _records(documents: list[bytes], n_bytes: int) -> list[str]:
    text = b"\n\n".join(_repeated(documents, n_bytes)).decode(errors="replace")
    return re.split(r"\s*\n\s*\n", text)


def _write_jsonl(documents: list[bytes], path: Path, n_bytes: int) -> None:
    with path.open("w") as file:
        for record in _records(documents, n_bytes):
            file.write(json.dumps({"text": record}) + "\n")


def _write_parquet(documents: list[bytes], path: Path, n_bytes: int) -> None:
    table = import_module("pyarrow").table({"text": _records(documents, n_bytes)})
    path.mkdir()
    import_module("pyarrow.parquet").write_table(table, path / "a.parquet")


_WRITERS: dict[str, Callable[[list[bytes], Path, int], None]] = {
    "file": _write_file,
    "line": _write_line,
    "gz": _write_gz,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
}


def _markdown(result: Mapping[str, Any]) -> str:
    shared = "; the machine did other work meanwhile" if result["was_shared"] else ""
    lines = [
        f"{heading(result)}; {result['megabytes']:,.0f} MB of text{shared}. Peaks of what no file "
        "backs, in MiB; one run each.",
        "",
        "| | who asks | who encodes, the most of one | how many | all together | s |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, found in result["measured"].items():
        lines.append(
            f"| {name} | {found['main_mib']:.0f} | {found['worker_mib']:.0f} "
            f"| {found['n_workers']} | {found['together_mib']:.0f} | {found['seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure the memory of processes that turn a text into tokens.",
        epilog="example: python benchmarks/text_memory.py --text books --megabytes 120",
    )
    parser.add_argument("--text", required=True, help="a file, a folder or a glob, to make it of")
    parser.add_argument("--megabytes", type=float, default=120.0, help="of the text that is made")
    parser.add_argument("--only", default="", help="cases that have this in their names")
    parser.add_argument("--folder", type=Path, help="for text and cache, removed in the end")
    parser.add_argument("--shared", action="store_true", help="say that the machine was shared")
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    return parser.parse_args()


if __name__ == "__main__":
    main()
