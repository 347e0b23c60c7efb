"""The recipe that fine-tuning puts together, and what cannot be said to it."""

import pytest

from sublayer.config.layering.finetune import load_finetune
from sublayer.errors import ConfigError


def test_an_objective_that_answers_no_task_is_refused():
    with pytest.raises(ConfigError, match="objective.kind = masked answers no task: leave it out"):
        load_finetune("albert-small", ["rte"], ".", ["objective.kind=masked"])
