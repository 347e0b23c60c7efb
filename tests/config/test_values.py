"""Blocks, sizes, lengths and batches of a run; values and contradictions refused by field."""

import json
import math
import types
from fractions import Fraction
from typing import Annotated, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sublayer.config import resolve as resolving
from sublayer.config.data import parse_split
from sublayer.config.load import load_recipe
from sublayer.config.model import (
    Entry,
    ModelConfig,
    parallel_entries,
    parse_block,
    with_cross,
    write_block,
)
from sublayer.config.objective import SpanObjective
from sublayer.config.recipe import TABLES, Recipe, keys
from sublayer.config.resolve import Length, length_in, resolve_model, resolve_train
from sublayer.config.stacks import stacks
from sublayer.config.table import Table
from sublayer.config.train import is_better
from sublayer.errors import ConfigError, SublayerError
from sublayer.study.arms import Arm
from sublayer.study.budget import Resources
from sublayer.study.cost_plan import make_plan
from sublayer.study.study_file import ArmTable, ScaleTable, StudyFile
from sublayer.values import LONGEST_VALUE, show
from tests.breadth import examples


def test_an_entry_has_a_variant_and_a_step_and_a_name_stands_for_its_list():
    entries = parse_block(("ffn:geglu*0.25", "attention*-2", "cross", "ffn"), default_ffn="relu")
    expected = (("ffn", "geglu", 0.25), ("attention", None, -2.0), ("cross", None, 1.0))
    assert entries == (*(Entry(*each) for each in expected), Entry("ffn", "relu", 1.0))
    half, macaron = Entry("ffn", "gelu", 0.5), parse_block("macaron", default_ffn="gelu")
    assert macaron == (half, Entry("attention", None, 1.0), half)


def test_entries_joined_by_a_plus_are_parallel_and_cross_attention_follows_them():
    written = ("attention*2.0+ffn:relu*0.5", "ffn:relu")
    block = parse_block(("attention*0.2e+1+ffn*0.5", "ffn"), default_ffn="relu")
    assert block[1] == Entry("ffn", "relu", 0.5, is_joined=True)
    assert parallel_entries(block) == (range(2), range(2, 3)) and write_block(block) == written
    assert write_block(with_cross(block)) == (written[0], "cross*2.0", written[1])
    model = resolved(kind="encoder-decoder", block=list(written), share="attention")
    assert stacks(model) == stacks(model.model_copy(update={"decoder_block": None}))


def test_embedding_norms_of_earlier_files_are_read():
    for old, value in ((True, "affine"), (False, "none"), ("plain", "plain")):
        assert resolved(embedding_norm=old).embedding_norm == value


def resolved(**fields):
    return resolve_model(ModelConfig.model_validate(fields), vocab_size=11, context=13)


def test_nothing_is_left_unset_and_a_decoders_block_is_written_out():
    assert {name for name, value in resolved() if value is None} == set(resolving.DECODER_FIELDS)
    model = resolved(kind="encoder-decoder", block=["ffn*0.5", "attention", "ffn"], ffn="relu")
    assert None not in dict(model).values()
    assert model.decoder_block == ("ffn:relu*0.5", "attention", "cross", "ffn:relu")
    assert stacks(model) == stacks(model.model_copy(update={"decoder_block": None}))


def test_widths_and_dropout_follow_the_model_unless_given():
    model = resolved(d_model=30, n_heads=5, dropout=0.3)
    assert (model.d_head, model.d_ff, model.d_embed) == (6, 120, 30)
    assert (model.dropout_attention, model.dropout_embedding, model.dropout_ffn) == (0.3, 0.3, 0.0)
    given = {"d_head": 4, "d_ff": 17, "d_embed": 3}
    given |= {"dropout_attention": 0.0, "dropout_ffn": 0.2, "dropout_embedding": 0.0}
    model = resolved(d_model=30, n_heads=7, dropout=0.3, **given)
    assert given.items() <= model.model_dump().items()
    # Without attention no width of a head is computed with, but it is one that a recipe takes.
    for narrow in ({"block": ["ffn"]}, {"kind": "lstm"}):
        assert ModelConfig.model_validate(dict(resolved(d_model=3, **narrow))).d_head == 1


@pytest.mark.parametrize("fields, named", [
    ({"d_model": 15, "n_heads": 3}, r"even model\.d_model, not 15"),
    ({"d_model": 16, "d_embed": 9, "embedding_projection": "sum"}, r"even model\.d_embed, not 9"),
])  # fmt: skip
def test_sinusoids_take_an_even_width_of_the_field_that_sets_it(fields, named):
    with pytest.raises(ConfigError, match=named):
        resolved(positions="sinusoidal", **fields)


