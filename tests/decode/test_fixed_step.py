"""A step whose tensors stay in their places: the tokens and logits of the step that moves."""

import pytest
import torch

from sublayer.decode.fixed_step import FixedStepper
from sublayer.decode.sample import GREEDY, Sampling, generate
from sublayer.decode.step import Stepper
from sublayer.errors import ConfigError
from sublayer.model.context.cache import Cache
from tests.gpu.test_generation import MODELS, make
from tests.gpu.test_waiting import NothingWaits
from tests.in_time import some_in_time

DRAWN = Sampling(temperature=0.8, top_k=20)


def as_recorded(compute):
    """Record as a CUDA graph does: one computation, whose result is written in its place."""
    result = compute().clone()

    def replay():
        return result.copy_(compute())

    return replay


@pytest.fixture
def fixed(monkeypatch):
    """Take fixed steps, replayed by hand instead of by a graph; the rooms are returned."""
    rooms = []

    def noted(compute):
        rooms.append(compute)
        return as_recorded(compute)

    def switch(is_fixed):
        monkeypatch.setattr("sublayer.decode.sample.pays", lambda *_: is_fixed)
        monkeypatch.setattr("sublayer.decode.sample.record", noted)
        monkeypatch.setattr("sublayer.decode.fixed_step._FIRST_ROOM", 8)

    switch.rooms = rooms
    return switch


@pytest.mark.parametrize("n_rows", [1, 3])
@pytest.mark.parametrize("name", some_in_time(MODELS, 3))
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
@pytest.mark.parametrize("window", ["exact", "rolling"])
def test_the_tokens_are_those_of_steps_that_move(window, sampling, name, n_rows, fixed):
    model = make(name, "cpu").double()
    prompt = torch.randint(67, (n_rows, 5), generator=torch.Generator().manual_seed(1))
    found = []
    for is_fixed in (False, True):
        fixed(is_fixed)
        # Past the context of 40, which no room of twice the one before divides.
        tokens = generate(model, prompt, 60, sampling, seed=2, window=window, context=40)
        found.append(torch.stack(list(tokens)))
    assert torch.equal(found[1], found[0])
    # 8, 16, 32 and 40 keys.
    assert len(fixed.rooms) == 4


@pytest.mark.parametrize("name", MODELS)
def test_the_logits_are_those_of_steps_that_move(name):
    model = make(name, "cpu").double()
    draw = torch.Generator().manual_seed(1)
    prompt = torch.randint(67, (3, 5), generator=draw)
    caches = [Cache(model.config, 3, 64, torch.float64) for _ in range(2)]
    with torch.inference_mode():
        for cache in caches:
            model.last_logits(prompt, cache)
        fixed = FixedStepper(model, 3, caches[1], as_recorded)
        moving = Stepper(model, 3)
        for _ in range(59):
            tokens = torch.randint(67, (3,), generator=draw)
            expected = moving(tokens, caches[0])
            torch.testing.assert_close(fixed(tokens, caches[1]), expected, rtol=0, atol=1e-12)
        with pytest.raises(ConfigError, match="do not fit a cache"):
            fixed(tokens, caches[1])
    assert caches[1].length == 64


def test_doing_a_step_twice_changes_nothing():
    model = make("rotary", "cpu").double()
    cache = Cache(model.config, 2, 64, torch.float64)
    times = []

    def thrice(compute):
        times.append([compute().clone() for _ in range(3)])
        return compute

    with torch.inference_mode():
        model.last_logits(torch.ones(2, 5, dtype=torch.long), cache)
        fixed = FixedStepper(model, 2, cache, thrice)
        logits = fixed(torch.tensor([3, 4]), cache)
    (found,) = times
    assert all(torch.equal(each, logits) for each in found)


@pytest.mark.parametrize("name", MODELS)
def test_no_fixed_step_would_wait_for_a_gpu(name, fixed, monkeypatch):
    model = make(name, "cpu")
    fixed(True)
    # By the operators that a GPU takes.
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with NothingWaits():
        list(generate(model, torch.ones(3, 5, dtype=torch.long), 30, GREEDY))
    assert fixed.rooms


def test_a_cache_that_was_cleared_is_as_new():
    model = make("learned", "cpu")
    rows = torch.arange(12).view(2, 6)
    found = []
    cleared = Cache(model.config, 2, 16)
    with torch.inference_mode():
        mask = torch.ones(2, 6, dtype=torch.bool)
        mask[0, 0] = False
        model(rows, mask, cache=cleared)
        cleared.clear()
        for cache in (Cache(model.config, 2, 16), cleared):
            model.last_logits(rows[:, :2], cache)
            found.append(Stepper(model, 2)(rows[:, 2], cache))
    assert torch.equal(*found)
