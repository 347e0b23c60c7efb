"""How translations are searched for: as the run's recipe says, or the command."""

import pytest

from sublayer.commands.beam import beam_settings
from sublayer.config.layers import load_recipe
from sublayer.decode.beam import BeamSettings
from sublayer.errors import ConfigError

NONE = {"beam": None, "rule": None, "penalty": None, "share": None, "more": None}


def test_a_recipe_says_how_it_is_translated_with_and_the_command_what_else() -> None:
    recipe = load_recipe("wmt14-base-transformer").recipe
    assert beam_settings(recipe, **NONE) == BeamSettings(beam=4, penalty=0.6)
    assert beam_settings(None, **NONE) == BeamSettings() == BeamSettings(5, "fairseq", 1.0, 0.0, 200.0)
    given = beam_settings(recipe, **{**NONE, "beam": 1, "penalty": 0.0, "rule": "gnmt", "share": 0.0, "more": 0.0})
    assert given == BeamSettings(1, "gnmt", 0.0, 0.0, 0.0)
    other = load_recipe("iwslt14-small-macaron", ["objective.length_rule=gnmt"]).recipe
    assert beam_settings(other, **NONE) == BeamSettings(rule="gnmt")


@pytest.mark.parametrize("setting", ["objective.beam=0", "objective.length_penalty=nan", "objective.length_rule=none"])
def test_values_without_meaning_are_refused_before_a_run(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        load_recipe("multi30k-tiny", [setting])


def test_values_without_meaning_are_refused() -> None:
    with pytest.raises(ConfigError, match="a length penalty of inf is not a number"):
        beam_settings(None, **{**NONE, "penalty": float("inf")})