def test_sizes_follow_the_data_rows_are_rounded_up_to_a_multiple_and_shares_are_exact():
    assert parse_split("99.8 / 0.1 / 0.1") == tuple(Fraction(n, 1000) for n in (998, 1, 1))
    for fields, sizes in (({}, (11, 13)), ({"vocab_size": 17, "max_len": 19}, (17, 19))):
        assert (resolved(**fields).vocab_size, resolved(**fields).max_len) == sizes
    for size, multiple, rounded in ((11, 8, 16), (11, 11, 11), (32_100, 128, 32_128)):  # T5's last
        config = ModelConfig(vocab_multiple=multiple)
        assert resolve_model(config, vocab_size=size, context=13).vocab_size == rounded


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


def test_spans_and_noise_are_at_least_one_and_fit_a_short_piece_a_prefix_or_chance():
    assert [SpanObjective().spans(n) for n in (568, 2, 10)] == [(85, 28), (1, 1), (2, 1)]
    assert SpanObjective(noise_density=0.9, mean_span=1.0).spans(10) == (9, 1)
    with pytest.raises(ConfigError, match="50 spans, with 13 tokens between them"):
        SpanObjective(noise_density=0.8, mean_span=1.0).resolve(64)
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
    found = [resolving.run_steps(each, train_tokens=2400 * 64) for each in (unset, given)]
    assert (found, resolving.run_steps(unset, train_tokens=None)) == ([750, 375], None)


def check(n_processes, *settings, is_gpu=False):
    recipe = load_recipe("gpt", ["data.path=none.txt", "data.context=64", *settings]).recipe
    resolving.check_shares(recipe, n_processes, is_gpu=is_gpu)


@pytest.mark.parametrize("n_processes, settings, words, remedy", [
    (5, ["train.batch_sequences=4"], "is too small for 5 processes", "train.batch_sequences=5"),
    (5, ["train.batch_tokens=256"], "256, 4 windows, is too small for", "train.batch_tokens=320"),
    (3, ["train.micro_batch_sequences=6", "train.batch_sequences=12", "train.exact=true"],
     "into 2 micro-batches, too few for 3 processes", "train.micro_batch_sequences=4"),
])  # fmt: skip
def test_too_little_is_refused_with_what_would_be_enough(n_processes, settings, words, remedy):
    with pytest.raises(ConfigError, match=f"{words}.* give {remedy}"):
        check(n_processes, *settings)
    check(n_processes, remedy, *settings[1:])
    for is_gpu in (False, True):  # one process, and batches that do not divide evenly
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


def refusal(recipe, setting):
    with pytest.raises(ConfigError) as error:
        load_recipe(recipe, setting)
    assert "\n" not in str(error.value)
    return str(error.value)


TASK = {"objective.kind": "supervised", "data.tasks": "sst2", "data.path": "glue"}
TEXT, TRAVERSAL = {**TASK, "objective.format": "text"}, {**TASK, "objective.format": "traversal"}
PIECES, WEIGHTS = {"data.context": 32, "data.sentinels": 20}, {"sst2": 1.0, "cola": 2.0}
SPAN = {"model.kind": "encoder-decoder", "objective.kind": "span"}


