"""Length, batches, freezing and selection of a run."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublayer.config.batch_shares import check_shares
from sublayer.config.freezing import Frozen, parse_freeze
from sublayer.config.layering.layers import load_recipe
from sublayer.config.resolve_train import Length, length_in, resolve_train, run_steps
from sublayer.config.selection import is_better
from sublayer.config.train import InitConfig
from sublayer.errors import ConfigError


def test_minutes_hold_steps_evaluations_and_a_hundredth_of_other_work() -> None:
    # Ten evaluations of 2 s leave 574 s of 594 for steps of 0.5 s; at one in 4 steps, 4 of them
    # take 4 s.
    assert length_in(10, 0.5, 2.0, evaluate_steps=None, scored_tokens=None) == Length(1148, 10)
    assert length_in(10, 0.5, 2.0, evaluate_steps=4, scored_tokens=None) == Length(594, 10)


def test_minutes_that_hold_no_step_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"train\.minutes = 0\.01 is too short: a step takes 1 s and an evaluation 0\.1",
    ):
        length_in(0.01, 1.0, 0.1, evaluate_steps=None, scored_tokens=None)


def test_a_minute_of_slow_evaluations_is_not_one_step() -> None:
    # Ten of 5.9 s would leave 0.4 s of 59.4; two, a fifth of them, leave 47.6.
    assert length_in(1, 0.3, 5.9, evaluate_steps=None, scored_tokens=None) == Length(158, 2)


def test_an_evaluation_that_alone_takes_more_than_a_fifth_scores_fewer_tokens() -> None:
    # A fifth of 59.4 s is 11.88 s, 0.297 of 40 s.
    assert length_in(1, 0.3, 40.0, evaluate_steps=None, scored_tokens=1000) == Length(158, 1, 297)
    assert length_in(1, 0.3, 40.0, evaluate_steps=None, scored_tokens=None) == Length(64, 1)


@given(
    minutes=st.floats(0.01, 1e4),
    step_s=st.floats(1e-6, 1e4),
    evaluation_s=st.floats(0.0, 1e5),
    scored_tokens=st.integers(1, 10**6),
)
@settings(max_examples=300)
def test_evaluations_take_at_most_a_fifth_and_all_fits(
    minutes: float, step_s: float, evaluation_s: float, scored_tokens: int
) -> None:
    try:
        length = length_in(
            minutes, step_s, evaluation_s, evaluate_steps=None, scored_tokens=scored_tokens
        )
    except ConfigError:
        assert step_s > 60 * minutes * 0.7 or evaluation_s / scored_tokens > 60 * minutes * 0.1
        return
    tokens = scored_tokens if length.evaluate_tokens is None else length.evaluate_tokens
    evaluations_s = length.n_evaluations * evaluation_s * tokens / scored_tokens
    assert length.steps >= 1
    assert 1 <= length.n_evaluations <= 10
    # One token is the least that can be scored.
    assert evaluations_s <= 0.2001 * 60 * minutes or tokens == 1
    assert length.steps * step_s + evaluations_s <= 60.001 * minutes


@pytest.mark.parametrize(
    ("settings", "evaluated"),
    [
        ([], (79, 79, 297)),
        (["train.evaluate_steps=7", "train.evaluate_tokens=50"], (7, 7, 50)),
    ],
)
def test_a_run_is_evaluated_as_often_and_as_far_as_its_length_says(
    settings: list[str], evaluated: tuple[int, int, int]
) -> None:
    train = resolve_train(
        load_recipe("gpt", settings).recipe,
        steps=158,
        valid_tokens=10**6,
        is_gpu=False,
        threads=1,
        n_evaluations=2,
        evaluate_tokens=297,
    )
    found = train.evaluate_steps, train.checkpoint_steps, train.evaluate_tokens
    assert found == evaluated


@pytest.mark.parametrize(
    ("settings", "is_gpu", "threads", "expected"),
    [
        ((), False, 3, 12),
        ((), False, 99, 16),
        ((), True, 1, 16),
        (("train.threads=2",), False, 1, 8),
        (("data.context=3000",), False, 2, 1),
        (("train.micro_batch_sequences=5",), False, 2, 5),
        (("model.d_model=192",), False, 1, 4),
        (("model.d_model=128", "train.batch_sequences=64"), False, 2, 32),
    ],
)
def test_a_micro_batch_has_1024_tokens_for_each_thread_and_more_in_narrow_models(
    settings: tuple[str, ...], is_gpu: bool, threads: int, expected: int
) -> None:
    given = dict(each.split("=") for each in settings)
    whole = {
        "train.batch_sequences": 16,
        "data.context": 256,
        "model.d_model": 256,
        "model.n_heads": 4,
    } | given
    recipe = load_recipe("gpt", [f"{name}={value}" for name, value in whole.items()]).recipe
    train = resolve_train(recipe, steps=10, valid_tokens=None, is_gpu=is_gpu, threads=threads)
    assert train.micro_batch_sequences == expected


def test_tasks_have_a_length_by_their_number_of_examples_unless_told() -> None:
    tasks = {
        "model.kind": "encoder",
        "objective.kind": "supervised",
        "data.tasks": "rte",
        "data.path": "files",
        "data.context": 64,
        "train.batch_sequences": 32,
        "train.epochs": 5,
    }
    told = load_recipe("gpt", tasks).recipe
    unset = told.model_copy(update={"train": told.train.model_copy(update={"epochs": None})})
    # 2,400 examples, of which ten epochs are 24,000: 750 steps of 32.
    assert run_steps(unset, train_tokens=2400 * 64) == 750
    assert run_steps(told, train_tokens=2400 * 64) == 375
    assert run_steps(unset, train_tokens=None) is None


def check(n_processes, *settings, is_gpu=False):
    recipe = load_recipe("gpt", ["data.path=none.txt", "data.context=64", *settings]).recipe
    check_shares(recipe, n_processes, is_gpu=is_gpu)


@pytest.mark.parametrize(
    ("n_processes", "settings", "line"),
    [
        (
            5,
            ["train.batch_sequences=4"],
            "train.batch_sequences = 4 is less than the 5 processes: start fewer, or give "
            "train.batch_sequences=5 or more",
        ),
        (
            5,
            ["train.batch_tokens=256"],
            "train.batch_tokens = 256, 4 windows, is less than the 5 processes: start fewer, or "
            "give train.batch_tokens=320 or more",
        ),
        (
            3,
            ["train.batch_sequences=12", "train.exact=true", "train.micro_batch_sequences=6"],
            "train.exact divides a step into 2 micro-batches, less than the 3 processes: start "
            "fewer, or give train.micro_batch_sequences=4",
        ),
    ],
)
def test_too_little_is_refused_with_what_would_be_enough(n_processes, settings, line):
    with pytest.raises(ConfigError) as refusal:
        check(n_processes, *settings)
    assert str(refusal.value) == line
    remedy = line.split("give ")[1].removesuffix(" or more")
    mended = [each for each in settings if each.split("=")[0] != remedy.split("=")[0]]
    check(n_processes, *mended, remedy)


@pytest.mark.parametrize("is_gpu", [False, True])
def test_one_process_and_batches_that_do_not_divide_evenly_are_taken(is_gpu):
    check(1, "train.batch_sequences=1", "train.exact=true", is_gpu=is_gpu)
    check(4, "train.batch_sequences=7", is_gpu=is_gpu)
    check(4, "train.batch_sequences=7", "train.exact=true", is_gpu=is_gpu)


@pytest.mark.parametrize(
    ("words", "frozen"),
    [
        ((), Frozen()),
        ("embeddings", Frozen(embeddings=True)),
        ("layers:3", Frozen(n_layers=3)),
        (("layers:12", "embeddings"), Frozen(embeddings=True, n_layers=12)),
    ],
)
def test_parts_are_read(words: str | tuple[str, ...], frozen: Frozen) -> None:
    assert parse_freeze(words) == frozen
    assert InitConfig(run="runs/a", freeze=words).frozen == frozen


@pytest.mark.parametrize("words", ["embedding", "layers:0", "layers:²", ""])
def test_anything_else_is_refused_with_what_there_is(words: str) -> None:
    with pytest.raises(ConfigError, match="neither embeddings nor layers:K"):
        parse_freeze(words)


def test_a_part_is_named_once() -> None:
    with pytest.raises(ConfigError, match="names layers twice"):
        parse_freeze(("layers:1", "layers:2"))


@pytest.fixture
def book(tmp_path: Path) -> str:
    (tmp_path / "recipe.toml").write_text("[model]\nn_layers = 4\n")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"init.freeze": "layers:5"}, "layers:5 is more than the 4 blocks"),
        ({"init.freeze": "layers:3", "init.layers": 2}, "more than the 2 blocks .*init.layers = 2"),
        (
            {"init.freeze": "layers:1", "model.share": "all", "model.share_groups": 2},
            "give layers:2",
        ),
        ({"init.freeze": "layers:1", "model.share": "ffn"}, "give layers:4"),
        (
            {"init.freeze": "layers:1", "model.kind": "encoder-decoder", "objective.kind": "span"},
            "model.kind = encoder-decoder",
        ),
    ],
)
def test_parts_that_cannot_stay_are_refused(
    book: str, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe("gpt", {"init.run": book, **settings})


def test_all_blocks_of_the_start_may_stay(book: str) -> None:
    init = load_recipe("gpt", {"init.run": book, "init.freeze": "layers:4"}).recipe.init
    assert init.frozen.n_layers == 4


def test_without_a_start_nothing_can_stay() -> None:
    with pytest.raises(ConfigError, match="init.freeze = 'embeddings' has no effect"):
        load_recipe("gpt", {"init.freeze": "embeddings"})


@pytest.mark.parametrize(
    ("name", "values", "best", "better"),
    [
        ("loss", {"loss": 1.0}, {"loss": 2.0}, True),
        ("loss", {"loss": 2.0}, {"loss": 2.0}, False),
        ("score", {"loss": 3.0, "score": 0.9}, {"loss": 1.0, "score": 0.8}, True),
        ("score", {"loss": 0.5, "score": 0.8}, {"loss": 1.0, "score": 0.8}, True),
        ("score", {"loss": 1.5, "score": 0.8}, {"loss": 1.0, "score": 0.8}, False),
        ("score", {"score": 0.8}, {"loss": 1.0, "score": 0.8}, False),
        ("score", {"loss": 0.1, "score": 0.7}, {"loss": 1.0, "score": 0.8}, False),
    ],
)
def test_a_metric_has_its_direction_and_the_loss_decides_between_equals(
    name: str, values: dict[str, float], best: dict[str, float], better: bool
) -> None:
    assert is_better(name, values, best) is better
