"""Speed of tokenization by GPT-1's text rules: both of ours, and transformers' class.

python benchmarks/gpt1_text_speed.py                    # the built-in corpus: a minute or two
python benchmarks/gpt1_text_speed.py --text 'books/*.txt' --tokenizer gpt1/encoder_bpe_40000.json
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from report import RESULTS, describe_conditions, heading, keep, result_name

from sublayer.config.data import DataConfig
from sublayer.data.prepare import find_texts, prepare_tokenizer
from sublayer.data.tokenizers.gpt1 import (
    Gpt1Vocabulary,
    divide,
    mend,
    standardise,
    vocabulary_of,
)
from sublayer.files.cache_folder import cache_folder

AIM_MB_PER_S = 1.0

Encode = Callable[[bytes], object]


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    found = {"path": options.text} if options.text else {"corpus": "python"}
    tokenizer = options.tokenizer or "gpt1-bpe"
    merges = None if options.tokenizer else options.merges
    config = DataConfig(**found, tokenizer=tokenizer, merges=merges)
    vocabulary = vocabulary_of(prepare_tokenizer(config))
    if vocabulary is None:
        sys.exit(f"{tokenizer} is no tokenizer of GPT-1's kind")
    text = _read(config, round(options.megabytes * 1e6))
    result = {
        "conditions": describe_conditions("cpu"),
        "rounds": options.rounds,
        "megabytes": len(text) / 1e6,
        "vocabulary": len(vocabulary.ids),
        "mb_per_s": _measure(_contestants(vocabulary), text, options.rounds),
    }
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "gpt1 text"))
    print(table)


def _contestants(vocabulary: Gpt1Vocabulary) -> dict[str, Encode]:
    from transformers import OpenAIGPTTokenizer

    published = vocabulary.with_normalization("published")
    fast = vocabulary.with_normalization("transformers")
    merges: Any = list(vocabulary.merges)
    theirs = OpenAIGPTTokenizer(vocab=dict(vocabulary.ids), merges=merges)
    return {
        "transformers' rules": fast.encode,
        "transformers' rules, by its own class": lambda text: theirs(text.decode())["input_ids"],
        "published rules": published.encode,
        "of these, ftfy and the marks": lambda text: standardise(mend(text.decode())),
        "of these, spaCy": _Spacy(),
    }


class _Spacy:
    """Divide a text that was standardised before: at the first call, which is not timed."""

    def __init__(self) -> None:
        self._standard: str | None = None

    def __call__(self, text: bytes) -> object:
        if self._standard is None:
            self._standard = standardise(mend(text.decode()))
        return [numbers for _, numbers in divide(self._standard)]


def _read(config: DataConfig, n_bytes: int) -> bytes:
    pieces = find_texts(config, cache_folder(), is_utf8=True).ranges("train")
    chunks = (
        chunk
        for source in pieces
        for piece in source
        for _, chunk in piece.chunks(lambda text, near: near)
    )
    text = b""
    while len(text) < n_bytes and (chunk := next(chunks, b"")):
        text += chunk
    # Whole lines alone: no character is cut.
    return text[:n_bytes].rpartition(b"\n")[0]


def _measure(encoders: Mapping[str, Encode], text: bytes, rounds: int) -> dict[str, float]:
    """Give megabytes for a second of one core, in shuffled turns: medians."""
    seconds: dict[str, list[float]] = {name: [] for name in encoders}
    order = list(encoders)
    for name in order:
        encoders[name](text)  # libraries are loaded, and caches filled, before
    for number in range(rounds):
        random.Random(number).shuffle(order)
        for name in order:
            begun = time.process_time()
            encoders[name](text)
            seconds[name].append(time.process_time() - begun)
            print(f"{name}: {seconds[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return {name: len(text) / 1e6 / statistics.median(taken) for name, taken in seconds.items()}


def _markdown(result: Mapping[str, Any]) -> str:
    lines = [
        f"{heading(result)}; {result['megabytes']:.1f} MB of text, {result['vocabulary']:,} ids; "
        f"medians of {result['rounds']}; MB of raw text for a second of one core.",
        "",
        f"| | MB/s (aim {AIM_MB_PER_S:g} for transformers' rules) |",
        "| --- | ---: |",
    ]
    for name, speed in result["mb_per_s"].items():
        lines.append(f"| {name} | {speed:.2f} |")
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure how fast GPT-1's text rules turn text into tokens.",
        epilog="example: python benchmarks/gpt1_text_speed.py --text 'books/*.txt'",
    )
    parser.add_argument(
        "--text", help="a file, a folder or a glob; the built-in corpus unless given"
    )
    parser.add_argument("--tokenizer", help="its file; one is trained on the text unless given")
    parser.add_argument("--merges", type=int, default=8000, help="of one that is trained")
    parser.add_argument("--megabytes", type=float, default=4.0, help="of the text, at most")
    parser.add_argument("--rounds", type=int, default=3, help="times that the text is read")
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    return parser.parse_args()


if __name__ == "__main__":
    main()
