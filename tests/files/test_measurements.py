"""What was measured is kept under all that it depends on, and a damaged cache stops nothing."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sublayer.files.measurements import Measurement, keep, recall


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_was_measured_is_recalled_with_its_time():
    assert recall("speed", 2) is None
    assert keep("speed", [1.5, 2], clock=lambda: 77.0) == Measurement((1.5, 2.0), 77.0)
    keep("other", [3.0])
    assert recall("speed", 2) == Measurement((1.5, 2.0), 77.0)
    keep("speed", [4.0, 5.0], clock=lambda: 78.0)
    assert recall("speed", 2) == Measurement((4.0, 5.0), 78.0)
    assert recall("speed", 1) is None


@pytest.mark.parametrize(
    "name",
    [
        "ONEDNN_MAX_CPU_ISA",
        "DNNL_MAX_CPU_ISA",
        "ATEN_CPU_CAPABILITY",
        "MKL_ENABLE_INSTRUCTIONS",
        "ONEDNN_DEFAULT_FPMATH_MODE",
        "OMP_NUM_THREADS",
        "OMP_PROC_BIND",
        "KMP_AFFINITY",
        "GOMP_SPINCOUNT",
        "LD_PRELOAD",
    ],
)
def test_another_limit_of_the_processor_is_another_machine(name, monkeypatch):
    monkeypatch.delenv(name, raising=False)
    keep("speed", [1.0])
    monkeypatch.setenv(name, "AVX2")
    assert recall("speed", 1) is None
    keep("speed", [2.0])
    monkeypatch.delenv(name)
    assert recall("speed", 1).values == (1.0,)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["values", "at", "x"]), inner)
    ),
    max_leaves=8,
)


@given(entry=JSON, whole=st.booleans())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_entry_of_any_kind_is_numbers_or_is_measured_again(cache, entry, whole):
    keep("speed", [1.0])
    (key,) = json.loads((cache / "measured.json").read_text())
    (cache / "measured.json").write_text(
        json.dumps(entry if whole else {key: entry, "another": entry})
    )
    found = recall("speed", 1)
    assert found is None or (found.values[0] >= 0 and found.at >= 0)
    keep("speed", [3.0])
    assert recall("speed", 1).values == (3.0,)
    (cache / "measured.json").unlink()


@given(content=st.binary(max_size=200))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_cache_is_written_anew(cache, content):
    cache.mkdir(exist_ok=True)
    (cache / "measured.json").write_bytes(content)
    assert recall("speed", 1) is None
    keep("speed", [3.0])
    assert recall("speed", 1).values == (3.0,)


def test_a_cache_that_cannot_be_written_or_read_stops_nothing(cache):
    cache.write_text("a file")
    assert recall("speed", 1) is None
    assert keep("speed", [3.0]).values == (3.0,)
    cache.unlink()
    (cache / "measured.json").mkdir(parents=True)
    assert recall("speed", 1) is None
    assert keep("speed", [3.0]).values == (3.0,)
    (cache / "measured.json").rmdir()
    os.mkfifo(cache / "measured.json")
    assert recall("speed", 1) is None


def test_the_oldest_measurements_give_way(cache, monkeypatch):
    monkeypatch.setattr("sublayer.files.measurements._MOST", 3)
    for n in range(5):
        keep(f"speed {n}", [1.0], clock=lambda n=n: float(n))
    assert [recall(f"speed {n}", 1) is not None for n in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]
