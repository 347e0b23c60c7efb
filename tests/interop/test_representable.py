"""What a class of transformers cannot represent is refused, also what nobody had thought of then."""

from typing import Any

import pytest

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.config.wording import choices_of
from sublayer.errors import ConfigError
from sublayer.interop.families import family_for
from sublayer.interop.representable import ENCODERS, GPT2, TRANSLATORS, Table

CHOICES = {
    name: (True, False) if field.annotation is bool else choices_of(field.annotation)
    for name, field in ModelConfig.model_fields.items()
    if field.annotation is bool or choices_of(field.annotation)
}
MODELS: dict[str, dict[str, Any]] = {
    "decoder": {"kind": "decoder"},
    "encoder": {"kind": "encoder", "norm_order": "post", "embedding_norm": True, "head": "transform"},
    "encoder-decoder": {
        "kind": "encoder-decoder",
        "positions": "sinusoidal",
        "sinusoids": "fairseq",
        "first_position": 2,
    },
}


@pytest.mark.parametrize("table", [GPT2, ENCODERS, TRANSLATORS])
def test_every_choice_of_a_model_is_in_the_table(table: Table) -> None:
    assert table.keys() == CHOICES.keys()
    assert all(set(values) <= set(CHOICES[name]) for name, values in table.items())


@pytest.mark.parametrize("name", [name for name in CHOICES if name != "kind"])
@pytest.mark.parametrize("kind", MODELS)
def test_a_value_that_no_table_has_is_refused_by_name(kind: str, name: str) -> None:
    config = resolve_model(ModelConfig(d_model=8, n_heads=2, **MODELS[kind]), vocab_size=9, context=8)
    assert family_for(config)
    with pytest.raises(ConfigError, match=f"represent .*model.{name} = something new"):
        family_for(config.model_copy(update={name: "something new"}))
