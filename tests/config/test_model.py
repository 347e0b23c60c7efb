"""Blocks of a model, its sizes resolved, texts and their split, and lengths of spans."""

import math
from fractions import Fraction

import pytest

from sublayer.config.architecture.block import Entry, parse_block
from sublayer.config.architecture.stacks import stacks
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.noise import spans_of
from sublayer.config.objectives.span import SpanObjective
from sublayer.config.resolve_model import DECODER_FIELDS, resolve_model
from sublayer.config.text.corpora import source_names
from sublayer.config.text.split import parse_split
from sublayer.errors import ConfigError


def test_an_entry_has_a_variant_and_a_step_and_a_name_stands_for_its_list():
    entries = parse_block(("ffn:geglu*0.25", "attention*-2", "cross", "ffn"), default_ffn="relu")
    assert entries == (
        Entry("ffn", "geglu", 0.25),
        Entry("attention", None, -2.0),
        Entry("cross", None, 1.0),
        Entry("ffn", "relu", 1.0),
    )
    half = Entry("ffn", "gelu", 0.5)
    macaron = parse_block("macaron", default_ffn="gelu")
    assert macaron == (half, Entry("attention", None, 1.0), half)


def resolved(**fields: object) -> ModelConfig:
    return resolve_model(ModelConfig.model_validate(fields), vocab_size=11, context=13)


def test_nothing_is_left_unset_and_a_decoders_block_is_written_out():
    unset = {name for name, value in resolved() if value is None}
    assert unset == set(DECODER_FIELDS)
    model = resolved(kind="encoder-decoder", block=["ffn*0.5", "attention", "ffn"], ffn="relu")
    assert None not in dict(model).values()
    assert model.decoder_block == ("ffn:relu*0.5", "attention", "cross", "ffn:relu")
    assert stacks(model) == stacks(model.model_copy(update={"decoder_block": None}))


def test_widths_and_dropout_follow_the_model_unless_given():
    model = resolved(d_model=30, n_heads=5, dropout=0.3)
    assert (model.d_head, model.d_ff, model.d_embed) == (6, 120, 30)
    dropout = (model.dropout_attention, model.dropout_embedding, model.dropout_ffn)
    assert dropout == (0.3, 0.3, 0.0)
    given = {"d_head": 4, "d_ff": 17, "d_embed": 3}
    given |= {"dropout_attention": 0.0, "dropout_ffn": 0.2, "dropout_embedding": 0.0}
    model = resolved(d_model=30, n_heads=7, dropout=0.3, **given)
    assert given.items() <= model.model_dump().items()


def test_sizes_follow_the_data_and_rows_are_rounded_up_to_a_multiple():
    assert (resolved().vocab_size, resolved().max_len) == (11, 13)
    given = resolved(vocab_size=17, max_len=19)
    assert (given.vocab_size, given.max_len) == (17, 19)
    assert resolved(vocab_multiple=8).vocab_size == 16
    assert resolved(vocab_multiple=11).vocab_size == 11
    assert resolved(vocab_multiple=4, vocab_size=20).vocab_size == 20
    # T5's 32,000 pieces and 100 sentinels.
    t5 = resolve_model(ModelConfig(vocab_multiple=128), vocab_size=32_100, context=512)
    assert t5.vocab_size == 32_128


def test_sources_have_names_and_shares_are_exact():
    assert (source_names(None), source_names("a")) == ((), ("a",))
    assert source_names(("a", "b")) == source_names({"a": 1.0, "b": 2.0}) == ("a", "b")
    assert parse_split("99.8 / 0.1 / 0.1") == tuple(Fraction(n, 1000) for n in (998, 1, 1))


CONTEXTS = (512, 256, 128, 64, 32)
RELEASED = {
    (0.15, 3): [(568, 114), (284, 58), (141, 29), (70, 14), (34, 8)],
    (0.15, 10): [(591, 99), (295, 49), (147, 25), (73, 13)],
    (0.10, 3): [(548, 74), (273, 37), (136, 20), (68, 10), (33, 5)],
    (0.50, 3): [(766, 512), (382, 256), (190, 128), (94, 64), (46, 32)],
}
"""Raw and target length by density and mean span, for each context."""


def lengths(objective: SpanObjective, context: int) -> tuple[int | None, int | None]:
    given = objective.resolve(context)
    return given.raw_length, given.target_length


@pytest.mark.parametrize(("density", "mean_span"), RELEASED)
def test_lengths_are_those_of_the_released_code(density, mean_span):
    objective = SpanObjective(noise_density=density, mean_span=float(mean_span))
    expected = RELEASED[density, mean_span]
    found = [lengths(objective, context) for context in CONTEXTS[: len(expected)]]
    assert found == expected


def test_spans_and_noise_are_at_least_one_and_at_most_what_a_short_piece_holds():
    objective = SpanObjective()
    assert [spans_of(objective, n) for n in (568, 2, 10)] == [(85, 28), (1, 1), (2, 1)]
    assert spans_of(SpanObjective(noise_density=0.9, mean_span=1.0), 10) == (9, 1)
    with pytest.raises(ConfigError, match="50 spans, between which there are 13"):
        SpanObjective(noise_density=0.8, mean_span=1.0).resolve(64)


def test_a_prefix_fits_the_context_and_chance_leaves_room_for_its_noise():
    assert lengths(SpanObjective(noise="prefix"), 512) == (512, 512)
    raw, target = lengths(SpanObjective(noise="iid"), 512)
    # Of 511 tokens 77 are noise on average, in 65 runs, and an end.
    mean = 511 * 0.15 + 0.15 + 510 * 0.15 * 0.85 + 1
    assert raw == 511
    assert mean + 4 * math.sqrt(511 * 0.15 * 0.85) < target < mean + 62  # type: ignore[operator]
