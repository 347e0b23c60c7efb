"""How fast translators train and translate here and in transformers' M2M100 with the same weights. See README.md.

    python benchmarks/translation_speed.py data.source_path=train.en data.target_path=train.de ... [--rounds 7]

Settings are those of ``sublayer train multi30k-tiny``, validation and test files included. Both train on the same
batches, label smoothing included, each in its best precision; both translate the test split with a beam of 5 and the
same weights (those of ``--run``), each at its best batch. Everything in one process, by turns.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from report import RESULTS, describe_conditions, heading, keep, result_name
from torch import Tensor

from sublayer.config.cores import cores
from sublayer.config.layers import load_recipe
from sublayer.config.paths import anchored
from sublayer.config.recipe import Recipe
from sublayer.data.pair_texts import read_split
from sublayer.data.prepare import Data
from sublayer.data.translation_batches import TranslationBatch, TranslationBatches
from sublayer.decode.beam import BeamSettings
from sublayer.decode.translate import translate_lines
from sublayer.interop.huggingface import export_huggingface
from sublayer.load import load
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.session import Place, assemble, prepare_data, resolve
from sublayer.train.distributed import World

TRAINING_AIM, TRANSLATING_AIM = 1.5, 2.0
TURN_S, FIRST_STEPS = 4.0, 3
BEAM, MORE, SHARE = 5, 10.0, 1.2
AS_EXPORTED = ("model.sinusoids=fairseq", "model.first_position=2")
"""What M2M100's class computes."""


@dataclass
class Contestant:
    """Who takes turns: a name, how it runs, and what it did a second in each round."""

    name: str
    setup: str
    run: Callable[[int], int]
    per_s: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.per_s)

    def turn(self, count: int) -> float:
        """Run and give what was done a second."""
        begun = time.perf_counter()
        done = self.run(count)
        return done / (time.perf_counter() - begun)


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    torch.set_num_threads(options.threads)
    recipe = anchored(load_recipe("multi30k-tiny", [*AS_EXPORTED, *options.settings]).recipe)
    data = prepare_data(recipe)
    training = _rounds(_trainers(recipe, data), options.rounds, "target tokens")
    translating, agreement = [], None
    if options.run is not None:
        contestants, outputs = _translators(options.run, data, recipe)
        translating = _rounds(contestants, options.rounds, "sentences", whole=True)
        agreement = sum(one == other for one, other in zip(*outputs(), strict=True)) / len(outputs()[0])
    result = {
        "conditions": describe_conditions("cpu"),
        "rounds": options.rounds,
        "padding_share": _padding(resolve(recipe, data, _place(), steps=10_000), data),
        "training": [_described(each) for each in training],
        "translating": [_described(each) for each in translating],
        "equal_translations": agreement,
    }
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "translation"))
    print(table)


def _place() -> Place:
    return Place(torch.device("cpu"), World(rank=0, size=1))


def _trainers(recipe: Recipe, data: Data) -> list[Contestant]:
    found = []
    for precision in ("float32", "bfloat16"):
        train = recipe.train.model_copy(update={"precision": precision})
        resolved = resolve(recipe.model_copy(update={"train": train}), data, _place(), steps=10_000)
        session = assemble(resolved, data, _place())
        batches = session.train_step.batches
        found.append(Contestant("sublayer", precision, _ours(session.train_step, batches)))
        model = session.train_step.objective.model
        found.append(Contestant("transformers M2M100", precision, _theirs(model, batches, precision, resolved)))
    return found


def _ours(take_step: Any, batches: TranslationBatches) -> Callable[[int], int]:
    taken = 0

    def run(count: int) -> int:
        nonlocal taken
        done = 0
        for _ in range(count):
            take_step(taken)
            done += batches.n_tokens(taken)
            taken += 1
        return done

    return run


def _theirs(model: Any, batches: TranslationBatches, precision: str, recipe: Recipe) -> Callable[[int], int]:
    peer = _m2m100(model).train()
    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    smoothing = recipe.objective.label_smoothing  # type: ignore[union-attr]
    taken = 0

    def step(batch: TranslationBatch) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            mask = None if batch.source_mask is None else batch.source_mask.long()
            logits = peer(batch.source, attention_mask=mask, decoder_input_ids=batch.target, use_cache=False).logits
            flat, labels = logits.flatten(0, 1), batch.labels.flatten()
            loss = torch.nn.functional.cross_entropy(flat, labels, ignore_index=-1, label_smoothing=smoothing)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def run(count: int) -> int:
        nonlocal taken
        done = 0
        for _ in range(count):
            step(batches.batch(taken))
            done += batches.n_tokens(taken)
            taken += 1
        return done

    return run


def _m2m100(model: Any) -> Any:
    from transformers import M2M100ForConditionalGeneration

    with tempfile.TemporaryDirectory() as folder:
        export_huggingface(model, Path(folder) / "model")
        return M2M100ForConditionalGeneration.from_pretrained(Path(folder) / "model")


