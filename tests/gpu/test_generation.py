"""Generating on a GPU: the CPU's tokens, and no step that waits for the one before."""

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.decode.sample import GREEDY, Sampling, generate
from sublayer.model.build import build
from tests.gpu.kinds import NothingWaits

MODELS = {
    "learned": {},
    "rotary": {"positions": "rotary", "norm": "rms", "ffn": "swiglu"},
    "relative": {"positions": "relative"},
    "alibi": {"positions": "alibi"},
}


def make(name, device):
    config = ModelConfig(d_model=32, n_layers=2, n_heads=2, init_std=0.3, **MODELS[name])
    model = build(resolve_model(config, vocab_size=67, context=64), seed=0)
    return model.to(device).eval()


def continued(model, device, n_rows=3):
    prompt = torch.randint(67, (n_rows, 5), generator=torch.Generator().manual_seed(1))
    return list(generate(model, prompt.to(device), 30, GREEDY))


@pytest.mark.parametrize("name", MODELS)
def test_greedy_tokens_are_those_of_the_cpu(name, device, monkeypatch):
    found = torch.stack(continued(make(name, device), device)).cpu()
    monkeypatch.undo()
    assert torch.equal(found, torch.stack(continued(make(name, "cpu"), "cpu")))


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.8)], ids=["greedy", "drawn"])
@pytest.mark.parametrize("name", MODELS)
def test_a_cuda_graph_writes_the_tokens_of_steps_that_are_called(name, sampling, monkeypatch):
    # tests/decode/test_fixed_step.py has the same without a graph.
    model = make(name, "cuda")
    prompt = torch.arange(15, device="cuda").view(3, 5)
    found = []
    for is_replayed in (False, True):
        monkeypatch.setattr("sublayer.decode.sample.pays", lambda *_, it=is_replayed: it)
        tokens = generate(model, prompt, 100, sampling, seed=2, window="rolling")
        found.append(torch.stack(list(tokens)))
    assert torch.equal(*found)


@pytest.mark.parametrize("name", MODELS)
def test_no_step_of_generating_would_wait(name, monkeypatch):
    model = make(name, "cpu")
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with NothingWaits():
        continued(model, "cpu")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", MODELS)
def test_the_host_never_waits_for_the_gpu_while_it_generates(name):
    model = make(name, "cuda")
    continued(model, "cuda")
    prompt = torch.ones(3, 5, dtype=torch.int64, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        list(generate(model, prompt, 30, GREEDY))
    finally:
        torch.cuda.set_sync_debug_mode("default")
