"""Measure fine-tuning here and in transformers: training, predicting, and what surrounds them.

The contestants are interleaved; see README.md.

# SST-2 as published, in a folder of GLUE: about twenty minutes
python benchmarks/finetune_speed.py --data glue
python benchmarks/finetune_speed.py --quick     # a first impression, of made-up sentences
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from contestants import OURS
from finetune_models import (
    CONTEXT,
    D_MODEL,
    N_LAYERS,
    PEER,
    TASK,
    VOCAB_SIZE,
    FinetuneSetup,
    build_finetune_step,
    finetune_recipe,
    finetune_setups,
    predictors,
    resolved_recipe,
    same_answers,
    training_split,
    write_recipe,
)
from options import add_shared_options, note
from products import Products
from report import (
    RESULTS,
    best_setups,
    compare,
    describe_conditions,
    heading,
    keep,
    products_verdict,
    result_name,
    training_table,
)
from rounds import Budget, run_rounds
from turns import take_turns
from worker import serve

from sublayer.cli import main as cli
from sublayer.config.finetune import load_finetune
from sublayer.data.tasks.batches import of_tasks
from sublayer.runs.session import Place, assemble, prepare_data, resolve
from sublayer.system.machine import cores
from sublayer.tasks.baselines import BASELINES
from sublayer.tasks.registry import TASKS, locate_files, read_split
from sublayer.training.world import World

SCRIPT = Path(__file__).resolve()
PARTS = ("training", "batches", "reading", "words", "epoch", "predicting")
BATCH_TOKENS, BATCH_CONTEXT = 8_192, 512
MIXTURE = {"cola": "CoLA", "rte": "RTE", "sst2": "SST-2", "stsb": "STS-B"}
"""Tasks that a T5 learns together, by the folders of their files."""
PEAK_STEPS = 20
TURN_S = 1.0
N_SENTENCES, SENTENCE_TOKENS = 1_500, 20
QUICK_STEPS = 20
PLACE = Place(torch.device("cpu"), World(rank=0, size=1))
_N_TRAIN, _N_DEV, _N_TEST = 67_349, 872, 100
"""Rows of the made-up set: SST-2's, but for the test set, which nothing here needs."""


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(options.threads or cores())
    if options.serve is not None:
        serve(build_finetune_step(FinetuneSetup(**json.loads(options.serve))), "cpu")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = options.data or _made_up(folder / "glue")
        os.environ["SUBLAYER_CACHE"] = str(folder / "cache")
        recipe = write_recipe(folder)
        setups = finetune_setups(data.resolve(), recipe, options.dropout[0])
        result = _measure(options, setups, folder)
    result["data"] = "SST-2" if options.data else "made-up sentences as long as SST-2's"
    result["conditions"] = describe_conditions("cpu")
    table = _markdown(result)
    if not options.quick or options.out is not None:
        keep(result, table, options.out or RESULTS / result_name("cpu", "finetuning"))
    print(json.dumps(result) if options.json else table)


def _measure(
    options: argparse.Namespace, setups: list[FinetuneSetup], folder: Path
) -> dict[str, Any]:
    rounds = 3 if options.quick else options.rounds
    result: dict[str, Any] = {"rounds": rounds}
    if "reading" in options.only:
        result["reading"] = _read(setups[0], folder)
    if "words" in options.only:
        result["words_s"] = _words(setups[0].data)
    if "batches" in options.only:
        result["batches"] = [
            _by_tokens(recipe, tasks, setups[0].data, rounds)
            for recipe, tasks in ((setups[0].recipe, [TASK]), ("t5-mini", _mixture(setups[0].data)))
        ]
    if "training" in options.only:
        result["training"] = _train(options, setups, rounds)
    if "epoch" in options.only or "predicting" in options.only:
        run = folder / "run"
        how_long = f"train.steps={QUICK_STEPS}" if options.quick else "train.epochs=1"
        threads = torch.get_num_threads()
        command = ["finetune", setups[0].recipe, TASK, "--data", setups[0].data, how_long]
        command.append(f"train.threads={threads}")
        seconds = _timed(lambda: _called(*command, "--out", str(run)))
        result["epoch"] = {"length": how_long, "seconds": seconds}
        torch.set_num_threads(threads)
        if "predicting" in options.only:
            result["predicting"] = _predict(run, folder / "exported", setups[0], rounds)
    return result


def _timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _called(*command: str) -> None:
    code = cli.main(list(command))
    if code:
        raise SystemExit(f"sublayer {' '.join(command)} ended with {code}")


