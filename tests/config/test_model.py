"""Blocks and sizes of a model, texts, lengths of spans; length, batches, selection of a run."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.config.architecture.block import Entry, parse_block
from sublayer.config.architecture.stacks import stacks
from sublayer.config.batch_shares import check_shares
from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.noise import spans_of
from sublayer.config.objectives.span import SpanObjective
from sublayer.config.resolve_model import DECODER_FIELDS, resolve_model
from sublayer.config.resolve_train import Length, length_in, resolve_train, run_steps
from sublayer.config.selection import is_better
from sublayer.config.text.split import parse_split
from sublayer.errors import ConfigError


def test_an_entry_has_a_variant_and_a_step_and_a_name_stands_for_its_list():
    entries = parse_block(("ffn:geglu*0.25", "attention*-2", "cross", "ffn"), default_ffn="relu")
    expected = (("ffn", "geglu", 0.25), ("attention", None, -2.0), ("cross", None, 1.0))
    assert entries == (*(Entry(*each) for each in expected), Entry("ffn", "relu", 1.0))
    half = Entry("ffn", "gelu", 0.5)
    macaron = parse_block("macaron", default_ffn="gelu")
    assert macaron == (half, Entry("attention", None, 1.0), half)


def resolved(**fields):
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


@pytest.mark.parametrize("fields, named", [
    ({"d_model": 15, "n_heads": 3}, r"even model\.d_model, not 15"),
    ({"d_model": 16, "d_embed": 9, "embedding_projection": "sum"}, r"even model\.d_embed, not 9"),
])  # fmt: skip
def test_sinusoids_take_an_even_width_of_the_field_that_sets_it(fields, named):
    with pytest.raises(ConfigError, match=named):
        resolved(positions="sinusoidal", **fields)


def test_sizes_follow_the_data_and_rows_are_rounded_up_to_a_multiple():
    for fields, sizes in (({}, (11, 13)), ({"vocab_size": 17, "max_len": 19}, (17, 19))):
        assert (resolved(**fields).vocab_size, resolved(**fields).max_len) == sizes
    for size, multiple, rounded in ((11, 8, 16), (11, 11, 11), (32_100, 128, 32_128)):  # T5's last
        config = ModelConfig(vocab_multiple=multiple)
        assert resolve_model(config, vocab_size=size, context=13).vocab_size == rounded


def test_shares_are_exact():
    assert parse_split("99.8 / 0.1 / 0.1") == tuple(Fraction(n, 1000) for n in (998, 1, 1))


def lengths(objective, context):
    given = objective.resolve(context)
    return given.raw_length, given.target_length


# Raw and target length of contexts from 512 down.
@pytest.mark.parametrize("density, mean_span, released", [
    (0.15, 3.0, [(568, 114), (284, 58), (141, 29), (70, 14), (34, 8)]),
    (0.15, 10.0, [(591, 99), (295, 49), (147, 25), (73, 13)]),
    (0.10, 3.0, [(548, 74), (273, 37), (136, 20), (68, 10), (33, 5)]),
    (0.50, 3.0, [(766, 512), (382, 256), (190, 128), (94, 64), (46, 32)]),
])  # fmt: skip
def test_lengths_are_those_of_the_released_code(density, mean_span, released):
    objective = SpanObjective(noise_density=density, mean_span=mean_span)
    assert [lengths(objective, 512 >> n) for n in range(len(released))] == released


def test_spans_and_noise_are_at_least_one_and_at_most_what_a_short_piece_holds():
    assert [spans_of(SpanObjective(), n) for n in (568, 2, 10)] == [(85, 28), (1, 1), (2, 1)]
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


@pytest.mark.parametrize("times, given, length", [
    # Ten evaluations of 2 s leave 574 s of 594 for steps of 0.5 s; at one in 4 steps, 4 of
    # them take 4 s.
    ((10, 0.5, 2.0), {}, Length(1148, 10)),
    ((10, 0.5, 2.0), {"evaluate_steps": 4}, Length(594, 10)),
    # Ten of 5.9 s would leave 0.4 s of 59.4; two, a fifth of them, leave 47.6.
    ((1, 0.3, 5.9), {}, Length(158, 2)),
    # A fifth of 59.4 s is 11.88 s, 0.297 of 40 s.
    ((1, 0.3, 40.0), {"scored_tokens": 1000}, Length(158, 1, 297)),
    ((1, 0.3, 40.0), {}, Length(64, 1)),
])  # fmt: skip
def test_minutes_hold_steps_evaluations_and_a_hundredth_of_other_work(times, given, length):
    unset = {"evaluate_steps": None, "scored_tokens": None}
    assert length_in(*times, **{**unset, **given}) == length
    with pytest.raises(ConfigError, match=r"train\.minutes = 0\.01 is too short: a step takes 1 s"):
        length_in(0.01, 1.0, 0.1, **unset)


@given(st.floats(0.01, 1e4), st.floats(1e-6, 1e4), st.floats(0.0, 1e5), st.integers(1, 10**6))
@settings(max_examples=300)
def test_evaluations_take_at_most_a_fifth_and_all_fits(minutes, step_s, evaluation_s, scored):
    try:
        length = length_in(minutes, step_s, evaluation_s, evaluate_steps=None, scored_tokens=scored)
    except ConfigError:
        assert step_s > 60 * minutes * 0.7 or evaluation_s / scored > 60 * minutes * 0.1
        return
    tokens = scored if length.evaluate_tokens is None else length.evaluate_tokens
    evaluations_s = length.n_evaluations * evaluation_s * tokens / scored
    assert length.steps >= 1 and 1 <= length.n_evaluations <= 10
    # One token is the least that can be scored.
    assert evaluations_s <= 0.2001 * 60 * minutes or tokens == 1
    assert length.steps * step_s + evaluations_s <= 60.001 * minutes


@pytest.mark.parametrize("setting, is_gpu, threads, expected", [
    ({}, False, 3, 12), ({}, True, 1, 16), ({"train.micro_batch_sequences": 5}, False, 2, 5),
    ({"model.d_model": 128, "train.batch_sequences": 64}, False, 2, 32),
])  # fmt: skip
def test_a_micro_batch_has_1024_tokens_for_each_thread(setting, is_gpu, threads, expected):
    whole = {"train.batch_sequences": 16, "data.context": 256}
    whole |= {"model.d_model": 256, "model.n_heads": 4, **setting}
    recipe = load_recipe("gpt", whole).recipe
    train = resolve_train(recipe, steps=10, valid_tokens=None, is_gpu=is_gpu, threads=threads)
    assert train.micro_batch_sequences == expected


def test_tasks_have_a_length_by_their_number_of_examples_unless_given():
    tasks = {"model.kind": "encoder", "objective.kind": "supervised", "data.tasks": "rte"}
    tasks |= {"data.path": "files", "data.context": 64, "train.batch_sequences": 32}
    given = load_recipe("gpt", {**tasks, "train.epochs": 5}).recipe
    unset = given.model_copy(update={"train": given.train.model_copy(update={"epochs": None})})
    # 2,400 examples, of which ten epochs are 24,000: 750 steps of 32.
    found = [run_steps(each, train_tokens=2400 * 64) for each in (unset, given)]
    assert (found, run_steps(unset, train_tokens=None)) == ([750, 375], None)


def check(n_processes, *settings, is_gpu=False):
    recipe = load_recipe("gpt", ["data.path=none.txt", "data.context=64", *settings]).recipe
    check_shares(recipe, n_processes, is_gpu=is_gpu)


@pytest.mark.parametrize("n_processes, settings, words, remedy", [
    (5, ["train.batch_sequences=4"], "is less than the 5 processes", "train.batch_sequences=5"),
    (5, ["train.batch_tokens=256"], "256, 4 windows, is less than", "train.batch_tokens=320"),
    (3, ["train.micro_batch_sequences=6", "train.batch_sequences=12", "train.exact=true"],
     "into 2 micro-batches, less than the 3 processes", "train.micro_batch_sequences=4"),
    (1, ["train.micro_batch_sequences=5", "train.batch_tokens=256"], "5 is more than a step has",
     "train.micro_batch_sequences=4"),
])  # fmt: skip
def test_too_little_is_refused_with_what_would_be_enough(n_processes, settings, words, remedy):
    with pytest.raises(ConfigError, match=f"{words}.* give {remedy}"):
        check(n_processes, *settings)
    check(n_processes, remedy, *settings[1:])


@pytest.mark.parametrize("is_gpu", [False, True])
def test_one_process_and_batches_that_do_not_divide_evenly_are_taken(is_gpu):
    check(1, "train.batch_sequences=1", "train.exact=true", is_gpu=is_gpu)
    for more in ((), ("train.exact=true",)):
        check(4, "train.batch_sequences=7", *more, is_gpu=is_gpu)


@pytest.mark.parametrize("values, best, better", [
    ({"loss": 1.0}, {"loss": 2.0}, True), ({"loss": 2.0}, {"loss": 2.0}, False),
    ({"loss": 3.0, "score": 0.9}, {"loss": 1.0, "score": 0.8}, True),
    ({"loss": 0.5, "score": 0.8}, {"loss": 1.0, "score": 0.8}, True),
    ({"loss": 1.5, "score": 0.8}, {"loss": 1.0, "score": 0.8}, False),
    ({"score": 0.8}, {"loss": 1.0, "score": 0.8}, False),
])  # fmt: skip
def test_a_metric_has_its_direction_and_the_loss_decides_between_equals(values, best, better):
    assert is_better("score" if "score" in values else "loss", values, best) is better
