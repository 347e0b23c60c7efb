import pytest

from sublayer.config.architecture.block import Entry, parse_block
from sublayer.errors import ConfigError


def test_a_name_stands_for_its_list():
    assert parse_block("macaron", default_ffn="relu") == (
        Entry("ffn", "relu", 0.5),
        Entry("attention", None, 1.0),
        Entry("ffn", "relu", 0.5),
    )
    assert parse_block("transformer", default_ffn="relu") == parse_block(
        ("attention", "ffn"), default_ffn="relu"
    )


def test_an_entry_may_name_its_variant_and_its_step():
    entries = parse_block(("ffn:geglu*0.25", "attention*-2", "cross", "ffn"), default_ffn="relu")
    assert [(entry.name, entry.variant, entry.step) for entry in entries] == [
        ("ffn", "geglu", 0.25),
        ("attention", None, -2.0),
        ("cross", None, 1.0),
        ("ffn", "relu", 1.0),
    ]


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("macron", "is not one of transformer, macaron"),
        ((), "is an empty list"),
        (("fnn",), "'fnn' is not one of attention, cross, ffn"),
        (("ffn:gelo",), "only ffn takes a variant, one of relu"),
        (("attention:gelu",), "only ffn takes a variant"),
        (("ffn*half",), "the step 'half' is not a number"),
        (("ffn*0",), "must be finite and not 0"),
        (("ffn*inf",), "must be finite and not 0"),
    ],
)
def test_a_block_without_meaning_is_refused(block: str | tuple[str, ...], says: str):
    with pytest.raises(ConfigError) as error:
        parse_block(block, default_ffn="relu")
    assert str(error.value).startswith("model.block")
    assert says in str(error.value)
