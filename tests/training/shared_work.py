"""Scores of a model, and what processes tell each other, as one of several processes has them."""

from collections import Counter
from unittest.mock import patch

import numpy as np
import torch

from sublayer.config.layering.layers import load_recipe, vary
from sublayer.errors import SublayerError
from sublayer.evaluation.split_work import ALONE
from sublayer.model.transformer import Transformer
from sublayer.objective.families import family_of
from sublayer.objective.supervised import predictions, text_predictions
from sublayer.training.processes.agreement import check_same
from tests.made import MASKED, PAIR, SPAN, TEXT, TINY, TRANSLATION, TRAVERSAL
from tests.training.runs import open_session

BEAM = {"objective.beam": 2}
MANY = {"train.evaluate_tokens": 20000}
SETTINGS = {
    "causal": {"data.boundaries": "respect", "data.context": 16, **MANY},
    "masked": {**MASKED, "data.context": 128, **MANY},
    "translation": {**TRANSLATION, "train.best_by": "bleu", "data.context": 16, **BEAM},
    "span": {**SPAN, "data.boundaries": "respect", "data.split": "40/30/30", **MANY}, "pair": PAIR,
    "traversal": TRAVERSAL, "text": TEXT, "ranked": {**TEXT, "objective.answer": "rank"},
}  # fmt: skip
CALLS = Counter()
_states = Transformer.states


def count_calls(self, *args, **kwargs):
    CALLS["states"] += 1
    return _states(self, *args, **kwargs)


def scored(session, effort, processes):
    CALLS.clear()
    family = family_of(session.recipe.objective)
    model = session.train_step.objective.model.eval()
    split = session.data.valid if effort == "training" else session.data.test
    found = family.score(model, split, session.recipe, effort, processes)
    tables = {} if found.items is None else found.items.tables
    items = {
        f"{name}.{column}": values.tolist()
        for name, table in tables.items()
        for column, values in table.columns.items()
    }
    return {"scores": dict(found.scores), "items": items, "calls": CALLS["states"]}


def few(model, context):
    """So few examples at a time that the work of few is shared."""
    return 2


@patch.object(Transformer, "states", count_calls)
@patch.object(predictions, "batch_sequences", few)
@patch.object(text_predictions, "batch_sequences", few)
@patch.object(text_predictions, "_AT_A_TIME", 2)
def scores(world, paths):
    found, places = {}, {"alone": ALONE, "together": world}
    for (kind, settings), path in zip(SETTINGS.items(), paths, strict=True):
        session = open_session(vary(load_recipe("gpt", {**TINY, "data.path": path}), settings))
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
    found |= {"fewer": gathered([[8.0]])}
    found |= {"sum": world.sum(torch.tensor([world.rank + 1.0])).tolist()}
    found |= {"share": world.share([float(world.rank), 7.0])}
    found |= {"any": [world.any(world.rank == rank) for rank in range(3)], "written": []}
    world.by_first(lambda: found["written"].append(world.rank))
    try:
        check_same(world, f"text {world.rank}", "another text", "give all nodes the same files")
    except SublayerError as error:
        found["differing"] = str(error)
    try:
        world.by_first(fail)
    except (ValueError, SublayerError) as error:
        found["failure"] = [type(error).__name__, str(error)]
    return found
