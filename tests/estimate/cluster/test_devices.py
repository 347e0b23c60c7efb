"""The table of devices: units, precisions, names."""

import pytest

from sublayer.errors import ConfigError
from sublayer.estimate.cluster.devices import DEVICES, check_device


def test_the_figures_of_an_h100_are_those_of_its_datasheet() -> None:
    h100 = DEVICES["h100"]
    assert h100.memory_bytes == 80_000_000_000
    # 1,979 teraflops with sparsity: half of it for dense matrices.
    assert 2 * h100.peak("bfloat16") == pytest.approx(1979e12, rel=1e-3)
    assert h100.peak("float32") == pytest.approx(67e12, rel=2e-3)
    # 900 GB/s in both directions.
    assert 2 * h100.link_bytes_per_s == 900e9
    assert h100.memory_bytes_per_s == 3.35e12


@pytest.mark.parametrize("name", DEVICES)
def test_every_device_has_a_source_and_computes_faster_in_bfloat16(name: str) -> None:
    device = DEVICES[name]
    assert device.source
    assert device.peak("bfloat16") > device.peak("float32")
    assert device.memory_bytes_per_s > device.link_bytes_per_s


def test_an_unknown_device_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"'h20' is not one of .*: did you mean h200\?"):
        check_device("h20")
