"""The progress of a run, as the stage that it is."""

from typing import Any

import pytest

from sublayer.system.stage_displays import PlainStages
from sublayer.system.stages import shown_by
from sublayer.training.progress import ShownProgress, Status


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(steps: list[tuple[float, int]], **status: Any) -> list[str]:
    """The lines in a pipe of a run of 100 steps, of which some end at given seconds."""
    lines: list[str] = []
    clock = Clock()
    stages = PlainStages(lines.append, clock, has_thread=False)
    with shown_by(stages), ShownProgress(clock) as progress:
        for at, step in steps:
            while clock.now < at:
                clock.now += 0.5
                stages.tick()
            progress.update(Status(step, 100, 2.5, 1000.0, **status))
    return lines


def test_the_first_and_the_last_step_have_a_line_each() -> None:
    assert lines_of([(0.5, 1), (0.9, 50), (0.9, 100)]) == [
        "step 1/100  loss 2.5000  1,000 tokens/s",
        "step 100/100  loss 2.5000  1,000 tokens/s  ETA 0:00",
    ]


def test_slow_steps_have_a_line_every_ten_seconds() -> None:
    lines = lines_of([(0.5, 1), (40.0, 2)])
    assert lines[0] == "step 1/100  loss 2.5000  1,000 tokens/s"
    assert len(lines) == 5
    assert lines[-1] == "about 1:04:31 to go, by the first steps"


@pytest.mark.parametrize("valid", [None, 2.25])
def test_what_is_left_follows_from_the_steps_that_were_seen(valid: float | None) -> None:
    lines = lines_of([(0.0, 20), (30.0, 50), (60.0, 80), (80.0, 100)], valid_loss=valid)
    # After 60 steps in a minute, 20 are left.
    assert any("step 80/100" in line and "ETA 0:20" in line for line in lines)
    steps = [line for line in lines if line.startswith("step ")]
    assert all(("valid 2.2500" in line) == (valid is not None) for line in steps)
