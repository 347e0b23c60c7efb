"""Do one thing after the other in each of several processes: a list of tasks, in a JSON file.

Each is a list, words of the command line, or an object:

``end``: train ``recipe`` with ``settings`` in ``out`` up to this step, and end without saving;
``lost``: carry out these words; the second process trains first, and is killed after step 7, once;
``into``: save what ``recipe`` begins with, or the checkpoint ``restore``, in this folder;
``differing``: words of the command line, to which each process adds its number as the seed;
``found``: the folder that gets scores of models, and what processes tell each other.
"""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from sublayer.cli import main as cli
from sublayer.config.load import load_recipe
from sublayer.errors import SublayerError
from sublayer.evaluation.items import ALONE
from sublayer.model.transformer import Transformer
from sublayer.objective.base import family_of
from sublayer.objective.supervised import heads
from sublayer.objective.supervised import text as texts
from sublayer.runs.run import train_run
from sublayer.runs.session import Place
from sublayer.training import world as joined_world
from sublayer.training.checkpoints import LoopState, Snapshots
from sublayer.training.log import SilentProgress
from sublayer.training.world import join_world
from tests.made import MASKED, PAIR, SPAN, TEXT, TINY, TRANSLATION, TRAVERSAL
from tests.training.runs import SignalAt, open_session

CPU = torch.device("cpu")
BEAM, MANY = {"objective.beam": 2}, {"train.evaluate_tokens": 20000}
SETTINGS = {
    "causal": {"data.boundaries": "respect", "data.context": 16, **MANY},
    "masked": {**MASKED, "data.context": 128, **MANY},
    "translation": {**TRANSLATION, "train.best_by": "bleu", "data.context": 16, **BEAM},
    "span": {**SPAN, "data.boundaries": "respect", "data.split": "40/30/30", **MANY}, "pair": PAIR,
    "traversal": TRAVERSAL, "text": TEXT, "ranked": {**TEXT, "objective.answer": "rank"},
}  # fmt: skip
CALLS, _states = Counter(), Transformer.states


def train(task, progress):
    loaded = load_recipe(task["recipe"], task["settings"])
    train_run(loaded, Path(task["out"]), resume=True, progress=progress)


def save_again(task):
    loaded = load_recipe(task["recipe"], task["settings"])
    session = open_session(loaded, Place(CPU, join_world(CPU)))
    snapshots = Snapshots(Path(task["into"]), session.train_step, lambda folder: None)
    restored = task.get("restore")
    state = snapshots.restore(Path(restored)) if restored else LoopState()
    snapshots.save(state)
    snapshots.wait()


def break_off(task):
    def update(status):
        if status.step == task["end"]:
            raise EOFError

    progress = SilentProgress()
    progress.update = update
    try:
        train(task, progress)
    except EOFError:
        return None
    return f"did not get to step {task['end']}"


def lose_a_process(task):
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        train(task, SignalAt(7, signal.SIGKILL))
    return cli.main(task["lost"])


def differ(task):
    words = [*task["differing"], f"train.seed={join_world(CPU).rank}"]
    return None if cli.main(words) == 2 else "was not refused"


def answer(task):
    world = join_world(CPU)
    found = {"scores": scores(world, task["paths"]), "agreement": agreement(world)}
    (Path(task["found"]) / f"{world.rank}.json").write_text(json.dumps(found))


def count_calls(self, *args, **kwargs):
    CALLS["states"] += 1
    return _states(self, *args, **kwargs)


def scored(session, effort, processes):
    CALLS.clear()
    family, model = family_of(session.recipe.objective), session.text_model
    model.model.eval()
    split = session.data.valid if effort == "training" else session.data.test
    found = family.score(model, split, session.recipe, effort, processes)
    items = {
        f"{name}.{column}": values.tolist()
        for name, table in ({} if found.items is None else found.items.tables).items()
        for column, values in table.columns.items()
    }
    return {"scores": dict(found.scores), "items": items, "calls": CALLS["states"]}


def few(model, context):
    """So few examples at a time that the work of few is shared."""
    return 2


@patch.object(Transformer, "states", count_calls)
@patch.object(heads, "scored_sequences", few)
@patch.object(texts, "_AT_A_TIME", 2)
def scores(world, paths):
    found, places = {}, {"alone": ALONE, "together": world}
    for (kind, settings), path in zip(SETTINGS.items(), paths, strict=True):
        session = open_session(load_recipe("gpt", {**TINY, "data.path": path}).vary(settings))
        for step in range(2):
            session.train_step(step)
        found[kind] = {
            effort: {name: scored(session, effort, by) for name, by in places.items()}
            for effort in ("training", "test")
        }
    return found


def agreement(world):
    def gathered(rows):
        own = [np.array(rows[index], dtype=np.float64) for index in world.own(len(rows))]
        return [row.tolist() for row in world.gather(own, len(rows))]

    def fail():
        raise ValueError("the disk is full")

    found = {"ragged": gathered([[1.5], [], [3.0, float(2**40)], [4.0], [5.0, 6.0, 7.0]])}
    found |= {"fewer": gathered([[8.0]]), "share": world.share([float(world.rank), 7.0])}
    found |= {"sum": world.sum(torch.tensor([world.rank + 1.0])).tolist(), "written": []}
    found |= {"any": [world.any(world.rank == rank) for rank in range(3)]}
    world.by_first(lambda: found["written"].append(world.rank))
    try:
        world.check_same(f"text {world.rank}", "another text", "give all nodes the same files")
    except SublayerError as error:
        found["differing"] = str(error)
    try:
        world.by_first(fail)
    except (ValueError, SublayerError) as error:
        found["failure"] = [type(error).__name__, str(error)]
    return found


KINDS = {"into": save_again, "end": break_off, "lost": lose_a_process}
KINDS |= {"found": answer, "differing": differ}

if __name__ == "__main__":
    torch.set_num_threads(1)
    tasks, leave_world = json.loads(Path(sys.argv[1]).read_text()), joined_world.leave_world
    if len(tasks) > 1:
        # A group of processes that was left is not joined again under one launcher.
        joined_world.leave_world = lambda: None
    for task in tasks:
        work = next((work for kind, work in KINDS.items() if kind in task), cli.main)
        if code := work(task):
            sys.exit(f"{task} ended with {code}")
    leave_world()
