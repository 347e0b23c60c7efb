"""What ``sublayer train`` says of where a run ended."""

import json
from pathlib import Path

from sublayer.commands.train import _last_losses


def test_the_gap_is_to_the_mean_of_the_steps_since_the_evaluation_before(tmp_path: Path):
    lines = [
        ("train", 10, 9.0),
        ("valid", 10, 5.0),
        ("train", 20, 2.0),
        ("train", 21, 4.2),  # the last line is of a step alone
        ("valid", 21, 2.5),
    ]
    with (tmp_path / "metrics.jsonl").open("w") as file:
        for kind, step, loss in lines:
            line = {"kind": kind, "step": step, "loss": loss, "tokens": step, "seconds": step}
            file.write(f"{json.dumps(line)}\n")
    # (10 x 2 + 1 x 4.2) / 11
    (said,) = _last_losses(tmp_path, 2.25)
    assert said == (
        "at the end: valid 2.5000, 0.2500 above the best; train 2.2000 nats over the steps since "
        "the evaluation before, so that valid is 0.3000 above it"
    )
