"""Quality for time: the recipe gpt and transformers' GPT-2, trained as long. See README.md.

    python benchmarks/quality_speed.py enwik8_first_4MB                # eight minutes each
    python benchmarks/quality_speed.py enwik8_first_4MB --minutes 0.2  # a trial

Both have the recipe's shape, batches, optimizer and schedule, no dropout, and initial weights of
their own, in the precision and attention in which each is fastest. They take turns of a few
seconds. The last twentieth of the text is scored, in float32.
"""

import argparse
import json
import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from contestants import GPT2, OURS, SIZES, VARIANTS, Setup, autocast, build_peer
from numpy.typing import NDArray
from options import note
from products import precisions
from report import RESULTS, describe_conditions, heading, keep, result_name
from torch import Tensor
from worker import Worker, serve

from sublayer.config.load import load_recipe
from sublayer.objective.base import family_of
from sublayer.runs.session import Place, assemble, prepare_data, resolve
from sublayer.system.machine import cores
from sublayer.training.step import learning_rate
from sublayer.training.world import World

SIZE = "gpt"
TURN_S = 5.0
"""Seconds that a turn lasts, or else a hundredth of the time that each trains, if that is less."""
LOOK_TURNS = 3
"""Turns of each setup that tell which one is fastest, and how many steps it takes in its time."""
_PROVISIONAL_STEPS = 10_000
_SCORED_ROWS = 64

SCRIPT = Path(__file__).resolve()


@dataclass(frozen=True)
class QualitySetup(Setup):
    """Training of one contestant on a text, for a number of steps, from a seed."""

    text: str = ""
    steps: int = _PROVISIONAL_STEPS
    seed: int = 0


class Training:
    """Training of a contestant: its steps, and the score of its model."""

    def __init__(self, setup: QualitySetup) -> None:
        self.setup = setup
        settings = {
            "data.path": setup.text,
            "data.split": "95/0/5",
            "train.best_by": "last",
            "train.steps": setup.steps,
            "train.seed": setup.seed,
            "train.precision": setup.precision,
            "train.threads": torch.get_num_threads(),
        }
        given = load_recipe("gpt", settings).recipe
        data = prepare_data(given)
        place = Place(torch.device("cpu"), World(rank=0, size=1))
        self.recipe = recipe = resolve(given, data, place)
        assert data.test is not None, "a twentieth of the text is held out"
        self.test_ids = data.test.ids
        self.take_step: Callable[[int], object]
        if setup.contestant == OURS:
            session = assemble(recipe, data, place)
            self.model: torch.nn.Module = session.text_model.model
            self.batches = session.train_step.batches
            self.take_step = session.train_step
        else:
            self.model = build_peer(setup, seed=setup.seed).train()
            self.batches = family_of(recipe.objective).batches(recipe, data.train)
            self.take_step = self._take_peer_step
            config: Any = recipe.optimizer
            # As ours: gains and biases have no weight decay.
            vectors = [each for each in self.model.parameters() if each.ndim < 2]
            groups: list[dict[str, Any]] = [
                {"params": [each for each in self.model.parameters() if each.ndim >= 2]},
                {"params": vectors, "weight_decay": 0.0},
            ]
            self.optimizer = torch.optim.AdamW(
                groups,
                config.lr,
                config.betas,
                config.eps,
                weight_decay=config.weight_decay,
                fused=True,
            )

    def __call__(self, step: int) -> None:
        """Take one optimizer step."""
        self.take_step(step)

    def n_tokens(self, step: int) -> int:
        return self.batches.n_tokens(step)

    def bits_per_byte(self) -> float:
        """Score the held-out text, in float32."""
        self.model.eval()

        def logits(tokens: Tensor) -> Tensor:
            found: Tensor = self.model(tokens).logits
            return found

        score = bits_per_byte(logits, self.test_ids, self.recipe.data.context)
        self.model.train()
        return score

    def _take_peer_step(self, step: int) -> None:
        recipe = self.recipe
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(recipe.optimizer, step, recipe.train.steps)
        batch = self.batches.batch(step)
        with autocast(self.setup):
            logits = self.model(batch.tokens).logits  # [B, T, V]
            loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=-1)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), recipe.optimizer.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def bits_per_byte(logits: Callable[[Tensor], Tensor], ids: NDArray[Any], context: int) -> float:
    """Score a text in windows next to each other, each read from its beginning.

    ``logits`` maps bytes ``[B, T]`` to logits of the next ones ``[B, T, V]``. The first byte, and
    the rest of less than a window, are not scored.
    """
    n_windows = (len(ids) - 1) // context
    scored = torch.from_numpy(ids[: n_windows * context + 1].astype(np.int64))
    tokens, targets = scored[:-1].view(-1, context), scored[1:].view(-1, context)
    total = 0.0
    with torch.no_grad():
        for start in range(0, n_windows, _SCORED_ROWS):
            rows = slice(start, start + _SCORED_ROWS)
            found = logits(tokens[rows]).flatten(0, 1).float()
            total += F.cross_entropy(found, targets[rows].flatten(), reduction="sum").item()
    return total / targets.numel() / math.log(2)


