"""A fourth kind of objective is a table, a row, and nothing else: predict the text backwards."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, Union

import numpy as np
import pytest
import torch
from torch import Tensor

from sublayer import cli
from sublayer.config.objectives.base import ObjectiveTable
from sublayer.config.objectives.kinds import OBJECTIVES
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.config.resolved import ResolvedRecipe
from sublayer.config.table import field
from sublayer.data.batches import Batch, Windows
from sublayer.data.split import Split
from sublayer.evaluation.items import FromItems, Items, ItemTable, Sums
from sublayer.evaluation.split_work import Processes, add_up, compute_each
from sublayer.model.context.layout import Layout
from sublayer.model.eval_mode import evaluating
from sublayer.model.kernels.cross_entropy import linear_cross_entropy
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.objective.causal.batches import synthetic_split
from sublayer.objective.families import FAMILIES
from sublayer.objective.family import Effort, Family, Scored, stored_tokens
from sublayer.objective.metric import Metric
from sublayer.study.items.reading import read_study_items

TEXT = "The cat sat on the mat. Another dog ran over the green fields while it rained.\n"


class BackwardsObjective(ObjectiveTable):
    """Predict the token before each, from those that follow it."""

    gathers_positions: ClassVar[bool] = False

    evaluated: ClassVar[tuple[str, ...]] = ("loss", "bits_per_token")

    kind: Literal["backwards"] = field("backwards", "Predict the text backwards.")
    weight: float = field(1.0, "What the loss is multiplied by.", gt=0.0, le=10.0)


class Backwards(Objective):
    reported = "before"

    def __init__(self, model: Transformer, config: BackwardsObjective) -> None:
        super().__init__(model)
        self.weights = {"before": config.weight}

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"before": batch.targets.numel()}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        states = self.model.hidden(batch.tokens, Layout.causal(batch.tokens)).final
        matrix, bias = self.model.output_projection()
        rows = self.model.to_embedding(states).flatten(0, 1)
        return {"before": linear_cross_entropy(rows, matrix, bias, batch.targets.flatten())}


class BackwardsBatches(Windows):
    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        batch = super().batch(step, rank, world)
        return Batch(batch.targets.flip(1), batch.tokens.flip(1))


def make_batches(recipe: Recipe, split: Split) -> BackwardsBatches:
    n_sequences, seed = batch_sequences(recipe), recipe.train.seed
    return BackwardsBatches(
        split, context=recipe.data.context, batch_sequences=n_sequences, seed=seed
    )


def bits_per_token(sums: Sums) -> float:
    return float(sums["nats"] / sums["tokens"]) / math.log(2)


BITS_PER_TOKEN = Metric(
    "bits_per_token",
    "bits per token",
    is_lower_better=True,
    from_items=FromItems("windows", bits_per_token),
)


@torch.inference_mode()
def score(
    model: Transformer, split: Split, recipe: Recipe, effort: Effort, processes: Processes
) -> Scored:
    objective = Backwards(model, BackwardsObjective())
    context = recipe.data.context
    batches = BackwardsBatches(split, context=context, batch_sequences=1, seed=0, mode="shuffled")
    n_windows = batches.n_windows if effort == "test" else min(4, batches.n_windows)
    with evaluating(model):
        rows = compute_each(
            lambda step: [float(objective(batches.batch(step))["before"])], n_windows, processes
        )
    nats = np.concatenate(rows)
    columns = {"nats": nats, "tokens": np.full(n_windows, context)}
    table = ItemTable("a window, as shuffled by seed 0", split.store.sha256, columns, None)
    loss = add_up(rows) / (n_windows * context)
    scores = {"loss": loss, "bits_per_token": loss / math.log(2)}
    return Scored(scores, Items(split.name, split.store.sha256, {"windows": table}))


BACKWARDS = Family(
    build=lambda model, config, seed: Backwards(model, config),
    batches=make_batches,
    synthetic=lambda recipe, vocab_size: make_batches(recipe, synthetic_split(recipe, vocab_size)),
    epoch_tokens=stored_tokens,
    score=score,
    metrics=(BITS_PER_TOKEN,),
)


def allow_objectives(*kinds: type[ObjectiveTable]) -> None:
    """Have a recipe's ``[objective]`` be one of these tables."""
    for recipe in (Recipe, ResolvedRecipe):
        field = recipe.model_fields["objective"]
        field.annotation = Union[kinds]  # type: ignore[assignment]  # noqa: UP007
        recipe.model_rebuild(force=True)


