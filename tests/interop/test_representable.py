"""What a class of transformers cannot represent is refused, also what came after its table."""

from pathlib import Path
from typing import Any

import pytest

from sublayer.config.fields.messages import choices_of
from sublayer.config.model import ModelConfig
from sublayer.config.resolved import ResolvedModel
from sublayer.config.table import field
from sublayer.errors import ConfigError
from sublayer.interop.huggingface.classes import FAMILIES, family_for
from sublayer.interop.huggingface.exchange import export_huggingface
from sublayer.interop.huggingface.representable import Rule
from sublayer.model.build import build
from tests.interop.random_models import EXPORTED, resolved, task_of

CHOICES = {
    name: (True, False) if field.annotation is bool else choices_of(field.annotation)
    for name, field in ModelConfig.model_fields.items()
    if field.annotation is bool or choices_of(field.annotation)
}


class LaterConfig(ResolvedModel):
    """A model's config with a field that came later."""

    later: int = field(3, "What no table has.")


def config_of(name: str, **changes: Any) -> ResolvedModel:
    """Build a config that is exported as a class, with changes."""
    usual = {each: values[0] for each, values in EXPORTED[name][1].items()}
    return resolved({**usual, **changes})


@pytest.mark.parametrize("name", FAMILIES)
def test_every_field_of_a_model_is_in_the_table_of_every_class(name: str) -> None:
    table = FAMILIES[name].table
    assert table.keys() == ModelConfig.model_fields.keys()
    for each, allowed in table.items():
        if each in CHOICES and not isinstance(allowed, Rule):
            # Of a number among choices, what other systems have is its default.
            assert set(allowed) <= {*CHOICES[each], ModelConfig.model_fields[each].default}


@pytest.mark.parametrize("each", [each for each in CHOICES if each != "kind"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_value_that_no_table_has_is_refused_by_name(name: str, each: str) -> None:
    config = config_of(name)
    assert family_for(config, task_of(name)) is FAMILIES[name]
    with pytest.raises(ConfigError, match=f"represent .*model.{each} = something new"):
        family_for(config.model_copy(update={each: "something new"}), task_of(name))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_field_that_no_table_has_is_refused_by_name(name: str) -> None:
    later = LaterConfig(**dict(config_of(name)))
    with pytest.raises(ConfigError, match="represent model.later = 3:"):
        family_for(later)


def test_a_kind_that_no_class_has_is_refused_by_name() -> None:
    later = config_of("gpt2").model_copy(update={"kind": "something new"})
    with pytest.raises(ConfigError, match="model.kind = something new"):
        family_for(later)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    # The first segment has a vector, which a decoder adds to every token.
    ("gpt2", {"segments": "both"}, "model.segments = both"),
    ("marian", {"segments": "both"}, "model.segments = both"),
    ("gpt2", {"d_embed": 4}, "model.d_embed = 4"),
    ("m2m_100", {"first_position": 24}, "model.first_position = 24"),
    ("m2m_100", {"d_model": 2, "n_heads": 1}, "model.d_model = 2"),
    ("m2m_100", {"positions": "learned"}, "model.positions = learned"),
    ("m2m_100", {"sinusoids": "interleaved"}, "model.sinusoids = interleaved"),
    ("marian", {"sinusoids": "interleaved"}, "model.sinusoids = interleaved"),
    ("marian", {"norm_eps": 1e-6}, "model.norm_eps = 1e-06"),
    (
        "marian",
        {"decoder_block": ("attention", "cross*0.5", "ffn")},
        "model.decoder_block = ['attention', 'cross*0.5', 'ffn:relu']",
    ),
    (
        "marian",
        {"decoder_block": ("attention", "cross", "ffn:gelu")},
        "model.ffn = gelu, relu",
    ),
    ("marian", {"block": "macaron"}, "model.block = macaron"),
    ("bert", {"norm": "none"}, "model.norm = none"),
    ("t5", {"bias": True}, "model.bias = true"),
    ("t5", {"attention_scale": "sqrt"}, "model.attention_scale = sqrt"),
    ("t5", {"norm": "layer"}, "model.norm = layer"),
    ("t5", {"ffn": "swiglu", "swish_beta": 0.5}, "model.swish_beta = 0.5"),
    ("m2m_100", {"output_scale": "sqrt"}, "model.output_scale = sqrt"),
    # transformers has no class of spans that there may be none of.
    ("bert for spans", {"span_head": "joint"}, "model.span_head = joint"),
    ("albert for spans", {"span_head": "joint"}, "model.span_head = joint"),
    ("bert for spans", {"label_outputs": 2}, "model.label_outputs = 2"),
    ("bert for labels", {"pooler": "none"}, "model.pooler = none"),
    ("gpt2", {"span_head": "independent"}, "model.span_head = independent"),
    ("t5", {"label_outputs": 2}, "model.label_outputs = 2"),
]


@pytest.mark.parametrize(("name", "changes", "named"), REFUSED)
def test_only_the_fields_that_stand_in_the_way_are_named(
    name: str, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        family_for(config_of(name, **changes))
    assert f"represent {named}: the model cannot be exported" in str(caught.value)


def test_a_vocabulary_too_small_for_the_classs_ids_is_refused_by_field(tmp_path: Path) -> None:
    model = build(config_of("m2m_100", vocab_size=2), seed=0)
    with pytest.raises(ConfigError, match="model.vocab_size = 2 has no room for eos_token_id = 2"):
        export_huggingface(model, tmp_path / "exported")
    assert not list(tmp_path.iterdir())
