"""Steps are measured beside as many processes as there will be runs."""

import json
import subprocess
from dataclasses import replace

import pytest

from sublayer.cli import main
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.study.arms import expand
from sublayer.study.budget.sized_arm import Sized, size_arm
from sublayer.study.execution.company import company
from tests.study.studies import TINY

SETTINGS = [*TINY, "train.steps=5", "train.precision=float32", "train.threads=1"]


def tiny_arm() -> Sized:
    arm, _ = expand(load_recipe("gpt", SETTINGS), ["model.ffn=gelu,relu"])
    return size_arm(arm, arm.loaded, 256)


@pytest.mark.slow
def test_others_take_steps_for_as_long_as_they_are_wanted() -> None:
    with company(tiny_arm(), 2, "cpu") as (first, second):
        # What takes steps without end does not end by itself.
        assert (first.poll(), second.poll()) == (None, None)
        # As where this process were gone.
        assert first.stdin is not None
        first.stdin.close()
        assert first.wait() == 0
    assert second.returncode not in (None, 0)


@pytest.mark.slow
def test_one_that_cannot_take_steps_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    impossible = replace(tiny_arm(), vocab_size=0)
    begun: list[subprocess.Popen[bytes]] = []
    with pytest.raises(ConfigError, match="of 2 processes .* one ended, .* fewer --jobs"):
        with company(impossible, 1, "cpu") as others:
            begun += others
    assert not begun


@pytest.mark.slow
def test_a_plan_of_runs_at_a_time_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--vary", "model.ffn=gelu,relu", "--seeds", "3", "--jobs", "2"]
    assert main(["plan", "gpt", *SETTINGS, *words, "--measure", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out.splitlines()[-1])
    gelu, relu = (arm["hours"] for arm in plan["arms"])
    assert max(gelu, relu) <= plan["total"]["hours"] < 3 * (gelu + relu)
    assert all(arm["is_extrapolated"] is False for arm in plan["arms"])
