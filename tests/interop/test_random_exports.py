"""Any model is exported with its certificate, or refused by the name of one of its fields."""

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.config.model import ModelConfig
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import ConfigError
from sublayer.interop.huggingface.classes import FAMILIES, family_for
from sublayer.interop.huggingface.exchange import export_huggingface
from sublayer.model.build import build
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task
from tests.breadth import examples, rows
from tests.interop.folders import with_random_vectors
from tests.interop.random_models import EXPORTED, any_model, exported_fields, resolved, task_of


def assert_exported(config: ResolvedModel, task: Task | None = None) -> None:
    model = with_random_vectors(build(config, seed=1))
    if task is not None:
        model.task = TaskSpec((task,), "pair", config.max_len)
    with tempfile.TemporaryDirectory() as folder:
        certificate = export_huggingface(model, Path(folder) / "exported")
    assert certificate["checked"]
    # Sinusoids and scaled tables are rounded to float32, and norms enlarge what is rounded.
    assert certificate["largest_difference"]["float64"] <= 1e-4 * certificate["largest_logit"]


def assert_names_a_field(problem: ConfigError) -> None:
    named = re.findall(r"model\.(\w+) = ", str(problem))
    assert named and set(named) <= ModelConfig.model_fields.keys()


@pytest.mark.parametrize("name", rows(EXPORTED, 6))
@examples(10)
@given(st.data())
def test_a_model_is_exported_with_the_same_logits_ever_after(
    name: str, data: st.DataObject
) -> None:
    config = resolved(data.draw(exported_fields(name)))
    assert family_for(config, task_of(name)) is FAMILIES[EXPORTED[name][0]]
    assert_exported(config, task_of(name))


@examples(60)
@given(any_model(most_changes=3))
def test_a_model_is_exported_with_the_same_logits_or_refused_by_field(
    config: ResolvedModel,
) -> None:
    try:
        assert_exported(config)
    except ConfigError as problem:
        assert_names_a_field(problem)
