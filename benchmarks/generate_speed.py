"""Speed of generation, against transformers' GPT-2 and x-transformers.

    python benchmarks/generate_speed.py [--rounds 7] [--out FOLDER/NAME]
    python benchmarks/generate_speed.py --grouped

All contestants continue the same prompt greedily, with a cache, by turns in one process; each at
its best number of threads. Ours and transformers' have the same weights, and the table says whether
they choose the same tokens. Then, for contexts of 64 to 1,024 tokens, the last tokens of a context:
a step with the cache against reading the context again. With --grouped, only a step behind 2,048
tokens, with fewer heads of keys and values than of queries against as many.
"""

import argparse
import datetime
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from contestants import GPT2, Size
from products import precisions
from rounds import Budget
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.decode.sample import GREEDY, generate
from sublayer.decode.step import Stepper
from sublayer.interop.huggingface import export_huggingface
from sublayer.model.cache import Cache
from sublayer.model.transformer import Decoder, build
from sublayer.system.machine import cores, processor
from sublayer.text_model import TextModel

PROMPT_TOKENS, NEW_TOKENS = 16, 240
AIMS = {"float32": 2.0, "bfloat16": 3.0}


SHAPES = ((192, 6, 4, 128, 256), (256, 6, 4, 256, 512), (512, 12, 8, 512, 8192))
SIZES = [
    Size(*shape[:4], sequences=rows, vocab_size=shape[4]) for shape in SHAPES for rows in (1, 16)
]
CONTEXTS = (64, 128, 256, 512, 1024)
N_BEHIND = 16
FEWEST_ROUNDS = 3
Continue = Callable[[Tensor, int], Tensor]


@dataclass
class Contestant:
    name: str
    precision: str
    run: Continue
    threads: int = 1
    tokens_per_s: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.tokens_per_s)

    def time(self, prompt: Tensor, n_tokens: int) -> float:
        """Give tokens per second, all rows together."""
        torch.set_num_threads(self.threads)
        begun = time.perf_counter()
        self.run(prompt, n_tokens)
        return prompt.shape[0] * n_tokens / (time.perf_counter() - begun)


def make_model(size: Size, n_kv_heads: int | None = None) -> Decoder:
    config = ModelConfig(
        d_model=size.d_model,
        n_layers=size.n_layers,
        n_heads=size.n_heads,
        n_kv_heads=n_kv_heads,
        init_std=0.05,
    )
    resolved = resolve_model(config, vocab_size=size.vocab_size, context=size.context)
    model = build(resolved, seed=0)
    assert isinstance(model, Decoder), "the kind that a model is where nothing else is asked"
    return model.eval()


def ours(model: Decoder) -> Continue:
    return lambda prompt, n: torch.stack(list(generate(model, prompt, n, GREEDY)), dim=1)


def transformers_gpt2(
    model: Decoder, precision: torch.dtype, device: str = "cpu", cache: str | None = None
) -> Continue:
    """Build transformers' model of our weights, which are on the CPU; ``cache``: not its own."""
    from transformers import GPT2LMHeadModel

    with tempfile.TemporaryDirectory() as folder:
        export_huggingface(TextModel(model), Path(folder) / "model")
        peer: Any = GPT2LMHeadModel.from_pretrained(Path(folder) / "model", dtype=precision)
        peer.to(device).eval()

    @torch.inference_mode()
    def run(prompt: Tensor, n: int) -> Tensor:
        options: dict[str, Any] = {
            "do_sample": False,
            "max_new_tokens": n,
            "min_new_tokens": n,
            "pad_token_id": 0,
        }
        if cache is not None:
            options["cache_implementation"] = cache
        output: Tensor = peer.generate(prompt, attention_mask=torch.ones_like(prompt), **options)
        return output[:, prompt.shape[1] :]

    return run


def x_transformers(size: Size) -> Continue:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(
        dim=size.d_model,
        depth=size.n_layers,
        heads=size.n_heads,
        attn_dim_head=size.d_model // size.n_heads,
    )
    net = TransformerWrapper(
        num_tokens=size.vocab_size, max_seq_len=size.context, attn_layers=layers, tie_embedding=True
    )
    peer = AutoregressiveWrapper(net).eval()

    @torch.inference_mode()
    def run(prompt: Tensor, n: int) -> Tensor:
        output: Tensor = peer.generate(prompt, n, temperature=0.0, cache_kv=True)
        return output

    return run


def contestants(size: Size) -> list[Contestant]:
    model = make_model(size)
    found = [
        Contestant("sublayer", "float32", ours(model)),
        Contestant(GPT2, "float32", transformers_gpt2(model, torch.float32)),
        Contestant("x-transformers", "float32", x_transformers(size)),
    ]
    if "bfloat16" in precisions(size.d_model):
        found.append(Contestant("sublayer", "bfloat16", ours(make_model(size).to(torch.bfloat16))))
        found.append(Contestant(GPT2, "bfloat16", transformers_gpt2(model, torch.bfloat16)))
    return found


