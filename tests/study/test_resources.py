"""The machine is described without torch."""

from pathlib import Path

import pytest

from sublayer.config.layers import load_recipe
from sublayer.study.resources import Resources, find_resources


def test_this_machine_has_memory_and_disk(tmp_path: Path) -> None:
    resources = find_resources("cpu", tmp_path)
    assert resources.device == "cpu"
    assert resources.memory_bytes is None or resources.memory_bytes > 1 << 20
    assert resources.disk_bytes is not None


@pytest.mark.parametrize(
    ("precision", "is_fast", "expected"),
    [
        ("auto", True, "bfloat16"),
        ("auto", False, "float32"),
        ("float32", True, "float32"),
        ("bfloat16", False, "bfloat16"),
    ],
)
def test_the_precision_is_the_recipe_s_or_what_the_machine_is_fast_at(
    precision: str, is_fast: bool, expected: str
) -> None:
    recipe = load_recipe("gpt", [f"train.precision={precision}"]).recipe
    assert Resources("cpu", None, None, has_fast_bfloat16=is_fast, cores=1).precision(recipe) == expected
