"""Speed of training and translating here and in transformers' M2M100. See README.md.

    python benchmarks/translation_speed.py data.source_path=train.en data.target_path=train.de ...
    [--rounds 7]

Settings are those of ``sublayer train multi30k-tiny``, validation and test files included. Both
train on the same batches, label smoothing included, each in its best precision; both translate the
test split with a beam of 5 and the same weights (those of ``--run``) in float32, each at its best
batch, beside CTranslate2 where it is installed. All in one process, by turns.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from products import precisions
from report import RESULTS, describe_conditions, heading, keep, result_name
from translators import OURS, PEER, Translators, m2m100
from turns import Contestant, take_turns

from sublayer.config.load import absolute_paths, load_recipe
from sublayer.config.objective import TranslationObjective
from sublayer.config.recipe import Recipe
from sublayer.data.batches import PackedBatch
from sublayer.data.prepare import Data
from sublayer.data.translation_batches import TranslationBatches
from sublayer.runs.session import Place, assemble, prepare_data, resolve
from sublayer.system.machine import cores
from sublayer.text_model import TextModel
from sublayer.training.world import World

TRAINING_AIM, TRANSLATING_AIM = 1.5, 2.0
TURN_S, FIRST_STEPS = 4.0, 3


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    torch.set_num_threads(options.threads)
    recipe = absolute_paths(load_recipe("multi30k-tiny", options.settings).recipe)
    data = prepare_data(recipe)
    rounds = options.rounds
    training = take_turns(
        _trainers(recipe, data), rounds, pieces=FIRST_STEPS, turn_s=TURN_S, note=_note
    )
    translating, equal = [], {}
    if options.run is not None:
        assert data.test is not None, "translations are scored on a test split"
        lines = [pair.source_words for pair in data.test.pairs]
        translators = Translators(options.run, lines, options.threads)
        translating = take_turns(
            translators.contestants(), rounds, pieces=1, turn_s=0.0, note=_note
        )
        equal = {
            each.name: translators.agreement(each.name) for each in translating if each.name != OURS
        }
    result = {
        "conditions": describe_conditions("cpu"),
        "rounds": options.rounds,
        "padding_share": _padding(resolve(recipe, data, _place(), steps=10_000), data),
        "training": [_described(each) for each in training],
        "translating": [_described(each) for each in translating],
        "equal_translations": equal,
    }
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "translation"))
    print(table)


def _place() -> Place:
    return Place(torch.device("cpu"), World(rank=0, size=1))


def _trainers(recipe: Recipe, data: Data) -> list[Contestant]:
    found = []
    for precision in precisions(recipe.model.d_model):
        train = recipe.train.model_copy(update={"precision": precision})
        resolved = resolve(recipe.model_copy(update={"train": train}), data, _place(), steps=10_000)
        session = assemble(resolved, data, _place())
        batches = session.train_step.batches
        assert isinstance(batches, TranslationBatches), "a recipe of translation"
        found.append(Contestant(OURS, precision, _ours(session.train_step, batches)))
        model = session.train_step.objective.model
        found.append(Contestant(PEER, precision, _theirs(model, batches, precision, resolved)))
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


def _theirs(
    model: Any, batches: TranslationBatches, precision: str, recipe: Recipe
) -> Callable[[int], int]:
    peer = m2m100(TextModel(model)).train()
    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    assert isinstance(recipe.objective, TranslationObjective), "a recipe of translation"
    smoothing = recipe.objective.label_smoothing
    taken = 0

    def step(batch: PackedBatch) -> None:
        assert batch.written is not None and batch.targets is not None, "a decoder writes"
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            mask = None if batch.read.mask is None else batch.read.mask.long()
            logits = peer(
                batch.read.tokens,
                attention_mask=mask,
                decoder_input_ids=batch.written.tokens,
                use_cache=False,
            ).logits
            flat, labels = logits.flatten(0, 1), batch.targets.flatten()
            loss = torch.nn.functional.cross_entropy(
                flat, labels, ignore_index=-1, label_smoothing=smoothing
            )
        torch.autograd.backward(loss)
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


def _padding(recipe: Recipe, data: Data) -> float:
    from sublayer.objective.translation import TranslationFamily

    batches = TranslationFamily().batches(recipe, data.train)
    computed = real = 0
    for step in range(batches.n_batches(0)):
        batch = batches.batch(step)
        assert batch.written is not None, "a decoder writes"
        computed += batch.read.tokens.numel() + batch.written.tokens.numel()
        real += batch.n_tokens
    return 1 - real / computed


def _described(each: Contestant) -> dict[str, Any]:
    return {"name": each.name, "setup": each.setup, "per_s": each.median, "rounds": each.per_s}


def _markdown(result: dict[str, Any]) -> str:
    lines = [f"{heading(result)}; {result['rounds']} interleaved rounds, medians.", ""]
    kinds = (
        ("training", "target tokens/s", TRAINING_AIM),
        ("translating", "sentences/s", TRANSLATING_AIM),
    )
    for what, unit, aim in kinds:
        if result[what]:
            lines += _table(what, unit, aim, result[what])
    lines.append(
        f"Padding is {result['padding_share']:.1%} of the tokens computed in training "
        "(aim below 5 %)."
    )
    shares = (
        f"{share:.1%} of those of {name}" for name, share in result["equal_translations"].items()
    )
    if result["equal_translations"]:
        lines.append(f"Its translations equal {', '.join(shares)}.")
    return "\n".join(lines) + "\n"


def _table(what: str, unit: str, aim: float, rows: list[dict[str, Any]]) -> list[str]:
    speeds = {row["name"]: row["per_s"] for row in rows}
    ours = speeds[OURS]
    lines = [
        f"| {what} | setup | {unit} | slowest to fastest round | ours / it |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        spread = f"{min(row['rounds']):,.0f} to {max(row['rounds']):,.0f}"
        ratio = f"{ours / row['per_s']:.2f}"
        lines.append(
            f"| {row['name']} | {row['setup']} | {row['per_s']:,.0f} | {spread} | {ratio} |"
        )
    return [*lines, "", f"{ours / speeds[PEER]:.2f} times transformers (aim {aim:g}).", ""]


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure how fast translators train and translate."
    )
    parser.add_argument("settings", nargs="*", help="KEY=VALUE, such as data.source_path=train.en")
    parser.add_argument("--run", type=Path, help="a trained run, whose weights both translate with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    return parser.parse_args()


if __name__ == "__main__":
    main()