@pytest.mark.parametrize("recipe, setting, fields", [
    ("gpt", {"optimizer.lr": True}, ["optimizer.lr = ", "is not a number"]),
    ("gpt", {"data.path": 1984}, ["data.path = ", "put it in quotes"]),
    ("gpt", {"data.split": "90/5/4"}, ["data.split = ", "must be three shares"]),
    ("gpt", {"model.share": "all", "model.share_groups": 7},
     ["model.share_groups", "model.n_layers = 6"]),
    ("gpt", {"train.patience": 2, "train.best_by": "last"}, ["train.best_by=loss"]),
    ("gpt", {"model.block": ["ffn*inf"]}, ["model.block", "must be finite and not 0"]),
    ("gpt", {"model.block": ["attention+fnn"]}, ["model.block entry 'fnn'", "one of attention"]),
    ("gpt", {"data.path": []}, ["data.path or data.corpus", "empty"]),
    ("gpt", {"data.path": {"a": 0.0}}, ["the weight 0 of 'a'"]),
    ("gpt", {"data.corpus": "albert-intrinsic"}, ["needs data.path"]),
    ("gpt", {"data.corpus": ("albert-intrinsic", "c4"), "data.path": "a"},
     ["data.corpus = albert-intrinsic", "neither mixed"]),
    ("bert-base", TEXT, ["objective.format = text", "model.kind"]),
    ("gpt", {**TRAVERSAL, "objective.language_weight": 0.5, "model.head": "none",
             "model.label_outputs": 2}, ["model.head = none", "objective.language_weight"]),
    ("gpt", TASK, ["objective.format = pair", "model.kind"]),
    ("bert-base", {**TASK, "data.tasks": ["sst2", "cola"]}, ["data.tasks = sst2, cola"]),
    ("t5-mini", {**TEXT, "data.size_limit": 9}, ["data.size_limit = 9", "data.tasks = sst2"]),
    ("bert-base", {"objective.kind": "supervised", "data.path": "glue"}, ["needs data.tasks"]),
    ("bert-base", {**TASK, "data.context": 4}, ["data.context = 4", "give 5"]),
    ("gpt", {**TEXT, "data.context": 64}, ["objective.target_length = 64", "data.context"]),
    ("gpt", {**TRAVERSAL, "data.tasks": "squad"}, ["data.tasks = squad", "objective.format"]),
    ("macaron-bert-base-released", {"train.tokens": 1e9}, ["objective.pairs", "train.tokens"]),
    ("macaron-bert-base-released", {"data.corpus": {"wikipedia": 3, "bookcorpus": 1}},
     ["train.batch_tokens", "objective.pairs = sentences"]),
    ("bert-base", {"train.batch_tokens": 4096, "data.batch_parts": 2},
     ["data.batch_parts = 2 has no effect"]),
    ("bert-base", {**TASK, "objective.logistic": True, "data.tasks": "mnli"}, ["two labels"]),
    ("bert-base", {**TASK, "objective.zero_head": True, "data.tasks": "squad"}, ["squad asks for"]),
    ("gpt", ["objective.target_weight=0.1"], ["objective.targets is more than 1"]),
    ("gpt", ["objective.auxiliary_stop=0.2"], ["objective.auxiliary is layers"]),
    ("gpt", ["objective.auxiliary=layers", "model.n_layers=1"], ["blocks below the last"]),
    ("t5-mini", {**PIECES, "objective.raw_length": 40}, ["raw_length = 40", "give at most 34"]),
    ("t5-mini", {**PIECES, "objective.target_length": 5}, ["target_length = 5", "34 tokens, 8"]),
    ("t5-mini", {"data.windows": "random", "data.boundaries": "respect"}, ["give shuffled"]),
    ("t5-mini", {"train.compile": True, "data.boundaries": "respect"},
     ["objective.noise = spans", "data.boundaries = ignore"]),
    ("t5-mini", {"data.tokenizer": "moses-bpe"}, ["data.tokenizer = moses-bpe has no sentinels"]),
    ("t5-mini", {"data.windows": "random", "objective.chunk_tokens": 9}, ["chunk_tokens = 9"]),
    ("t5-mini", {"data.context": 4}, ["data.context = 4 is too short for a span"]),
    ("t5-mini", {"objective.noise_density": 0.001}, ["noise_density = 0.001 makes 0 noise"]),
    ("modern", {"model.rotary_fraction": 0.07}, ["rotary_fraction = 0.07", "even number", "the 3"]),
    ("modern", {"model.rotary_fraction": 0.01}, ["rotary_fraction = 0.01", "the 0"]),
    ("gpt", {"init.run": "b", "init.freeze": "layers:5"}, ["5 is more than the 4 blocks"]),
    ("gpt", {"init.run": "b", "init.freeze": "layers:3", "init.layers": 2},
     ["more than the 2 blocks", "init.layers = 2"]),
    ("gpt", {"init.run": "b", "init.freeze": "layers:1", "model.share": "all",
             "model.share_groups": 2}, ["give layers:2"]),
    ("gpt", {"init.run": "b", "init.freeze": "layers:1", "model.share": "ffn"},
     ["give layers:4"]),
    ("gpt", {"init.run": "b", "init.freeze": "layers:1", **SPAN},
     ["model.kind = encoder-decoder"]),
    ("gpt", {"init.run": "b", "init.freeze": "layers:0"}, ["neither embeddings nor layers:K"]),
    ("gpt", {"init.freeze": "embeddings"}, ["init.freeze = 'embeddings' has no effect"]),
    ("gpt", {"init.run": "b", "init.freeze": ("layers:1", "layers:2")}, ["names layers twice"]),
    ("gpt", {"optimizer.kind": "schedule-free", "optimizer.betas": [0.0, 0.9]},
     ["optimizer.betas = [0.0, 0.9]", "more than 0"]),
    ("gpt", {"optimizer.kind": "muon", "optimizer.adjust_lr": "original"}, ["optimizer.adamw_lr"]),
    ("gpt", {"train.seed": 2**63}, ["train.seed", "at most 9,223,372,036,854,775,807"]),
    ("gpt", {"data.path": {"a": 1e308}}, ["weight 1e+308 of 'a'"]),
    ("gpt", {"model.block": ["ffn"] * 101}, ["model.block has 101 entries"]),
    ("gpt", ["model.n_layers=" + "9" * 5000], ["model.n_layers"]),
], ids=str)  # fmt: skip
def test_contradictions_are_refused_by_name(recipe, setting, fields, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "recipe.toml").write_text("[model]\nn_layers = 4\n")
    message = refusal(recipe, setting)
    assert [field for field in fields if field not in message] == []


