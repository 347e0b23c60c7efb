"""Speed of generation by engines: ours, through ``--engine``, and the engine alone.

    python benchmarks/engine_speed.py [--rounds 7] [--minutes 6] [--out FOLDER/NAME]

All contestants continue the same prompt greedily, by turns in one process, on all cores. Aim: an
engine through us costs at most 5 % over the engine alone.
"""

import argparse
import datetime
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from contestants import Size
from generate_speed import NEW_TOKENS, PROMPT_TOKENS, Contestant, Continue, ours
from rounds import Budget
from torch import Tensor

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.decode.sample import GREEDY, generate
from sublayer.interop.ctranslate2 import NAME, token_names, write
from sublayer.interop.engines import open_engine
from sublayer.model.transformer import Decoder, build
from sublayer.system.machine import cores, processor
from sublayer.text_model import TextModel

SHAPES = ((256, 6, 4, 256, 512), (512, 12, 8, 512, 8192))
SIZES = [Size(*row[:4], sequences=n, vocab_size=row[4]) for row in SHAPES for n in (1, 16)]
MODERN: dict[str, Any] = {"norm": "rms", "positions": "rotary", "ffn": "swiglu", "bias": False}
AIM = 0.95


def make_model(size: Size) -> Decoder:
    config = ModelConfig(
        d_model=size.d_model, n_layers=size.n_layers, n_heads=size.n_heads, **MODERN
    )
    resolved = resolve_model(config, vocab_size=size.vocab_size, context=size.context)
    model = build(resolved, seed=0)
    assert isinstance(model, Decoder), "the kind that a model is where nothing else is asked"
    return model.eval()


def whole(model: Decoder) -> Continue:
    """Continue by an engine as texts do that are shown once they are written."""
    return lambda prompt, n: torch.stack([*generate(model, prompt, n, GREEDY, until=[])], dim=1)


def alone(folder: Path, size: Size) -> Continue:
    """Continue by CTranslate2 itself."""
    program: Any = ctranslate2.Generator(str(folder), intra_threads=torch.get_num_threads())
    names = token_names(None, size.vocab_size)

    def run(prompt: Tensor, n: int) -> Tensor:
        rows = [[names[id_] for id_ in row] for row in prompt.tolist()]
        results = program.generate_batch(
            rows, max_length=n, end_token=[2**31 - 1], include_prompt_in_result=False
        )
        return torch.tensor([result.sequences_ids[0] for result in results])

    return run


def run_case(size: Size, rounds: int, ends: float) -> tuple[list[Contestant], bool]:
    model = make_model(size)
    found = [Contestant("sublayer", "float32", ours(model), cores())]
    with tempfile.TemporaryDirectory() as root:
        for dtype in ("float32", "int8"):
            folder = Path(root, dtype)
            folder.mkdir()
            write(TextModel(model), folder, dtype)
            through = open_engine(folder, NAME, "cpu").model
            assert isinstance(through, Decoder), "it is exported from one"
            found.append(Contestant("through --engine", dtype, whole(through), cores()))
            found.append(Contestant(NAME, dtype, alone(folder, size), cores()))
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(size.vocab_size, (size.sequences, PROMPT_TOKENS), generator=generator)
    written = [each.run(prompt, NEW_TOKENS) for each in found[:3]]
    are_equal = all(torch.equal(written[0], other) for other in written[1:])
    order = list(found)
    for index in range(rounds):
        if index >= 3 and time.monotonic() > ends:
            break
        random.Random(index).shuffle(order)
        for each in order:
            each.tokens_per_s.append(each.time(prompt, NEW_TOKENS))
    return found, are_equal


def table(size: Size, found: list[Contestant], are_equal: bool) -> list[str]:
    lines = [f"**{size}**", "", "| generation | type | tokens/s | times ours | through / alone |"]
    lines.append("| --- | --- | ---: | ---: | ---: |")
    for place, each in enumerate(found):
        share = ""
        if each.name != "sublayer" and each.name != NAME:
            rounds = zip(each.tokens_per_s, found[place + 1].tokens_per_s, strict=True)
            share = f"{statistics.median(one / other for one, other in rounds):.2f}"
        times = each.median / found[0].median
        lines.append(
            f"| {each.name} | {each.precision} | {each.median:,.0f} | {times:.2f} | {share} |"
        )
    same = "the same" if are_equal else "NOT the same"
    return [*lines, "", f"Aim: {AIM}. In float32 all choose {same} tokens.", ""]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=6.0, help="for all cases")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(cores())
    versions = f"torch {torch.__version__}, ctranslate2 {ctranslate2.__version__}"
    lines = [f"{datetime.date.today()}: {processor()}, {cores()} cores; {versions}.", ""]
    results, budget = [], Budget(options.minutes, len(SIZES))
    for size in SIZES:
        found, are_equal = run_case(size, options.rounds, budget.next_case())
        lines += table(size, found, are_equal)
        print("\n".join(table(size, found, are_equal)), flush=True)
        speeds = {f"{each.name}, {each.precision}": each.tokens_per_s for each in found}
        results.append({"size": str(size), "equal": are_equal, "tokens_per_s": speeds})
    if options.out is not None:
        options.out.with_suffix(".md").write_text("\n".join(lines))
        described = {"environment": lines[0], "cases": results}
        options.out.with_suffix(".json").write_text(json.dumps(described, indent=1) + "\n")


if __name__ == "__main__":
    main()
