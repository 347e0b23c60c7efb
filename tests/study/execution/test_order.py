"""The order of runs: arms alternate, in every second round backwards."""

import re
from pathlib import Path

import pytest

from sublayer.api.training import compare
from sublayer.study.execution.arm_runs import there_and_back
from tests.study.studies import FFN, settings_of, write_text


def test_every_arm_is_as_late_as_another_over_two_rounds() -> None:
    rounds = [there_and_back(3, number) for number in range(4)]
    assert rounds == [[0, 1, 2], [2, 1, 0], [0, 1, 2], [2, 1, 0]]
    places = [sum(order.index(arm) for order in rounds) for arm in range(3)]
    assert places == [4, 4, 4]


def order_of(text: str) -> list[str]:
    begun = re.findall(r"^\[(\d+)/\d+[^]]*\] ([^:]*): ", text, flags=re.MULTILINE)
    return list(dict(begun).values())


@pytest.mark.slow
def test_runs_of_arms_alternate_seed_by_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = settings_of(write_text(tmp_path / "river.txt"))
    compare("gpt", settings, vary=[FFN], match="time", seeds=3)
    assert order_of(capsys.readouterr().err) == [
        "ffn=gelu, seed 0",
        "ffn=swiglu, seed 0",
        "ffn=swiglu, seed 1",
        "ffn=gelu, seed 1",
        "ffn=gelu, seed 2",
        "ffn=swiglu, seed 2",
    ]


@pytest.mark.slow
def test_all_arms_try_a_setting_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = settings_of(write_text(tmp_path / "river.txt"))
    compare("gpt", settings, vary=[FFN], seeds=1, tune=["optimizer.lr=1e-3,1e-2"])
    tuning = [label for label in order_of(capsys.readouterr().err) if label.endswith("seed 1000")]
    assert tuning == [
        "ffn=gelu lr=1e-3, seed 1000",
        "ffn=swiglu lr=1e-3, seed 1000",
        "ffn=swiglu lr=1e-2, seed 1000",
        "ffn=gelu lr=1e-2, seed 1000",
    ]
