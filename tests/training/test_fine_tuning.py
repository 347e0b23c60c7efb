"""Fine-tuning: how long an epoch is, and the tasks that a model folder keeps."""

import json
import math
import shutil

import pytest

from sublayer.errors import CheckpointError
from sublayer.loading import load
from sublayer.runs.resolution import resolve
from sublayer.runs.session import prepare_data
from sublayer.tasks.registry import TASKS
from tests.made import KINDS, PAIR
from tests.training.runs import ALONE

N_TRAIN = 54
"""Of 60 rows a tenth is held out."""


@pytest.mark.parametrize(
    ("batch", "epochs", "orders"), [(6, 2.5, "random"), (7, 3, "random"), (7, 1, "both")]
)
def test_an_epoch_is_every_example_once_in_all_orders(tiny, batch, epochs, orders):
    settings = {**PAIR, "train.epochs": epochs, "objective.orders": orders}
    loaded = tiny({**settings, "train.batch_sequences": batch, "optimizer.warmup_steps": 0})
    recipe = resolve(loaded.recipe, prepare_data(loaded.recipe), ALONE)
    n_examples = epochs * N_TRAIN * (2 if orders == "both" else 1)
    assert recipe.train.steps == math.ceil(n_examples / batch)


@pytest.mark.parametrize("kind", ["pair", "traversal", "text"])
def test_a_run_keeps_its_tasks_in_every_model_folder(made, kind):
    folder, tasks = made(kind), KINDS[kind]["data.tasks"]
    model = load(folder)
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    assert model.task.tasks == tuple(TASKS[name] for name in names)
    found = (model.task.context, model.task.format, model.task.target_length)
    assert found == (32, kind, 8 if kind == "text" else 0)
    [checkpoint, *_] = sorted((folder / "checkpoints").glob("step-*"))
    assert load(checkpoint).task == model.task
    # Of a head that only training needs, and no task takes, nothing is left.
    assert (model.head is None) == (kind == "pair")
    assert (model.label_head is None) == (kind == "text")


@pytest.mark.parametrize(
    "change", [{"tasks": []}, {"format": None}, {"context": 0}, {"tasks": [{"name": "x"}]}], ids=str
)
def test_damaged_tasks_of_a_folder_are_refused(made, tmp_path, change):
    folder = shutil.copytree(made("pair") / "model", tmp_path / "model")
    path = folder / "task.json"
    changed = {**json.loads(path.read_text()), **change}
    kept = {name: value for name, value in changed.items() if value is not None}
    path.write_text(json.dumps(kept))
    with pytest.raises(CheckpointError, match=r"^[^\n]*task\.json[^\n]*$"):
        load(folder)
    path.unlink()
    assert load(folder).task is None
