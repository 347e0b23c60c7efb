"""Speed of generation by engines: own decoding, transformers, engines through us, one alone.

    python benchmarks/engine_speed.py            # two sizes, 1 and 16 rows: some twenty minutes
    python benchmarks/engine_speed.py --quick    # a first impression; nothing is kept

All contestants continue the same prompts greedily, by turns in one process, on all cores. The
smaller model, `llama-2023`, is trained for a minute, so that the drift of int8 means something; the
weights of the larger one are random. Aim: CTranslate2 through us costs at most 5 % over itself.
"""

import argparse
import random
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ctranslate2
import torch
import transformers
from contestants import Size
from generate_speed import NEW_TOKENS, PROMPT_TOKENS, Contestant, Continue, ours
from options import note
from report import RESULTS, describe_conditions, heading, keep, result_name
from rounds import Budget
from torch import Tensor

import sublayer
from sublayer.config.load import load_recipe
from sublayer.config.resolve import resolve_model
from sublayer.decode.sample import GREEDY, generate
from sublayer.interop.ctranslate2 import NAME, token_names
from sublayer.interop.engines import export_engine, open_engine
from sublayer.interop.huggingface import export_transformers
from sublayer.loading import load
from sublayer.model.transformer import Decoder, build
from sublayer.system.machine import cores
from sublayer.text_model import TextModel

SHAPES = ((256, 6, 4, 256, 512), (512, 12, 8, 512, 8192))
STEPS = (200, 0)
"""Steps of training of each shape."""
ROWS = (1, 16)
ENGINES = (("onnx", "float32"), (NAME, "float32"), (NAME, "int8"))
AIM = 0.95
FEWEST_ROUNDS = 3


def make_model(size: Size, steps: int, folder: Path) -> TextModel:
    """Train the recipe for some steps at a size, or build it of random weights."""
    shape = {
        "model.d_model": size.d_model,
        "model.n_layers": size.n_layers,
        "model.n_heads": size.n_heads,
        "model.d_ff": 2 * size.d_model,
    }
    if not steps:
        recipe = load_recipe("llama-2023", shape).recipe
        config = resolve_model(recipe.model, vocab_size=size.vocab_size, context=size.context)
        return TextModel(build(config, seed=0).eval())
    settings = {
        **shape,
        "data.tokenizer": "bpe",
        "data.vocab_size": size.vocab_size,
        "data.context": size.context,
        "train.steps": steps,
        "train.batch_sequences": 16,
        "train.evaluate_steps": steps,
    }
    sublayer.train("llama-2023", settings, out=folder, device="cpu")
    return load(folder)


def whole(model: Decoder) -> Continue:
    """Continue as texts do that are shown once they are written."""
    return lambda prompt, n: torch.stack([*generate(model, prompt, n, GREEDY, until=[])], dim=1)


def by_class(folder: Path) -> Continue:
    """Continue by transformers' class for an exported folder."""
    peer: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    peer.eval().generation_config.eos_token_id = None

    @torch.inference_mode()
    def run(prompt: Tensor, n: int) -> Tensor:
        mask = torch.ones_like(prompt)
        options = {"do_sample": False, "max_new_tokens": n, "pad_token_id": 0}
        output: Tensor = peer.generate(prompt, attention_mask=mask, **options)
        return output[:, prompt.shape[1] :]

    return run


def alone(folder: Path, model: TextModel) -> Continue:
    """Continue by CTranslate2 itself."""
    program: Any = ctranslate2.Generator(str(folder), intra_threads=torch.get_num_threads())
    names = token_names(model.tokenizer, model.model.config.vocab_size)

    def run(prompt: Tensor, n: int) -> Tensor:
        rows = [[names[id_] for id_ in row] for row in prompt.tolist()]
        results = program.generate_batch(
            rows, max_length=n, end_token=[2**31 - 1], include_prompt_in_result=False
        )
        return torch.tensor([result.sequences_ids[0] for result in results])

    return run


def contestants(model: TextModel, root: Path) -> tuple[list[Contestant], dict[str, Any]]:
    """Return all ways to continue by a model, and the drift of the quantised ones."""
    assert isinstance(model.model, Decoder), "the recipe's kind"
    export_transformers(model, root / "class")
    found = [
        Contestant("sublayer", "float32", ours(model.model), cores()),
        Contestant("transformers", "float32", by_class(root / "class"), cores()),
    ]
    drift: dict[str, Any] = {}
    for name, dtype in ENGINES:
        folder = root / f"{name}-{dtype}"
        certificate = export_engine(model, folder, name=name, dtype=dtype).certificate
        if "drift" in certificate:
            drift[dtype] = certificate["drift"]
        engine = open_engine(folder, name, "cpu").model
        assert isinstance(engine, Decoder), "it is exported from one"
        found.append(Contestant(f"{name} through sublayer", dtype, whole(engine), cores()))
        if name == NAME:
            found.append(Contestant(f"{name} alone", dtype, alone(folder, model), cores()))
    return found, drift