TABLE = {"objective.kind": "supervised", "data.tasks": "table", "data.path": "my.csv"}
COLUMNS = {"text": "a", "label": "b"}


@pytest.mark.parametrize("more, columns, words", [
    ({}, {"text": "a", "lable": "b"}, "lable is not one of text"),
    ({}, {**COLUMNS, "number": "b"}, "label and number"), ({}, 5, "data.columns = 5"),
    ({}, {**COLUMNS, "choices": "c"}, "choices must name a list"),
    ({}, {**COLUMNS, "text": ["a", "b"]}, "text must name one column"),
    ({"data.tasks": "sst2"}, COLUMNS, "data.tasks is table"),
    ({"data.tasks": ["table", "sst2"]}, COLUMNS, "cannot be part of a mixture"),
    ({"train.best_by": "exact_match"}, {"text": "a", "text_pair": "b", "answer": "c"}, "best_by"),
])  # fmt: skip
def test_columns_of_a_table_that_contradict_are_refused(more, columns, words):
    assert words in refusal("bert-base", {**TABLE, **more, "data.columns": columns})
    assert "needs data.columns" in refusal("bert-base", TABLE)


def test_values_keep_their_types_defaults_follow_the_kind_and_what_is_consistent_loads(tmp_path):
    recipe = load_recipe("gpt", {"model.d_ff": 512, "optimizer.lr": 1}).recipe
    assert (recipe.model.d_ff, recipe.optimizer.lr) == (512, 1.0)
    assert isinstance(recipe.optimizer.lr, float)
    assert "model.d_ff = '512' is not a whole number" in refusal("gpt", {"model.d_ff": "512"})
    # Adafactor clips no gradient where a recipe clips Adam's, and has a rate of its own.
    optimizer = load_recipe("gpt", ["optimizer.kind=adafactor"]).recipe.optimizer
    assert (optimizer.clip_norm, optimizer.lr) == (0.0, 0.01)
    # The last settings before a contradiction load.
    load_recipe("albert-small", {"data.context": 5, "objective.p_mask": 0.9})
    load_recipe("albert-small", {"objective.pairs": "sentences", "objective.sentence": "nsp"})
    load_recipe("gpt", {"optimizer.warmup_steps": 8, "train.steps": 8, "model.max_len": 256})
    (tmp_path / "recipe.toml").write_text("[model]\nn_layers = 4\n")
    start = {"init.run": str(tmp_path), "init.freeze": ("layers:4", "embeddings")}
    frozen = load_recipe("gpt", start).recipe.init.frozen
    assert (frozen.embeddings, frozen.n_layers) == (True, 4)