def _read(setup: FinetuneSetup, folder: Path) -> dict[str, float]:
    """Measure reading and tokenising with a vocabulary that is there, first and from the cache."""
    tokenizer = folder / "tokenizer.json"
    prepare_data(finetune_recipe(setup)).tokenizer.save(tokenizer)
    given = finetune_recipe(setup)
    config = given.data.model_copy(update={"tokenizer": str(tokenizer), "vocab_size": None})
    recipe = given.model_copy(update={"data": config})
    kept, os.environ["SUBLAYER_CACHE"] = os.environ["SUBLAYER_CACHE"], str(folder / "fresh")
    first = _timed(lambda: prepare_data(recipe))
    again = _timed(lambda: prepare_data(recipe))
    os.environ["SUBLAYER_CACHE"] = kept
    return {"first_s": first, "from_cache_s": again}


def _words(data: str) -> float:
    """Measure the seconds of the baseline ``words``, from the read files to its answers."""
    task = TASKS[TASK]
    found = locate_files(task, data)
    train, dev = (read_split(task, name, found[name]).examples for name in ("train", "dev"))
    return _timed(lambda: BASELINES["words"].predict(task, train, dev))


def _train(options: argparse.Namespace, setups: list[FinetuneSetup], rounds: int) -> dict[str, Any]:
    note("== training")
    found = run_rounds(
        setups,
        script=SCRIPT,
        rounds=rounds,
        peak_steps=PEAK_STEPS,
        ends=Budget(options.minutes, 1).next_case(),
        products=lambda setup: Products(_resolved(setup), setup.precision),
        note=note,
    )
    ours = best_setups(found.timings)[OURS]
    encoded = training_split(setups[0]).encoded
    # [CLS] and [SEP] stand around every sentence.
    lengths = (encoded.row_tokens + 2).clip(max=CONTEXT)
    return {
        **compare(found, _resolved(ours.setup)),
        "description": (
            f"d {D_MODEL}, {N_LAYERS} layers, V {VOCAB_SIZE:,}, dropout {setups[0].dropout:g}"
        ),
        "mean_tokens": float(lengths.mean()),
    }


def _mixture(data: str) -> list[str]:
    """Return the tasks of the mixture whose files a folder has."""
    return [name for name, folder in MIXTURE.items() if (Path(data) / folder).is_dir()]


def _by_tokens(recipe: str, tasks: list[str], data: str, rounds: int) -> dict[str, Any]:
    """Measure steps of tokens against steps of as many examples, in turns, by processor seconds."""
    note(f"== batches: {', '.join(tasks)}")
    common = {"data.context": BATCH_CONTEXT, "train.steps": 10_000, "train.precision": "float32"}
    common["train.threads"] = torch.get_num_threads()
    steps: dict[str, Any] = {}
    n_examples = 0
    for name in ("tokens", "examples"):
        size = {"train.batch_tokens": BATCH_TOKENS}
        if name == "examples":
            size = {"train.batch_sequences": n_examples}
        given = load_finetune(recipe, tasks, data, {**common, **size}).loaded.recipe
        prepared = prepare_data(given)
        steps[name] = assemble(resolve(given, prepared, PLACE), prepared, PLACE).train_step
        made = [steps[name].batches.batch(step) for step in range(rounds)]
        n_examples = n_examples or round(statistics.fmean(each.n_examples for each in made))
    case: dict[str, Any] = {"tasks": tasks}
    for name, step in steps.items():
        sides = []
        for number in range(rounds):
            batch = step.batches.batch(number)
            n_units = batch.micro_rows(step.recipe.train.micro_batch_sequences, BATCH_CONTEXT)
            for first in range(0, len(batch), n_units):
                part = batch[first : first + n_units]
                sides += [side for side in (part.read, part.written) if side is not None]
        cells = sum(side.tokens.numel() for side in sides)
        real = sum(sum(side.lengths) for side in sides)
        case[name] = {"padding": 1 - real / cells, "examples_per_s": []}
    for number in range(-1, rounds):
        for name, step in steps.items():
            begun = time.process_time()
            step(max(0, number))
            seconds = time.process_time() - begun
            if number >= 0:  # the first warms up
                n = step.batches.batch(number).n_examples
                case[name]["examples_per_s"].append(n / seconds)
    pairs = zip(*(case[name]["examples_per_s"] for name in steps), strict=True)
    case["speed_over_examples"] = statistics.median(one / other for one, other in pairs)
    return case


def _resolved(setup: Any) -> Any:
    return resolved_recipe(setup)


def _predict(run: Path, exported: Path, setup: FinetuneSetup, rounds: int) -> dict[str, Any]:
    note("== predicting")
    _called("export", str(run), str(exported))
    sentences = _sentences(setup)
    best = take_turns(
        predictors(run, exported, sentences), rounds, pieces=1, turn_s=TURN_S, note=note
    )
    speeds = {each.name: each.median for each in best}
    return {
        "contestants": [
            {"name": each.name, "setup": each.setup, "per_s": each.per_s} for each in best
        ],
        "speed_over_transformers": speeds[OURS] / speeds[PEER],
        "same_answers": same_answers(run, exported, sentences),
    }


