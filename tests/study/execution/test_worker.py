"""The process of one run keeps to its share of the machine, also while it prepares its text."""

from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.recipe import Recipe
from sublayer.data.shards import workers
from sublayer.errors import DataError
from sublayer.runs import session
from sublayer.study.execution import worker
from sublayer.study.execution.job import Job, write_job


def test_a_text_is_encoded_by_as_many_processes_as_the_run_has_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def prepare(recipe: Recipe) -> Any:
        found.append(workers.default_processes())
        raise DataError("it is not prepared")

    threads = torch.get_num_threads()
    recipe = load_recipe("gpt", [f"train.threads={threads}"]).recipe
    line = write_job(Job("one", tmp_path, recipe, recipe, {}, "cpu"))
    monkeypatch.setattr(workers, "cores", lambda: 64)
    monkeypatch.setattr(session, "prepare_data", prepare)
    monkeypatch.setattr(worker, "read_line", lambda at_end: line)
    with pytest.raises(DataError, match="it is not prepared"):
        worker._make_run(None)  # type: ignore[arg-type]
    assert found == [min(threads, workers.MOST_PROCESSES)]
