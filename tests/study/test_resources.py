"""The machine is described without torch."""

from pathlib import Path

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.study.budget.resources import Resources, find_resources


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
    assert (
        Resources("cpu", None, None, has_fast_bfloat16=is_fast, cores=1).precision(recipe)
        == expected
    )


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, True),
        ("ALL", True),
        ("AVX2", False),
        ("avx512_core", False),
        ("AVX512_CORE_BF16", True),
        ("AVX512_CORE_AMX", True),
    ],
)
@pytest.mark.parametrize("name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_a_limit_of_onednn_takes_bfloat16_away(
    name: str, limit: str | None, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2 avx512_bf16\n")
    monkeypatch.setattr("sublayer.study.budget.resources._CPUINFO", tmp_path / "cpuinfo")
    for each in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(each, raising=False)
    if limit is not None:
        monkeypatch.setenv(name, limit)
    assert find_resources("cpu").has_fast_bfloat16 == expected
