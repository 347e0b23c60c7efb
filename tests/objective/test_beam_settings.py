"""How translations are searched for: as the run's recipe says, or the command."""

from typing import Any

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.decode.beam_settings import BeamSettings
from sublayer.errors import ConfigError
from sublayer.objective.translation.evaluation import beam_settings

NONE: dict[str, Any] = {}
BEAM = {
    "beam": 1,
    "length_penalty": 0.0,
    "length_rule": "gnmt",
    "max_length_ratio": 0.0,
    "max_length_offset": 0.0,
}


def test_a_recipe_says_how_it_is_translated_with_and_the_command_what_else() -> None:
    recipe = load_recipe("wmt14-base-transformer").recipe
    assert beam_settings(recipe, NONE) == BeamSettings(beam=4, penalty=0.6)
    assert (
        beam_settings(None, NONE) == BeamSettings() == BeamSettings(5, "fairseq", 1.0, 0.0, 200.0)
    )
    given = beam_settings(recipe, BEAM)
    assert given == BeamSettings(1, "gnmt", 0.0, 0.0, 0.0)
    other = load_recipe("iwslt14-small-macaron", ["objective.length_rule=gnmt"]).recipe
    assert beam_settings(other, NONE) == BeamSettings(rule="gnmt")


@pytest.mark.parametrize(
    "setting", ["objective.beam=0", "objective.length_penalty=nan", "objective.length_rule=none"]
)
def test_values_without_meaning_are_refused_before_a_run(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        load_recipe("multi30k-tiny", [setting])


def test_values_without_meaning_are_refused() -> None:
    with pytest.raises(ConfigError, match="a length penalty of inf is not a number"):
        beam_settings(None, {"length_penalty": float("inf")})
