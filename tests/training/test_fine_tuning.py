"""Steps of fine-tuning: what a weight of nothing leaves, how long an epoch is, what is saved."""

import json
import math
import shutil

import pytest
import torch
import torch.nn.functional as F

from sublayer.errors import CheckpointError
from sublayer.loading import load
from sublayer.model.context.layout import Layout
from sublayer.model.context.queries import Queries
from sublayer.model.kernels.dropout import dropout
from sublayer.objective.base import Objective
from sublayer.runs.resolution import resolve
from sublayer.runs.session import prepare_data
from sublayer.tasks.registry import TASKS
from sublayer.training.step import TrainStep
from tests.made import KINDS, PAIR, TRAVERSAL
from tests.training.runs import ALONE, open_session, weights

N_TRAIN = 54
"""Of 60 rows a tenth is held out."""


class PlainChoice(Objective):
    """Fine-tuning as it is written without any other term: the mean loss of the right choice."""

    reported = "task"
    weights = {"task": 1.0}

    def counts(self, batch):
        return {"task": batch.n_examples}

    def forward(self, batch):
        side = batch.read
        layout = Layout.causal(side.tokens, None, side.document_ids)
        # Each row reads as many places as the fullest, its own first.
        own = [[] for _ in side.tokens]
        for row, column in batch.readouts.tolist():
            own[row].append(column)
        n_most = max(map(len, own))
        places = torch.tensor([[*each, *[0] * (n_most - len(each))] for each in own])
        hidden = self.model.hidden(
            side.tokens, layout, segments=batch.segments, queries=Queries(places)
        )
        read = torch.cat([hidden.final[row, : len(each)] for row, each in enumerate(own)])
        logits = self.model.label_head(dropout(read, 0.1, self.training)).view(-1, 2)
        return {"task": F.cross_entropy(logits, batch.labels.long(), reduction="none").sum()}


def test_a_weight_of_nothing_is_plain_fine_tuning_to_the_bit(tiny):
    loaded = tiny({**TRAVERSAL, "objective.language_weight": 0.0})
    session, other = open_session(loaded), open_session(loaded)
    model = other.train_step.objective.model
    assert model.head is None and model.config.dropout > 0
    assert session.train_step.batches.batch(0).targets is None
    batches = other.train_step.batches
    plain = TrainStep(
        other.recipe, PlainChoice(model), batches, device=ALONE.device, world=ALONE.world
    )
    before = weights(session.train_step)
    losses = [(session.train_step(step).loss, plain(step).loss) for step in range(5)]
    assert all(torch.equal(one, other) for one, other in losses)
    found, expected = weights(session.train_step), weights(plain)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    assert not any(torch.equal(found[name], before[name]) for name in found)


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
