"""A step reads nothing back from its device: the host goes on while the device computes."""

import pytest
import torch

from tests.gpu.kinds import KINDS, OPTIMIZERS, NothingWaits, open_session

N_WARMING, N_WATCHED = 3, 3


def compute(train_step, step):
    """Compute what a step does between the copy of its batch and the end of its update."""
    objective = train_step.objective.train()
    objective.begin(step, train_step.recipe.train.steps)
    batch = train_step.batches.batch(step)
    with NothingWaits():
        totals = objective(batch)
        sum(totals.values()).backward()


@pytest.mark.parametrize("kind", KINDS)
def test_no_pass_of_an_objective_would_wait(kind, texts, monkeypatch):
    train_step = open_session(texts, KINDS[kind], "cpu").train_step
    # By the operators that a GPU takes.
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    compute(train_step, 0)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_update_would_wait(name, texts):
    train_step = open_session(texts, OPTIMIZERS[name], "cpu").train_step
    train_step(0)
    train_step._accumulate(1, train_step.prepare(1))
    with NothingWaits():
        train_step.optimizer.step()


def test_what_waits_is_seen():
    with pytest.raises(AssertionError, match="bincount"), NothingWaits():
        torch.bincount(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NothingWaits():
        torch.ones(1).item()
    with pytest.raises(AssertionError, match="lift_fresh"), NothingWaits():
        torch.tensor([1, 2])


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize(
    "settings", [*KINDS.values(), *OPTIMIZERS.values()], ids=[*KINDS, *OPTIMIZERS]
)
def test_the_host_never_waits_for_the_gpu_in_a_step(settings, texts):
    train_step = open_session(texts, settings, "cuda").train_step
    for step in range(N_WARMING):
        train_step(step)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(N_WARMING, N_WARMING + N_WATCHED):
            train_step(step)
    finally:
        torch.cuda.set_sync_debug_mode("default")