def _sentences(setup: FinetuneSetup) -> list[str]:
    """Return sentences of the training rows that have so many tokens."""
    split = of_tasks(prepare_data(finetune_recipe(setup)).train)
    (part,) = split.parts
    lengths = split.encoded.row_tokens.tolist()
    pairs = zip(part.examples, lengths, strict=True)
    chosen = [example for example, length in pairs if length == SENTENCE_TOKENS]
    return [example.fields["sentence"] for example in chosen[:N_SENTENCES]]


def _markdown(result: dict[str, Any]) -> str:
    lines = [f"{heading(result)}; up to {result['rounds']} interleaved rounds, medians. "]
    lines[0] += f"Text: {result['data']}."
    if "training" in result:
        case = result["training"]
        examples = case["contestants"][0]["tokens_per_s"] / case["mean_tokens"]
        lines += ["", f"**{case['description']}**", "", *training_table(case), ""]
        lines += [
            f"{case['speed_over_fastest_peer']:.2f} times transformers (aim 2), "
            f"{case['memory_over_fastest_peer']:.2f} of its memory (aim 0.8); an example has "
            f"{case['mean_tokens']:.1f} tokens, so the fastest trains {examples:,.0f} a second.",
            "",
            products_verdict(case),
        ]
    for case in result.get("batches", []):
        lines += ["", *_batches_table(case)]
    if "reading" in result:
        reading = result["reading"]
        lines += [
            "",
            f"Reading and tokenising: {reading['first_s']:.2f} s (aim 5), "
            f"from the cache {reading['from_cache_s']:.2f} s (aim 0.5).",
        ]
    if "words_s" in result:
        lines += ["", f"The baseline `words`: {result['words_s']:.1f} s (aim 10)."]
    if "epoch" in result:
        epoch = result["epoch"]
        lines += [
            "",
            f"`sublayer finetune` with {epoch['length']}, a vocabulary, start, evaluations and "
            f"baselines included: {epoch['seconds']:.0f} s (aim for an epoch 150).",
        ]
    if "predicting" in result:
        lines += ["", *_predicting(result["predicting"])]
    return "\n".join(lines) + "\n"


def _batches_table(case: dict[str, Any]) -> list[str]:
    lines = [
        f"| batches of {', '.join(case['tasks'])} | examples per processor second | padding |",
        "| --- | ---: | ---: |",
    ]
    for name, said in (("tokens", f"{BATCH_TOKENS:,} tokens"), ("examples", "as many examples")):
        speed = statistics.median(case[name]["examples_per_s"])
        lines.append(f"| {said} | {speed:,.0f} | {case[name]['padding']:.1%} |")
    ratio = case["speed_over_examples"]
    return [*lines, "", f"Paired, tokens over examples: {ratio:.2f} (aim 1)."]


def _predicting(case: dict[str, Any]) -> list[str]:
    lines = [
        "| predicting | setup | sentences/s | slowest to fastest round |",
        "| --- | --- | ---: | ---: |",
    ]
    for each in case["contestants"]:
        speeds = each["per_s"]
        lines.append(
            f"| {each['name']} | {each['setup']} | {statistics.median(speeds):,.0f} "
            f"| {min(speeds):,.0f} to {max(speeds):,.0f} |"
        )
    return [
        *lines,
        "",
        f"{case['speed_over_transformers']:.2f} times transformers (aim 3, or 1,500 sentences of "
        f"{SENTENCE_TOKENS} tokens a second); {case['same_answers']:.1%} of the answers are equal.",
    ]


def _made_up(folder: Path) -> Path:
    """Write a set in the format of SST-2, with as many words in a sentence."""
    draw = random.Random(0)
    vocabulary = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9)))
                  for _ in range(5_000)]  # fmt: skip
    (folder / "SST-2").mkdir(parents=True)
    for name, count in (("train", _N_TRAIN), ("dev", _N_DEV), ("test", _N_TEST)):
        lines = ["index\tsentence" if name == "test" else "sentence\tlabel"]
        for number in range(count):
            length = min(50, 1 + int(draw.expovariate(1 / 9)))
            text = " ".join(draw.choices(vocabulary, k=length))
            lines.append(f"{number}\t{text}" if name == "test" else f"{text}\t{draw.randint(0, 1)}")
        (folder / "SST-2" / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure how fast fine-tuning and predicting are against transformers.",
        epilog="example: python benchmarks/finetune_speed.py --data glue --only training",
    )
    parser.add_argument("--data", type=Path, help="a folder with SST-2's files, as GLUE has them")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    add_shared_options(parser, quick_rounds=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