@dataclass
class Progress:
    """Progress of a contestant's training: the steps and seconds of its turns."""

    worker: Worker
    steps_per_turn: int
    n_steps: int = _PROVISIONAL_STEPS
    seconds: float = 0.0
    tokens: int = 0

    @property
    def n_left(self) -> int:
        return self.n_steps - self.worker.taken

    def take_turn(self) -> None:
        """Take the steps of a turn, or as many as are left."""
        taken = self.worker.steps(min(self.steps_per_turn, self.n_left))
        self.seconds += taken.seconds
        self.tokens += taken.tokens


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(options.threads or cores())
    if options.serve is not None:
        training = Training(QualitySetup(**json.loads(options.serve)))
        serve(training, "cpu", score=training.bits_per_byte)
        return
    seconds = 60 * options.minutes
    setups = [
        QualitySetup(name, SIZE, 0.0, precision, variant, text=options.text, seed=options.seed)
        for name in (OURS, GPT2)
        for precision in precisions(SIZES[SIZE].d_model)
        for variant in VARIANTS[name]
    ]
    turn_s = min(TURN_S, seconds / 100)
    paces = _paces(setups, turn_s)
    result = {
        "conditions": describe_conditions("cpu"),
        "description": f"{SIZES[SIZE]}, no dropout",
        "text": Path(options.text).name,
        "minutes": options.minutes,
        "seed": options.seed,
        **_train(paces, seconds, turn_s),
    }
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "quality for time"))
    print(json.dumps(result) if options.json else table)


def _paces(setups: Sequence[QualitySetup], turn_s: float) -> dict[QualitySetup, float]:
    """Return the fastest setup of ours and of the peer, and its seconds for a step."""
    looked_at = []
    for setup in setups:
        worker = Worker(setup, SCRIPT)
        worker.steps(1)
        looked_at.append(Progress(worker, max(1, round(turn_s / worker.steps(1).seconds))))
    for number in range(LOOK_TURNS):
        random.Random(number).shuffle(looked_at)
        for progress in looked_at:
            progress.take_turn()
    step_s = {}
    for setup in setups:
        progress = next(each for each in looked_at if each.worker.setup == setup)
        progress.worker.close()
        step_s[setup] = progress.seconds / (LOOK_TURNS * progress.steps_per_turn)
        note(f"first look: {setup.contestant} ({setup}) {step_s[setup]:.3f} s a step")
    fastest: dict[str, QualitySetup] = {}
    for setup in sorted(setups, key=step_s.__getitem__):
        fastest.setdefault(setup.contestant, setup)
    return {setup: step_s[setup] for setup in (fastest[OURS], fastest[GPT2])}


def _train(paces: Mapping[QualitySetup, float], seconds: float, turn_s: float) -> dict[str, Any]:
    """Train each for ``seconds`` by its pace, in shuffled turns, and score all."""
    trained = []
    for setup, step_s in paces.items():
        n_steps = max(1, round(seconds / step_s))
        worker = Worker(replace(setup, steps=n_steps), SCRIPT)
        trained.append(Progress(worker, max(1, round(turn_s / step_s)), n_steps))
    number = 0
    while left := [progress for progress in trained if progress.n_left]:
        random.Random(number).shuffle(left)
        for progress in left:
            progress.take_turn()
        number += 1
        if number % 10 == 0:
            note("; ".join(f"{p.worker.setup.contestant} {p.n_left:,} steps left" for p in trained))
    rows: list[dict[str, Any]] = [
        {
            "name": progress.worker.setup.contestant,
            "setup": str(progress.worker.setup),
            "steps": progress.worker.taken,
            "seconds": progress.seconds,
            "tokens_per_s": progress.tokens / progress.seconds,
            "bits_per_byte": progress.worker.score(),
        }
        for progress in trained
    ]
    for progress in trained:
        progress.worker.close()
    ours, theirs = rows
    return {
        "contestants": rows,
        "speed_over_peer": ours["tokens_per_s"] / theirs["tokens_per_s"],
        "bits_over_peer": ours["bits_per_byte"] / theirs["bits_per_byte"],
    }


def _markdown(result: Mapping[str, Any]) -> str:
    lines = [
        f"{heading(result)}; {result['description']}; {result['minutes']:g} minutes each on the "
        f"first 95 % of {result['text']}, seed {result['seed']}, in turns.",
        "",
        "| training | setup | steps | seconds | tokens/s | bits per byte of the last 5 % |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in result["contestants"]:
        lines.append(
            f"| {row['name']} | {row['setup']} | {row['steps']:,} | {row['seconds']:.0f} "
            f"| {row['tokens_per_s']:,.0f} | {row['bits_per_byte']:.3f} |"
        )
    lines += [
        "",
        f"{result['speed_over_peer']:.2f} times its tokens a second, "
        f"{result['bits_over_peer']:.3f} of its bits per byte.",
    ]
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compare the quality that two trainings of one shape reach in the same time.",
        epilog="example: python benchmarks/quality_speed.py enwik8_first_4MB --minutes 8",
    )
    parser.add_argument("text", nargs="?", help="a text file")
    parser.add_argument("--minutes", type=float, default=8.0, help="of training, for each")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the initial weights and the batches"
    )
    parser.add_argument("--threads", type=int, help="as many as there are cores unless given")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is None and options.text is None:
        parser.error("give a text file")
    return options


if __name__ == "__main__":
    main()
