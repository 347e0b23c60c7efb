"""What has once been exported stays exported, as the same class."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.interop.huggingface.classes import FAMILIES, family_for
from tests.in_time import some_in_time
from tests.interop.random_models import EXPORTED, exported_fields, resolved, task_of


@pytest.mark.parametrize("name", some_in_time(EXPORTED, 3))
@settings(max_examples=60)
@given(st.data())
def test_a_model_that_was_exported_is_exported_as_the_same_class(
    name: str, data: st.DataObject
) -> None:
    config = resolved(data.draw(exported_fields(name)))
    assert family_for(config, task_of(name)) is FAMILIES[EXPORTED[name][0]]