def run_case(size: Size, rounds: int, ends: float) -> tuple[list[Contestant], bool]:
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(size.vocab_size, (size.sequences, PROMPT_TOKENS), generator=generator)
    n_tokens = min(NEW_TOKENS, size.context - PROMPT_TOKENS)
    taking_part = contestants(size)
    for each in taking_part:
        speeds = {}
        for each.threads in range(1, cores() + 1):
            each.time(prompt, n_tokens // 8)
            speeds[each.threads] = each.time(prompt, n_tokens // 4)
        each.threads = max(speeds, key=lambda threads: speeds[threads])
    are_equal = torch.equal(
        taking_part[0].run(prompt, n_tokens), taking_part[1].run(prompt, n_tokens)
    )
    order = list(taking_part)
    for index in range(rounds):
        if index >= FEWEST_ROUNDS and time.monotonic() > ends:
            break
        random.Random(index).shuffle(order)
        for each in order:
            each.tokens_per_s.append(each.time(prompt, n_tokens))
    return taking_part, are_equal


def table(size: Size, taking_part: list[Contestant], are_equal: bool) -> list[str]:
    peer = next(each for each in taking_part if each.name == GPT2 and each.precision == "float32")
    lines = [
        f"**{size}**",
        "",
        "| generation | precision | threads | tokens/s | slowest to fastest round "
        "| times transformers in float32 |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for each in taking_part:
        spread = f"{min(each.tokens_per_s):,.0f} to {max(each.tokens_per_s):,.0f}"
        ratio = each.median / peer.median
        lines.append(
            f"| {each.name} | {each.precision} | {each.threads} | {each.median:,.0f} "
            f"| {spread} | {ratio:.2f} |"
        )
    aims = ", ".join(f"{aim:g} in {precision}" for precision, aim in AIMS.items())
    same = "the same" if are_equal else "NOT the same"
    return [*lines, "", f"Aim: {aims}. Ours and transformers' choose {same} tokens in float32.", ""]


def recomputation(rounds: int) -> list[dict[str, float]]:
    """Time a token at the end of a context, in seconds, with the cache and reading all again."""
    generator = torch.Generator().manual_seed(0)
    results = []
    for context in CONTEXTS:
        model = make_model(Size(256, 6, 4, context, sequences=1, vocab_size=256))
        tokens = torch.randint(256, (1, context), generator=generator)
        stepped, read_again = [], []
        for _ in range(rounds):
            stepped.append(
                _seconds_each(generate(model, tokens[:, : context - N_BEHIND], N_BEHIND, GREEDY))
            )
            read_again.append(
                _seconds_each(generate(model, tokens, N_BEHIND, GREEDY, window="exact"))
            )
        results.append(
            {
                "context": context,
                "step": statistics.median(stepped),
                "again": statistics.median(read_again),
            }
        )
    return results


def _seconds_each(tokens: Iterator[Tensor]) -> float:
    """Give the seconds of a token, those of the first left out: it has read the prompt."""
    next(tokens)
    begun = time.perf_counter()
    n_tokens = sum(1 for _ in tokens)
    return (time.perf_counter() - begun) / n_tokens


def recomputation_table(results: list[dict[str, float]]) -> list[str]:
    return [
        "**A token behind a full context: d 256, 6 layers, float32, batch 1, "
        f"{torch.get_num_threads()} threads**",
        "",
        "| context | a step, ms | the context again, ms | times |",
        "| ---: | ---: | ---: | ---: |",
        *(
            f"| {each['context']:,.0f} | {1e3 * each['step']:.2f} | {1e3 * each['again']:.2f} "
            f"| {each['again'] / each['step']:.1f} |"
            for each in results
        ),
        "",
    ]


def grouped_table(rounds: int) -> list[str]:
    """Time steps at the end of a context, by turns, by the heads of keys and values."""
    size = Size(512, 6, 8, 2048, sequences=16, vocab_size=8192)
    tokens = torch.zeros(size.sequences, dtype=torch.long)
    steps: dict[int, tuple[Cache, Stepper]] = {}
    seconds: dict[int, list[float]] = {}
    for n_heads in (8, 4, 2, 1):
        model = make_model(size, n_heads)
        cache = Cache(model.config, size.sequences, size.context)
        steps[n_heads] = cache, Stepper(model, size.sequences)
        seconds[n_heads] = []
    for _ in range(rounds + 1):
        for n_heads, (cache, step) in steps.items():
            cache.clear()
            cache.advance(size.context - N_BEHIND, None)
            begun = time.perf_counter()
            for _ in range(N_BEHIND):
                step(tokens, cache)
            seconds[n_heads].append((time.perf_counter() - begun) / N_BEHIND)
    medians = {n_heads: statistics.median(each[1:]) for n_heads, each in seconds.items()}
    return [
        f"**A step behind a full context: {size}, float32, {torch.get_num_threads()} threads**",
        "",
        "| heads of keys and values | a step, ms | times |",
        "| ---: | ---: | ---: |",
        *(f"| {n} | {1e3 * each:.1f} | {medians[8] / each:.2f} |" for n, each in medians.items()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--minutes", type=float, default=17.0, help="for all cases; each has three rounds at least"
    )
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--grouped", action="store_true", help="heads of keys and values alone")
    options = parser.parse_args()
    if options.grouped:
        with torch.inference_mode():
            print("\n".join(grouped_table(options.rounds)))
        return
    import transformers

    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    lines = [
        f"{datetime.date.today()}: {processor()}, {cores()} cores; {versions}; "
        f"up to {options.rounds} interleaved rounds.",
        "",
    ]
    results = []
    budget = Budget(options.minutes, len(SIZES))
    for size in SIZES:
        taking_part, are_equal = run_case(size, options.rounds, budget.next_case())
        lines += table(size, taking_part, are_equal)
        print("\n".join(lines[-12:]), flush=True)
        speeds = {f"{each.name}, {each.precision}": each.tokens_per_s for each in taking_part}
        results.append({"size": str(size), "equal": are_equal, "tokens_per_s": speeds})
    torch.set_num_threads(cores())
    again = recomputation(options.rounds)
    lines += recomputation_table(again)
    print("\n".join(recomputation_table(again)))
    if options.out is not None:
        options.out.with_suffix(".md").write_text("\n".join(lines))
        options.out.with_suffix(".json").write_text(
            json.dumps(
                {"environment": lines[0], "cases": results, "recomputation": again}, indent=1
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