@pytest.fixture(autouse=True)
def fourth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    known = tuple(OBJECTIVES.values())
    monkeypatch.setitem(OBJECTIVES, "backwards", BackwardsObjective)
    monkeypatch.setitem(FAMILIES, "backwards", BACKWARDS)
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT * 200)
    (tmp_path / "backwards.toml").write_text(RECIPE)
    allow_objectives(*known, BackwardsObjective)
    yield
    allow_objectives(*known)


RECIPE = """
extends = "gpt"
[model]
n_layers = 1
d_model = 16
n_heads = 2
[data]
path = "text.txt"
context = 32
[objective]
kind = "backwards"
[train]
steps = 6
batch_sequences = 3
micro_batch_sequences = 2
precision = "float32"
threads = 1
"""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(list(words)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def result(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(capsys, *words, "--json").splitlines()[-1])
    return found


def test_it_trains_resumes_and_is_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    record = result(capsys, "train", "backwards.toml", "--out", "run")
    assert record["valid"]["bits_per_token"] == pytest.approx(record["valid"]["loss"] / math.log(2))
    assert "loss" in run(capsys, "train", "backwards.toml", "--out", "run", "--resume")
    scores = result(capsys, "evaluate", "run", "--split", "test")
    assert 0 < scores["bits_per_token"] < 8.5
    assert "bits per token" in run(capsys, "evaluate", "run")
    assert cli.main(["evaluate", "run", "--stride", "4"]) == 2
    assert "--stride is for models of objective.kind = causal" in capsys.readouterr().err


def test_it_is_planned_measured_and_documented(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["plan", "backwards.toml"], ["plan", "backwards.toml", "--measure"]):
        (arm,) = result(capsys, *words)["arms"]
        assert arm["parameters"]["total"] > 0
    assert "objective.weight" in run(capsys, "fields", "objective")
    assert cli.main(["plan", "backwards.toml", "objective.weight=11"]) == 2
    assert "objective.weight = 11" in capsys.readouterr().err
    assert cli.main(["plan", "gpt", "objective.weight=1"]) == 2


@pytest.mark.slow
def test_arms_of_it_are_compared_by_its_metric_in_a_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["compare", "backwards.toml", "--vary", "model.ffn=gelu,relu", "--seeds", "1"]
    compared = result(capsys, *words, "--out", "study")
    assert compared["metric"] == "bits_per_token"
    assert all(len(arm["values"]) == 1 for arm in compared["arms"])
    assert "bits per token" in Path("study/report.html").read_text()
    for run in read_study_items(Path("study/items.safetensors.xz")):
        (arm,) = (each for each in compared["arms"] if each["name"] == run.arm)
        found = bits_per_token(run.items.tables["windows"].sums())
        assert found == pytest.approx(arm["values"][run.seed], rel=1e-6)


def test_what_it_learns_is_the_text_backwards() -> None:
    ids = torch.arange(33).numpy()
    from sublayer.data.store import TokenStore
    from sublayer.data.tokenizers.characters import ByteTokenizer

    starts = torch.zeros(1, dtype=torch.int64).numpy()
    store = TokenStore(ids, starts, starts, len(ids), "", is_lossless=True)
    split = Split("train", store, ByteTokenizer(), ("",))
    batch = BackwardsBatches(split, context=32, batch_sequences=1, seed=0).batch(0)
    assert batch.tokens[0].tolist() == list(range(32, 0, -1))
    assert batch.targets[0].tolist() == list(range(31, -1, -1))