def run_case(
    found: list[Contestant], size: Size, n_tokens: int, rounds: int, ends: float
) -> dict[str, Any]:
    """Time all contestants in turn; return tokens a second of each round, by their names."""
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(size.vocab_size, (size.sequences, PROMPT_TOKENS), generator=generator)
    written = {f"{each.name}, {each.precision}": each.run(prompt, n_tokens) for each in found}
    unlike = [
        name
        for name, tokens in written.items()
        if name.endswith("float32") and not torch.equal(tokens, written["sublayer, float32"])
    ]
    speeds: dict[str, list[float]] = {name: [] for name in written}
    order = list(zip(speeds.values(), found, strict=True))
    for index in range(rounds):
        if index >= FEWEST_ROUNDS and time.monotonic() > ends:
            break
        random.Random(index).shuffle(order)
        for measured, each in order:
            measured.append(each.time(prompt, n_tokens))
    return {"size": str(size), "unlike": unlike, "tokens_per_s": speeds}


def table(case: dict[str, Any]) -> list[str]:
    """Write the medians of a case, with ratios, drift and differences of tokens."""
    speeds, drift = case["tokens_per_s"], case["drift"]
    lines = [f"**{case['size']}**", ""]
    lines.append("| generation | tokens/s | slowest to fastest round | times sublayer |")
    lines.append("| --- | ---: | ---: | ---: |")
    base = statistics.median(speeds["sublayer, float32"])
    for name, measured in speeds.items():
        spread = f"{min(measured):,.0f} to {max(measured):,.0f}"
        median = statistics.median(measured)
        lines.append(f"| {name} | {median:,.0f} | {spread} | {median / base:.2f} |")
    lines.append("")
    for dtype in ("float32", "int8"):
        pairs = zip(
            speeds[f"{NAME} through sublayer, {dtype}"],
            speeds[f"{NAME} alone, {dtype}"],
            strict=True,
        )
        share = statistics.median(through / by_itself for through, by_itself in pairs)
        lines.append(f"{NAME} through sublayer / alone in {dtype}: {share:.3f} (aim {AIM}).")
    for dtype, measure in drift.items():
        lines.append(
            f"Drift of {dtype}: {measure['bits']:+.1e} bits per {measure['per']} of "
            f"{measure['text']}."
        )
    unlike = ", ".join(case["unlike"])
    told = f"Other tokens than ours: {unlike}." if unlike else "All choose our tokens in float32."
    return [*lines, told, ""]


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--minutes", type=float, default=18.0, help="for all rounds")
    parser.add_argument("--quick", action="store_true", help="one size, two rounds, few tokens")
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    options = parser.parse_args()
    torch.set_num_threads(cores())
    rounds, n_tokens = (2, NEW_TOKENS // 8) if options.quick else (options.rounds, NEW_TOKENS)
    shapes = list(zip(SHAPES, STEPS, strict=True))[: 1 if options.quick else None]
    conditions = describe_conditions("cpu")
    conditions["versions"] |= {name: version(name) for name in (NAME, "onnxruntime")}
    cases = []
    budget = Budget(options.minutes, len(shapes) * len(ROWS))
    for (d_model, n_layers, n_heads, context, vocab_size), steps in shapes:
        sizes = [Size(d_model, n_layers, n_heads, context, n, vocab_size) for n in ROWS]
        with tempfile.TemporaryDirectory() as root:
            n_steps = steps // 10 if options.quick else steps
            model = make_model(sizes[0], n_steps, Path(root) / "run")
            found, drift = contestants(model, Path(root))
            for size in sizes:
                case = run_case(found, size, n_tokens, rounds, budget.next_case())
                cases.append({**case, "drift": drift, "steps": n_steps})
                note("\n".join(table(cases[-1])))
    result = {"conditions": conditions, "rounds": rounds, "n_tokens": n_tokens, "cases": cases}
    lines = [
        f"{heading(result)}; {PROMPT_TOKENS} tokens continued by {n_tokens}, up to {rounds} "
        "interleaved rounds, medians.",
        "",
    ]
    for case in cases:
        lines += table(case)
    print("\n".join(lines))
    if not options.quick:
        keep(result, "\n".join(lines), options.out or RESULTS / result_name("cpu", "engines"))


if __name__ == "__main__":
    main()