HUGE = int("7" * 1000) ** 5
LONG = {
    "<5,000 digits>": HUGE, "<minus 5,000 digits>": -HUGE, "<100,000 letters>": "x" * 100_000,
    "<5,000 figures>": "9" * 5000, "<5,000 brackets>": "[" * 5000,
    "<100,000 entries>": ["attention"] * 100_000,
}  # fmt: skip
HUGE_INTEGERS = [0, 1, 2**31, 2**53, 10**12, 2**62, 2**63 - 1, 2**63, 2**64, 10**30, 10**400]
NUMBERS = st.integers() | st.floats() | st.sampled_from(
    [*HUGE_INTEGERS, *(-each for each in HUGE_INTEGERS), 1e308, -1e308, 5e-324, 1e-12,
     float("nan"), float("inf"), -float("inf")]
)  # fmt: skip
ODD = ["", "\0", "\udcff", "a/\ud800", "~nobody-here/x", "1e999999999/1/1", "ffn*1e308"]
TEXTS = st.text(max_size=6) | st.sampled_from([*ODD, *LONG])
SCALARS = NUMBERS | TEXTS | st.booleans() | st.none()
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.just([[[[[[["x"]]]]]]])
VALUES |= st.dictionaries(TEXTS, SCALARS, max_size=3)
RECIPES = st.sampled_from(("gpt", "llama-2023", "albert-base", "iwslt14-small-transformer"))
SMALL = Resources("cpu", memory_bytes=1 << 30, disk_bytes=1 << 30, has_fast_bfloat16=False, cores=2)


def expand(value):
    if isinstance(value, dict):
        return {key * 10_000 if key in LONG else key: expand(each) for key, each in value.items()}
    if isinstance(value, list):
        return [expand(each) for each in value]
    return LONG.get(value, value) if isinstance(value, str) else value


def check_planned_or_refused(name, overrides):
    try:
        loaded = load_recipe(name, expand(overrides))
        plan = make_plan([Arm(name, loaded, {})], "none", SMALL).to_json(SMALL, 1)
    except SublayerError as refused:
        said = str(refused)
    else:
        said = json.dumps(plan, allow_nan=False)
        assert plan["arms"][0]["parameters"]["total"] > 0
    assert 0 < len(said) < 2000


FIELDS = st.sampled_from([*keys(), "title", "", "\0", "\udcff", "model.", "a" * 10_000])


@examples(3000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RECIPES, st.dictionaries(FIELDS, NUMBERS | VALUES, min_size=1, max_size=4))
@example("gpt", {"init.run": "a/\ud800"})
def test_a_recipe_with_any_values_is_planned_or_refused_in_a_line(name, overrides):
    check_planned_or_refused(name, overrides)


@settings(max_examples=100, deadline=None)
@given(name=RECIPES, key=st.sampled_from(keys()), data=st.data())
def test_every_bound_itself_is_planned_or_refused_in_a_line(name, key, data):
    table, _, field = key.partition(".")
    kinds = [cls.model_fields for cls in TABLES[table].values() if field in cls.model_fields]
    rules = [rule for each in kinds for rule in each[field].metadata]
    found = {getattr(rule, side, None) for rule in rules for side in ("ge", "gt", "le", "lt")}
    if bounds := sorted(found - {None}):
        check_planned_or_refused(name, {key: data.draw(st.sampled_from(bounds))})


@settings(max_examples=200)
@given(value=VALUES | st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_any_value_is_shown_in_a_short_line(value):
    shown = show(expand(value))
    assert len(shown) <= LONGEST_VALUE and "\n" not in shown
    assert show([HUGE]) == "[a whole number of 5,000 digits]"


def numbers(annotation, metadata=()):
    if get_origin(annotation) is Annotated:
        yield from numbers(get_args(annotation)[0], (*metadata, *get_args(annotation)[1:]))
    elif get_origin(annotation) in (Union, types.UnionType, tuple):
        for each in get_args(annotation):
            yield from numbers(each, metadata)
    elif annotation in (int, float):
        yield metadata


def unbounded(*tables):
    """Give the fields that take a number without a least or without a greatest value."""
    found = []
    for table, name, info in ((t, *field) for t in tables for field in t.model_fields.items()):
        for metadata in numbers(info.annotation, tuple(info.metadata)):
            rules = [rule for each in metadata for rule in (each, *getattr(each, "metadata", ()))]
            sides = {side for rule in rules for side in ("ge", "gt", "le", "lt")
                     if getattr(rule, side, None) is not None}  # fmt: skip
            if not (sides & {"ge", "gt"} and sides & {"le", "lt"}):
                found.append(f"{table.__name__}.{name}")
    return found


def test_every_number_of_a_recipe_or_a_study_has_a_least_and_a_greatest_value():
    class Loose(Table):
        size: int = 1
        pair: tuple[Annotated[float, "no rule"], int] | None = None

    assert unbounded(Loose) == ["Loose.size", "Loose.pair", "Loose.pair"]
    kinds = [cls for kinds in TABLES.values() for cls in kinds.values()]
    assert unbounded(Recipe, ArmTable, ScaleTable, StudyFile, *kinds) == []
