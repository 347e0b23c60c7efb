"""The process of a run keeps to its share of the machine, also while it prepares its text."""

from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.recipe import Recipe
from sublayer.data.shards import workers
from sublayer.errors import DataError
from sublayer.study.execution import shared_data, worker
from sublayer.study.execution.job import Job, write_job


def test_a_text_is_encoded_by_as_many_processes_as_the_run_has_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def prepare(recipe: Recipe, pretrained: object) -> Any:
        found.append(workers.default_processes())
        raise DataError("it is not prepared")

    threads = torch.get_num_threads()
    recipe = load_recipe("gpt", [f"train.threads={threads}"]).recipe
    line = write_job(Job("one", tmp_path, recipe, recipe, {}, "cpu"))
    monkeypatch.setattr(workers, "cores", lambda: 64)
    monkeypatch.setattr(shared_data, "prepare_data", prepare)
    channel = SimpleNamespace(send=lambda message: None)
    end = worker._Worker(channel).attend(line, SimpleQueue())  # type: ignore[arg-type]
    assert end == {"end": "DataError", "text": "it is not prepared"}
    assert found == [min(threads, workers.MOST_PROCESSES)]
