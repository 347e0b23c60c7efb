"""Which of two evaluations becomes the model."""

import pytest

from sublayer.config.selection import is_better


@pytest.mark.parametrize(
    ("name", "values", "best", "better"),
    [
        ("loss", {"loss": 1.0}, {"loss": 2.0}, True),
        ("loss", {"loss": 2.0}, {"loss": 2.0}, False),
        ("score", {"loss": 3.0, "score": 0.9}, {"loss": 1.0, "score": 0.8}, True),
        ("score", {"loss": 0.5, "score": 0.8}, {"loss": 1.0, "score": 0.8}, True),
        ("score", {"loss": 1.5, "score": 0.8}, {"loss": 1.0, "score": 0.8}, False),
        ("score", {"score": 0.8}, {"loss": 1.0, "score": 0.8}, False),
        ("score", {"loss": 0.1, "score": 0.7}, {"loss": 1.0, "score": 0.8}, False),
    ],
)
def test_a_metric_has_its_direction_and_the_loss_decides_between_equals(
    name: str, values: dict[str, float], best: dict[str, float], better: bool
) -> None:
    assert is_better(name, values, best) is better