def _translators(run: Path, data: Data, recipe: Recipe) -> tuple[list[Contestant], Callable[[], list[list[list[int]]]]]:
    model = load(run)
    assert isinstance(model, EncoderDecoder), "the run is a translator's"
    lines = [pair.source_words for pair in read_split(recipe.data, "test")]
    tokenizer = model.tokenizer
    encoded = [ids.tolist() for ids in tokenizer.encode_many([line.encode() for line in lines])]
    settings = BeamSettings(BEAM, longest_share=SHARE, longest_more=MORE)
    kept: dict[str, list[list[int]]] = {}

    def ours(sentences: int) -> Callable[[int], int]:
        def translate(_: int) -> int:
            found = translate_lines(model, lines, settings, sentences=sentences, window=len(lines), are_words=True)
            kept["ours"] = [each.ids.tolist() for each in found]
            return len(lines)

        return translate

    peer = _m2m100(model).eval()
    order = sorted(range(len(encoded)), key=lambda index: -len(encoded[index]))

    def theirs(sentences: int) -> Callable[[int], int]:
        @torch.inference_mode()
        def translate(_: int) -> int:
            found: list[list[int]] = [[] for _ in encoded]
            for start in range(0, len(order), sentences):
                chosen = order[start : start + sentences]
                source, mask = _padded([encoded[index] for index in chosen], tokenizer.sep_id, tokenizer.pad_id)
                longest = int(SHARE * source.shape[1] + MORE)
                ids = peer.generate(
                    source, attention_mask=mask, num_beams=BEAM, length_penalty=1.0, early_stopping=True,
                    max_new_tokens=longest + 1, min_new_tokens=1, do_sample=False,
                    decoder_start_token_id=tokenizer.sep_id, eos_token_id=tokenizer.sep_id,
                    pad_token_id=tokenizer.pad_id,
                )  # fmt: skip
                for index, row in zip(chosen, ids.tolist(), strict=True):
                    words = row[1:]
                    found[index] = words[: words.index(tokenizer.sep_id)] if tokenizer.sep_id in words else words
            kept["theirs"] = found
            return len(lines)

        return translate

    contestants = [Contestant("sublayer", f"{n} sentences", ours(n)) for n in (32, 64)]
    contestants += [Contestant("transformers M2M100", f"{n} sentences", theirs(n)) for n in (32, 64)]
    return contestants, lambda: [kept["ours"], kept["theirs"]]


def _padded(rows: list[list[int]], end: int, pad: int) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows)) + 1
    tokens = torch.full((len(rows), width), pad)
    for place, row in enumerate(rows):
        tokens[place, : len(row) + 1] = torch.tensor([*row, end])
    return tokens, (tokens != pad).long()


def _rounds(contestants: list[Contestant], rounds: int, what: str, *, whole: bool = False) -> list[Contestant]:
    counts = {}
    for each in contestants:
        each.turn(1)
        begun = time.perf_counter()
        each.turn(1 if whole else FIRST_STEPS)
        seconds = (time.perf_counter() - begun) / (1 if whole else FIRST_STEPS)
        counts[id(each)] = 1 if whole else max(1, round(TURN_S / seconds))
    for index in range(rounds):
        random.Random(index).shuffle(contestants)
        for each in contestants:
            each.per_s.append(each.turn(counts[id(each)]))
        speeds = (f"{each.name} ({each.setup}) {each.per_s[-1]:,.1f}" for each in contestants)
        _note(f"round {index + 1}: {'; '.join(speeds)}")
    _note(f"{what} a second")
    best: dict[str, Contestant] = {}
    for each in sorted(contestants, key=lambda each: -each.median):
        best.setdefault(each.name, each)
    return list(best.values())


def _padding(recipe: Recipe, data: Data) -> float:
    from sublayer.objective.batching import translation_batches

    batches = translation_batches(recipe, data.train)
    computed = real = 0
    for step in range(batches.n_batches(0)):
        batch = batches.batch(step)
        computed += batch.source.numel() + batch.target.numel()
        n_source = batch.source.numel() if batch.source_mask is None else int(batch.source_mask.sum())
        real += n_source + batch.n_targets
    return 1 - real / computed


def _described(each: Contestant) -> dict[str, Any]:
    return {"name": each.name, "setup": each.setup, "per_s": each.median, "rounds": each.per_s}


def _markdown(result: dict[str, Any]) -> str:
    lines = [f"{heading(result)}; {result['rounds']} interleaved rounds, medians.", ""]
    kinds = (("training", "target tokens/s", TRAINING_AIM), ("translating", "sentences/s", TRANSLATING_AIM))
    for what, unit, aim in kinds:
        if result[what]:
            lines += _table(what, unit, aim, result[what])
    lines.append(f"Padding is {result['padding_share']:.1%} of the tokens computed in training (aim below 5 %).")
    if result["equal_translations"] is not None:
        lines.append(f"{result['equal_translations']:.1%} of the translations are equal.")
    return "\n".join(lines) + "\n"


def _table(what: str, unit: str, aim: float, rows: list[dict[str, Any]]) -> list[str]:
    ours = next(row["per_s"] for row in rows if row["name"] == "sublayer")
    theirs = max(row["per_s"] for row in rows if row["name"] != "sublayer")
    lines = [
        f"| {what} | setup | {unit} | slowest to fastest round | ours / it |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        spread = f"{min(row['rounds']):,.0f} to {max(row['rounds']):,.0f}"
        ratio = f"{ours / row['per_s']:.2f}"
        lines.append(f"| {row['name']} | {row['setup']} | {row['per_s']:,.0f} | {spread} | {ratio} |")
    return [*lines, "", f"{ours / theirs:.2f} times transformers (aim {aim:g}).", ""]


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how fast translators train and translate.")
    parser.add_argument("settings", nargs="*", help="KEY=VALUE, such as data.source_path=train.en")
    parser.add_argument("--run", type=Path, help="a trained run, whose weights both translate with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    return parser.parse_args()


if __name__ == "__main__":
    main()
