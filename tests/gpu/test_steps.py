"""Training steps on a GPU: the CPU's numbers, nothing that waits, ahead, compiled, in parts."""

import json
import subprocess

import pytest
import torch

from tests.breadth import TRIES_ALL
from tests.gpu.compiled_together import CASES
from tests.gpu.kinds import KINDS, OPTIMIZERS, NothingWaits, chosen, gradients, open_session
from tests.torchrun import in_processes
from tests.training.runs import weights

LOSS, GRADIENT, MOVED = 1e-5, 1e-3, 0.05
"""Greatest relative difference: of a loss; of a parameter's gradient, and of all changes, in L2."""
GPU = pytest.param("cuda", marks=pytest.mark.gpu)
PLACES = ["cpu", GPU] if TRIES_ALL else [GPU]


def without_dropout(settings):
    has_own = "data.tasks" in settings and settings.get("objective.format") != "text"
    return {**settings, "model.dropout": 0.0, **({"objective.dropout": 0.0} if has_own else {})}


def differs_by(found, expected):
    return float((found - expected).norm() / expected.norm().clamp_min(1e-6))


@pytest.mark.parametrize("kind", chosen(KINDS, "documents", "masked", "span", "questions, joint"))
def test_losses_and_gradients_are_those_of_the_cpus_kernels(kind, device, texts, monkeypatch):
    settings = without_dropout(KINDS[kind])
    loss, found = gradients(open_session(texts, settings, device))
    monkeypatch.undo()
    expected_loss, expected = gradients(open_session(texts, settings, "cpu"))
    assert loss == pytest.approx(expected_loss, rel=LOSS)
    assert found.keys() == expected.keys()
    largest = max(float(each.norm()) for each in expected.values())
    for name, gradient in expected.items():
        # What is nearly 0 in the one sum is so in the other.
        if float(gradient.norm()) > 1e-5 * largest:
            assert differs_by(found[name], gradient) < GRADIENT, name


@pytest.mark.parametrize("name", chosen(OPTIMIZERS, "lamb", "factored"))
def test_every_optimizer_moves_weights_as_on_the_cpu(name, device, texts, monkeypatch):
    settings = without_dropout(OPTIMIZERS[name])
    moved, losses = [], []
    for place in (device, device, "cpu"):
        if place == "cpu":
            monkeypatch.undo()
        train_step = open_session(texts, settings, place).train_step
        before = weights(train_step)
        losses.append([float(train_step(step).loss) for step in range(3)])
        pairs = zip(weights(train_step).values(), before.values(), strict=True)
        moved.append(torch.cat([(after - value).flatten().cpu() for after, value in pairs]))
    # The same steps give the same numbers again.
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    # A change of Adam's first steps has the gradient's sign alone, however small it is: a few of
    # those that are nearly 0 may differ in it.
    assert differs_by(moved[0], moved[2]) < MOVED
    assert float(moved[2].norm()) > 0


@pytest.mark.parametrize("kind", chosen(KINDS, "translation"))
def test_steps_prepared_ahead_are_the_same(kind, texts, device, monkeypatch):
    settings = {**KINDS[kind], "model.dropout": 0.1, "train.micro_batch_sequences": 2}
    found = []
    for is_ahead in (False, True):
        monkeypatch.setattr("sublayer.training.step.pays", lambda _, it=is_ahead: it)
        train_step = open_session(texts, settings, device).train_step
        results = [train_step(step) for step in range(4)]
        found.append([(float(each.loss), each.n_tokens) for each in results])
    # Sums of a GPU's gradients may differ in their order.
    limit = 1e-4 if device.type == "cuda" else 0.0
    assert found[1] == [(pytest.approx(loss, rel=limit), n) for loss, n in found[0]]


@pytest.mark.parametrize(
    "kind", chosen(KINDS, "auxiliary", "masked", "translation", "questions, joint")
)
def test_no_pass_of_an_objective_waits(kind, texts, monkeypatch):
    train_step = open_session(texts, KINDS[kind], "cpu").train_step
    # By the operators that a GPU takes.
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    objective = train_step.objective.train()
    objective.begin(0, train_step.recipe.train.steps)
    batch = train_step.batches.batch(0)
    with NothingWaits():
        sum(objective(batch).values()).backward()


@pytest.mark.parametrize("name", chosen(OPTIMIZERS, "lamb", "factored"))
def test_no_update_waits(name, texts):
    train_step = open_session(texts, OPTIMIZERS[name], "cpu").train_step
    train_step(0)
    train_step._accumulate(1, train_step.prepare(1))
    with NothingWaits():
        train_step.optimizer.step()


def test_operators_that_wait_are_noticed():
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NothingWaits():
        torch.ones(1).item()
    with pytest.raises(AssertionError, match="lift_fresh"), NothingWaits():
        torch.tensor([1, 2])


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", chosen({**KINDS, **OPTIMIZERS}, "decoder"))
def test_the_host_never_waits_for_the_gpu_in_a_step(name, texts):
    train_step = open_session(texts, {**KINDS, **OPTIMIZERS}[name], "cuda").train_step
    for step in range(3):
        train_step(step)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(3, 6):
            train_step(step)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def compiled(n_processes, place, texts, *names):
    """Run ``compiled_together``: what differs from what is not compiled, and what was compiled."""
    # In processes of their own: annotations that are checked cannot be compiled.
    words = (place, texts({}), *names)
    command = in_processes(n_processes, "tests.gpu.compiled_together", *words)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert found.keys() == set(names)
    return found.items()


@pytest.mark.parametrize("place", ["cpu", GPU])
def test_a_compiled_objective_computes_the_same_in_one_graph(place, texts):
    kinds = ["auxiliary", *("decoder", "documents", "alibi", "span")[: 4 * TRIES_ALL]]
    for kind, found in compiled(1, place, texts, *kinds):
        assert found["worst"] < 1e-4, (kind, found)
        assert (found["breaks"], found["graphs"]) == (0, 1), (kind, found)


@pytest.mark.parametrize("place", PLACES)
def test_two_processes_compute_compiled_the_same(place, texts):
    if place == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("one GPU alone")
    for name, found in compiled(2, place, texts, *CASES):
        assert found["worst"] < 1e-4, (name, found)
        # Blocks are compiled as what is around them.
        assert found["attentions"] > 0, (name, found)
