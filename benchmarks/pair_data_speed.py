"""Speed of masked batches from text: preparation, and every step. See README.md.

python benchmarks/pair_data_speed.py                    # the built-in corpus: a few minutes
python benchmarks/pair_data_speed.py --text 'books/*.txt' --vocab-size 30000 --out /tmp/pairs
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from contestants import OURS
from encoders import CPU_SIZES, FAMILIES, SIZES, EncoderSetup, Family, encoder_recipe, train_step
from report import RESULTS, describe_conditions, heading, keep, result_name

from sublayer.config.data import DataConfig
from sublayer.data.masked import PairBatches
from sublayer.data.prepare import find_texts, prepare_tokenizer
from sublayer.data.shards import write_store
from sublayer.data.store import Split, read_store
from sublayer.data.text.ranges import count_bytes
from sublayer.data.text.sentences import sentences_of
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.files.cache_folder import cache_folder
from sublayer.objective.base import family_of
from sublayer.system.machine import cores
from sublayer.training.speed import fastest_precision

AIM_MB_PER_S, AIM_SHARE = 1.0, 0.02
TOKENIZERS = {"bert": "wordpiece", "albert": "unigram"}


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    torch.set_num_threads(options.threads)
    found = {"path": options.text} if options.text else {"corpus": "python"}
    cases = [_measure(family, found, options) for family in FAMILIES]
    result = {"conditions": describe_conditions("cpu"), "rounds": options.rounds, "cases": cases}
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "pair data"))
    print(table)


def _measure(
    family: Family, found: Mapping[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    kind = TOKENIZERS[family]
    config = DataConfig(
        **found, sentences=options.sentences, tokenizer=kind, vocab_size=options.vocab_size
    )
    _note(f"== {FAMILIES[family]}: the tokenizer {kind}")
    tokenizer = prepare_tokenizer(config)
    split, once = _once(config, tokenizer, options.rounds)
    _note(f"once: {once}")
    return {
        "family": family,
        "tokenizer": f"{kind}, {tokenizer.vocab_size:,}",
        "once": once,
        "steps": [_step(family, size, split, options) for size in CPU_SIZES],
    }


def _once(config: DataConfig, tokenizer: Tokenizer, rounds: int) -> tuple[Split, dict[str, float]]:
    """Time splitting a text into sentences, and that with storing their ids.

    In megabytes for a second of one core.
    """
    pieces = find_texts(config, cache_folder(), is_utf8=True).ranges("train")
    megabytes = sum(map(count_bytes, pieces)) / 1e6

    def cut() -> None:
        for piece in (piece for source in pieces for piece in source):
            for _ in sentences_of(piece, config.sentences):
                pass

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens"
        cutting = _seconds(cut, rounds)
        whole = _seconds(lambda: write_store(path, pieces, tokenizer, config.sentences), rounds)
        store = read_store(path)
    assert store is not None, "a store just written is whole"
    once = {
        "megabytes": megabytes,
        "sentences_mb_per_s": megabytes / cutting,
        "mb_per_s": megabytes / whole,
    }
    return Split("train", store, tokenizer, ("a text",)), once


def _step(family: Family, size: str, split: Split, options: argparse.Namespace) -> dict[str, Any]:
    """Time batches of a text, with their share of planning a pass, and steps on a stand-in."""
    precision = fastest_precision(torch.device("cpu"), SIZES[size].d_model)
    recipe = encoder_recipe(EncoderSetup(OURS, size, 0.1, precision, family=family))
    batches = family_of(recipe.objective).batches(recipe, split)
    assert isinstance(batches, PairBatches), "masked objectives train on pairs"
    planning_s = _seconds(lambda: batches.batch(0), 1)  # of a whole pass
    counter = count(1)
    batch_s = _seconds(lambda: batches.batch(next(counter)), options.batches)
    batch_s += (planning_s - batch_s) * batches.batch_sequences / batches.n_in_passes(1)
    batch_wall_s = statistics.median(
        _wall(lambda: batches.batch(next(counter))) for _ in range(options.batches)
    )
    n_tokens = statistics.mean(batches.n_tokens(step) for step in range(1, 1 + options.batches))
    train = train_step(recipe)
    train(0)
    steps = [_wall(partial(train, index)) for index in range(1, 1 + options.steps)]
    figures = {
        "description": str(SIZES[size]),
        "batch_s": batch_s,
        "mb_per_s": n_tokens * split.store.n_bytes / split.store.n_tokens / batch_s / 1e6,
        "tokens_per_s": n_tokens / batch_s,
        "step_s": statistics.median(steps),
        "share_of_a_step": batch_wall_s / statistics.median(steps),
    }
    _note(f"step: {figures}")
    return figures


def _seconds(function: Callable[[], object], times: int) -> float:
    """Give the processor seconds of a call, those of all threads together: the median of some."""
    taken = []
    for _ in range(times):
        begun = time.process_time()
        function()
        taken.append(time.process_time() - begun)
    return statistics.median(taken)


def _wall(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def _markdown(result: Mapping[str, Any]) -> str:
    lines = [
        f"{heading(result)}; medians of {result['rounds']}; "
        "MB of raw text for a second of one core.",
        "",
        "| | once: MB | cutting sentences, MB/s | with tokenising and storing, MB/s (aim 1) |",
        "| --- | ---: | ---: | ---: |",
    ]
    for case in result["cases"]:
        once, name = case["once"], f"{FAMILIES[case['family']]}, {case['tokenizer']}"
        figures = (once["megabytes"], once["sentences_mb_per_s"], once["mb_per_s"])
        lines.append(f"| {name} | {' | '.join(f'{figure:.2f}' for figure in figures)} |")
    lines += [
        "",
        "| | in each step: a batch, ms | MB/s | tokens/s | a step, s | share (aim 2 %) "
        "| both, MB/s (aim 1) |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case in result["cases"]:
        for step in case["steps"]:
            both = 1 / (1 / case["once"]["mb_per_s"] + 1 / step["mb_per_s"])
            lines.append(
                f"| {FAMILIES[case['family']]}, {step['description']} "
                f"| {step['batch_s'] * 1e3:.2f} | "
                f"{step['mb_per_s']:.1f} | {step['tokens_per_s']:,.0f} | {step['step_s']:.2f} | "
                f"{step['share_of_a_step']:.2%} | {both:.2f} |"
            )
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure how fast text becomes masked batches.",
        epilog="example: python benchmarks/pair_data_speed.py --text 'books/*.txt'",
    )
    parser.add_argument(
        "--text", help="a file, a folder or a glob; the built-in corpus unless given"
    )
    parser.add_argument("--sentences", choices=["lines", "prose", "spacy"], default="prose")
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--rounds", type=int, default=3, help="times that the text is read")
    parser.add_argument("--batches", type=int, default=50, help="batches that are timed")
    parser.add_argument("--steps", type=int, default=5, help="training steps that are timed")
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    return parser.parse_args()


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
