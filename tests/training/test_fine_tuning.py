"""Steps of fine-tuning: what a weight of nothing leaves, how long an epoch is, what is saved."""

import json
import math
import shutil

import pytest
import torch

from sublayer.errors import CheckpointError
from sublayer.loading import load
from sublayer.runs.resolution import resolve
from sublayer.runs.session import prepare_data
from sublayer.tasks.registry import TASKS
from tests.made import KINDS, PAIR, TRAVERSAL
from tests.training.runs import ALONE, open_session, weights

N_TRAIN = 54
"""Of 60 rows a tenth is held out."""


def test_a_weight_of_the_texts_changes_what_is_learned_and_keeps_the_head(tiny):
    session = open_session(tiny(TRAVERSAL))
    assert session.train_step.objective.model.head is not None
    assert session.train_step.batches.batch(0).targets is not None
    plain = open_session(tiny({**TRAVERSAL, "objective.language_weight": 0.0}))
    for each in (session, plain):
        each.train_step(0)
    shared, found = weights(plain.train_step), weights(session.train_step)
    changed = [name for name in shared if not torch.equal(found[name], shared[name])]
    assert len(changed) > len(shared) / 2


@pytest.mark.parametrize(("batch", "epochs"), [(6, 2.5), (7, 3), (60, 1)])
def test_an_epoch_is_every_example_once(tiny, batch, epochs):
    settings = {**PAIR, "train.epochs": epochs}
    loaded = tiny({**settings, "train.batch_sequences": batch, "optimizer.warmup_steps": 0})
    data = prepare_data(loaded.recipe)
    recipe = resolve(loaded.recipe, data, ALONE)
    assert recipe.train.steps == math.ceil(epochs * N_TRAIN / batch)


def test_both_orders_make_an_epoch_twice_as_long(tiny):
    settings = {"train.epochs": 1, "optimizer.warmup_steps": 0}
    loaded = tiny({**PAIR, **settings, "objective.orders": "both"})
    recipe = resolve(loaded.recipe, prepare_data(loaded.recipe), ALONE)
    assert recipe.train.steps == 2 * N_TRAIN / 6


@pytest.mark.parametrize("kind", ["pair", "traversal", "text"])
def test_a_run_keeps_its_tasks_in_every_model_folder(made, kind):
    settings, folder = KINDS[kind], made(kind)
    model = load(folder)
    tasks = settings["data.tasks"]
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    assert [task.name for task in model.task.tasks] == names
    assert model.task.tasks[0] == TASKS[names[0]]
    assert model.task.context == 32
    assert (model.task.format, model.task.target_length) == (kind, 8 if kind == "text" else 0)
    [checkpoint, *_] = sorted((folder / "checkpoints").glob("step-*"))
    assert load(checkpoint).task == model.task
    # Of a head that only training needs, and no task takes, nothing is left.
    assert (model.head is None) == (kind == "pair")
    assert (model.label_head is None) == (kind == "text")


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"tasks": []},
        {"format": "letters"},
        {"format": None},
        {"context": 0},
        {"tasks": [{"name": "x"}]},
        None,
    ],
    ids=str,
)
def test_damaged_tasks_of_a_folder_are_refused(made, tmp_path, change):
    folder = tmp_path / "model"
    shutil.copytree(made("pair") / "model", folder)
    path = folder / "task.json"
    changed = {**json.loads(path.read_text()), **(change or {})}
    kept = {name: value for name, value in changed.items() if value is not None}
    path.write_text("{" if change is None else json.dumps(kept))
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    assert "task.json" in str(caught.value) and "\n" not in str(caught.value)
    path.unlink()
    assert load(folder).task is None
