"""Memory of a text that cannot be cut: bytes for a byte of the piece, in one process that encodes.

python benchmarks/text_pieces.py --text books       # a minute

A piece is of --text on one line, or of letters without whitespace. The memory is the peak of a
process that encodes it, less its peak before, when its tokenizer was trained on 100 kB.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from report import RESULTS, describe_conditions, heading, keep, result_name

from sublayer.data.text.files import read_path

_LETTERS = b"ACGT"
CASES: tuple[tuple[str, str, str, int], ...] = (
    ("words", "wordpiece", "lines", 16),
    ("words", "wordpiece", "none", 16),
    ("words", "unigram", "lines", 4),
    ("words", "moses-bpe", "lines", 2),
    ("words", "bytes", "prose", 16),
    ("letters", "bpe", "none", 2),
    ("letters", "wordpiece", "lines", 2),
)
"""Kind of text, tokenizer, unit of division, and MiB of the piece."""
_CHILD = """
import json, re, sys
from pathlib import Path
from sublayer.data.shards import Piece
from sublayer.data.shards import ShardEncoder
from sublayer.data.text.ranges import DocumentRange
from sublayer.data.text.files import FileDocument
from sublayer.data.tokenizers.named import train_tokenizer
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
path, kind, unit = sys.argv[1:]
with open(path, "rb") as file:
    tokenizer = train_tokenizer(kind, [file.read(100_000)], vocab_size=300)
before = peak()
piece = Piece(DocumentRange(FileDocument(Path(path), Path(path + ".cache"))), 0, True, True)
with open("/dev/null", "wb") as file:
    ShardEncoder(file, tokenizer, unit).add_all([piece])
print(json.dumps([before, peak()]))
"""


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    measured = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        documents = read_path(options.text, folder / "cache")
        words = b" ".join(b" ".join(each.read()[:].split()) for each in documents)
        letters = bytes(random.Random(1).choices(_LETTERS, k=2 << 20))
        texts = {"words": words, "letters": letters}
        for what, kind, unit, n_mib in CASES:
            path = folder / "piece.txt"
            text = texts[what]
            n_bytes = n_mib << 20
            path.write_bytes((text * (1 + n_bytes // len(text)))[:n_bytes])
            done = subprocess.run(
                [sys.executable, "-c", _CHILD, str(path), kind, unit],
                check=True,
                stdout=subprocess.PIPE,
            )
            before_kib, peak_kib = json.loads(done.stdout)
            found = {"text": what, "tokenizer": kind, "sentences": unit, "mib": n_mib}
            found |= {"before_mib": before_kib / 1024, "peak_mib": peak_kib / 1024}
            found["bytes_for_a_byte"] = (peak_kib - before_kib) / 1024 / n_mib
            print(found, file=sys.stderr, flush=True)
            measured.append(found)
    result = {"conditions": describe_conditions("cpu"), "measured": measured}
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "text pieces"))
    print(table)


def _markdown(result: Mapping[str, Any]) -> str:
    lines = [
        f"{heading(result)}. Peaks of one process; bytes for a byte of the piece. One run each.",
        "",
        "| piece | tokenizer | data.sentences | MiB | before | peak, MiB | bytes for a byte |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for found in result["measured"]:
        lines.append(
            f"| {found['text']} | {found['tokenizer']} | {found['sentences']} | {found['mib']} "
            f"| {found['before_mib']:.0f} | {found['peak_mib']:.0f} "
            f"| {found['bytes_for_a_byte']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure the memory of encoding a text that cannot be cut.",
        epilog="example: python benchmarks/text_pieces.py --text books",
    )
    parser.add_argument("--text", required=True, help="a file, a folder or a glob, to make it of")
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    return parser.parse_args()


if __name__ == "__main__":
    main()
