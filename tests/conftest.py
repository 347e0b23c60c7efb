"""Shared by every test: shapes checked at run time, one thread, no network, and the real data where there is some."""

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import jaxtyping

jaxtyping.install_import_hook(
    ["sublayer.model", "sublayer.objective", "sublayer.evaluate", "sublayer.inspect", "sublayer.data.batches"],
    "beartype.beartype",
)

import pytest
import torch

torch.set_num_threads(1)

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real texts, from SUBLAYER_TEST_DATA or beside the project; skips where it is missing."""
    folder = Path(os.environ.get("SUBLAYER_TEST_DATA", PROJECT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no folder of real texts at {folder}; name one in SUBLAYER_TEST_DATA")
    return folder
