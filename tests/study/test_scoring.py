"""A study names the split that it scores and how, and what it tunes."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sublayer.errors import ConfigError
from sublayer.evaluation.likelihood import score, spread_windows, windows
from sublayer.loading import load
from sublayer.runs.items import read_items
from sublayer.runs.session import prepare_data
from sublayer.study.definition import load_study
from sublayer.study.options import Options
from sublayer.study.report.messages import conditions
from sublayer.study.runner import run_study

STUDY = """
seeds = 1
match = "none"
{head}
[scale.cpu]
recipe = "gpt"
{scale}
[scale.cpu.set.model]
n_layers = 1
d_model = 8
n_heads = 2
[scale.cpu.set.data]
context = 16
[scale.cpu.set.train]
steps = 4
batch_sequences = 2
precision = "float32"
threads = 1
[[arms]]
name = "long"
[[arms]]
name = "short"
set = {{ data.context = 8 }}
"""


def write_study(folder: Path, head: str = "", scale: str = "") -> str:
    path = folder / "study.toml"
    path.write_text(STUDY.format(head=head, scale=scale))
    return str(path)


def write_text(folder: Path) -> str:
    words = [f"word {number % 37} of {number}" for number in range(600)]
    path = folder / "text.txt"
    path.write_text(" ".join(words))
    return f"data.path={path}"


def targets(plan: list[Any]) -> list[int]:
    return [place for window in plan for place in range(window.first, window.stop)]


def test_spread_windows_score_the_same_tokens_behind_every_context() -> None:
    # 40 targets in 20 parts of 2: the middles of 3 equal shares are parts 3, 10 and 16.
    plan = spread_windows(41, context=4, stride=2, max_tokens=7)
    assert targets(plan) == [7, 8, 21, 22, 33, 34]
    assert [window.start for window in plan] == [4, 18, 30]
    longer = spread_windows(41, context=9, stride=2, max_tokens=7)
    assert targets(longer) == targets(plan)
    assert [window.start for window in longer] == [0, 13, 25]


def test_as_many_tokens_as_there_are_are_scored_as_without_a_limit() -> None:
    plan = spread_windows(41, context=4, stride=2, max_tokens=40)
    assert plan == windows(41, context=4, stride=2)


@pytest.mark.slow
def test_a_study_scores_the_split_and_the_tokens_that_it_names(tmp_path: Path) -> None:
    text = write_text(tmp_path)
    source = write_study(tmp_path, scale='score = { split = "valid", stride = 1, tokens = 50 }')
    out = tmp_path / "out"
    results, _ = run_study([source], [text], Options(out=out))
    assert results.split == "valid"
    said = "50 tokens spread over the validation split, each token behind the full context"
    assert said in conditions(results)
    assert any("also chose the checkpoint of each run:" in note for note in results.notes)
    recipes = {arm.name: arm.loaded.recipe for arm in load_study(source, [text]).arms}
    for position, (name, recipe) in enumerate(recipes.items()):
        run = out / "arms" / f"{position}-{name}" / "seed-0"
        valid = prepare_data(recipe).valid
        context = recipe.data.context
        plan = spread_windows(len(valid.ids), context=context, stride=1, max_tokens=50)
        assert len(plan) == 50
        # Each token by itself, at the end of a window that is a text of its own.
        model = load(run)
        nats = []
        for window in plan:
            ids = np.asarray(valid.ids[window.start : window.stop]).tolist()
            logits = model(np_to_tokens(ids[:-1])).logits[0, -1]
            nats.append(-logits.log_softmax(-1)[ids[-1]].item())
        expected = sum(nats) / math.log(2) / 50
        assert results.arms[position].values[0] == pytest.approx(expected, rel=1e-4)
        items = read_items(run)
        assert items is not None
        assert items.split == "valid"
        assert items.tables["windows"].columns["nats"] == pytest.approx(nats, rel=1e-4)
        assert (run / "valid.json").exists()
        assert not (run / "test.json").exists()


def np_to_tokens(ids: list[int]) -> Any:
    import torch

    return torch.tensor([ids])


@pytest.mark.slow
def test_a_study_of_the_whole_split_at_a_stride_joins_windows_into_items(tmp_path: Path) -> None:
    text = write_text(tmp_path)
    source = write_study(tmp_path, head="score = { stride = 1 }")
    out = tmp_path / "out"
    results, _ = run_study([source], [text], Options(out=out, seeds=1))
    assert "the test split, each token behind the full context" in conditions(results)
    recipe = load_study(source, [text]).arms[0].loaded.recipe
    run = out / "arms" / "0-long" / "seed-0"
    test = prepare_data(recipe).test
    whole = score(load(run), test, context=16, stride=1, batch_sequences=7)
    assert results.arms[0].values[0] == pytest.approx(whole.bits_per_byte, rel=1e-5)
    items = read_items(run)
    assert items is not None
    table = items.tables["windows"]
    assert table.columns["tokens"].sum() == len(test.ids) - 1
    # Half a context of 16 each, but the first window scores a whole one more, and the last is cut.
    assert set(table.columns["tokens"][1:-1].tolist()) == {8}
    assert "full context" in table.unit


@pytest.mark.slow
def test_a_folder_is_of_what_was_scored(tmp_path: Path) -> None:
    text = write_text(tmp_path)
    options = Options(out=tmp_path / "out", seeds=1)
    run_study([write_study(tmp_path)], [text], options)
    other = write_study(tmp_path, head='score = { split = "valid" }')
    with pytest.raises(ConfigError, match="another study, with score = None, not"):
        run_study([other], [text], options)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("score = { stride = 9 }", "score.stride = 9 is more than data.context = 8 of short"),
        ("score = { stride = 0 }", "score.stride = 0 must be at least 1"),
        ('score = { split = "train" }', "score.split = 'train' is not 'valid' or 'test'"),
        ("tune = { optimizer.lr = 1e-3 }", "tune.optimizer.lr = 0.001 is no list"),
    ],
)
def test_what_a_study_cannot_score_or_tune_is_refused(
    tmp_path: Path, head: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_study(write_study(tmp_path, head=head))


def test_a_stride_is_refused_where_no_text_is_scored_in_windows(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        "score = { stride = 1 }\n[scale.cpu]\nrecipe = 'albert-small'\n"
        "[[arms]]\nname = 'a'\n[[arms]]\nname = 'b'\nset = { model.d_embed = 32 }\n"
    )
    with pytest.raises(ConfigError, match="are of decoders, and a has objective.kind = masked"):
        load_study(str(path))


@pytest.mark.slow
def test_a_study_tunes_what_its_file_says_unless_it_is_set(tmp_path: Path) -> None:
    head = "tune = { optimizer.lr = [1e-3, 2e-3] }"
    study = load_study(write_study(tmp_path, head=head))
    assert study.tune == ("optimizer.lr=0.001,0.002",)
    assert load_study(write_study(tmp_path, head=head), ["optimizer.lr=3e-3"]).tune == ()
    own = "tune = { optimizer.lr = [1e-3, 4e-3] }"
    assert load_study(write_study(tmp_path, head, own)).tune == ("optimizer.lr=0.001,0.004",)
    results, _ = run_study(
        [write_study(tmp_path, head)], [write_text(tmp_path)], Options(out=tmp_path / "out")
    )
    assert "optimizer.lr tuned for each arm" in conditions(results)
    assert all(arm.tuned for arm in results.arms)
