"""Two GPUs train what one does, with whole copies of the weights and with parts."""

import json
import subprocess

import pytest
import torch

from sublayer.training.metrics import METRICS, read_metrics
from tests.made import TINY
from tests.torchrun import in_processes

SETTINGS = {**TINY, "model.dropout": 0.0, "train.steps": 6}
WAYS = {
    "whole copies": {},
    "parts": {"train.shard": "full"},
    "parts of adaptive rates": {"train.shard": "optimizer", "optimizer.kind": "lamb"},
    "exact": {"train.exact": True},
}


def train(n_processes, settings, path, out, place):
    given = {**SETTINGS, **settings, "data.path": str(path)}
    fields = [f"{key}={json.dumps(value)}" for key, value in given.items()]
    words = ["train", "gpt", *fields, "--out", out, "--device", place]
    done = subprocess.run(
        in_processes(n_processes, "sublayer", *words), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [row["loss"] for row in read_metrics(out / METRICS) if "loss" in row]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("way", WAYS)
def test_two_processes_train_what_one_does(way, place, texts, tmp_path):
    if place == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("one GPU alone")
    alone = train(1, WAYS[way], texts.plain, tmp_path / "one", place)
    together = train(2, WAYS[way], texts.plain, tmp_path / "two", place)
    assert together == pytest.approx(alone, rel=1e-4)
    assert len(alone) > 1
