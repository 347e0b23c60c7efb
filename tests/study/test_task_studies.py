"""Comparisons of models that are fine-tuned: planned before anything is read, scored by tasks."""

import json
from typing import Any

import pytest
import torch

from sublayer import cli
from sublayer.config.layering.layers import load_recipe
from sublayer.config.task_heads import expected_model, rows_of_example
from sublayer.data.packed_batch import PackedBatch
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.runs.resolution import resolve
from sublayer.runs.session import Place, prepare_data
from sublayer.study.agreement import check_agree
from sublayer.study.budget.measure import train_step
from sublayer.training.processes.world import World
from tests.study.test_agreement import run
from tests.task_files import write_copa, write_sst2, write_stsb

CPU = torch.device("cpu")
SMALL = {
    "model.n_layers": 1,
    "model.d_model": 16,
    "model.n_heads": 2,
    "objective.kind": "supervised",
    "data.context": 32,
    "data.tokenizer": "unigram",
    "data.vocab_size": 70,
    "train.steps": 20,
    "train.batch_sequences": 8,
    "train.micro_batch_sequences": 3,
    "train.precision": "float32",
    "train.threads": 1,
}
ENCODER = {"model.kind": "encoder", "model.segments": "both", "model.pooler": "tanh"}
TEXT = {"objective.format": "text", "objective.target_length": 8}
KINDS: dict[str, dict[str, Any]] = {
    "labels": {**ENCODER, "data.tasks": "sst2"},
    "numbers": {**ENCODER, "data.tasks": "stsb"},
    "choices": {**ENCODER, "data.tasks": "copa"},
    "orders": {"objective.format": "traversal", "data.tasks": "stsb"},
    "traversals": {
        "objective.format": "traversal",
        "objective.language_weight": 0.5,
        "data.tasks": "copa",
    },
    "text": {
        **TEXT,
        "model.kind": "encoder-decoder",
        "model.decoder_start": "pad",
        "model.positions": "relative",
        "data.tasks": ["sst2", "copa"],
    },
    "text of a decoder": {**TEXT, "data.tasks": "sst2"},
}


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        write_copa(write_stsb(write_sst2(folder / "glue")))
        yield folder


def recipe_of(kind, place):
    return load_recipe("gpt", {**SMALL, "data.path": str(place / "glue"), **KINDS[kind]}).recipe


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_planned_has_the_parameters_of_the_run(kind, place):
    recipe = recipe_of(kind, place)
    data = prepare_data(recipe)
    resolved = resolve(recipe, data, Place(CPU, World(rank=0, size=1)))
    planned = expected_model(recipe, data.tokenizer.vocab_size)
    assert count_parameters(planned) == count_parameters(resolved.model)


ROWS = {"choices": 2, "orders": 2, "traversals": 2}
"""Of an example, where it has more than one."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_timed_on_random_examples_as_long_as_the_context(kind, place):
    recipe = recipe_of(kind, place)
    take_step = train_step(recipe, 70, CPU)
    batch = take_step.batches.batch(0)
    assert isinstance(batch, PackedBatch)
    n_rows = ROWS.get(kind, 1)
    assert rows_of_example(recipe) == n_rows
    assert batch.read.tokens.shape == (8 * n_rows, 32) and batch.read.mask is None
    assert take_step.n_tokens(0) == batch.n_tokens
    # An example of one sequence shares its row, as real ones do.
    assert (batch.read.document_ids is None) == (n_rows > 1)
    result = take_step(0)
    assert torch.isfinite(result.loss) and result.gradient_norm > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_says_what_a_run_takes(kind, place, capsys):
    settings = {**SMALL, "data.path": str(place / "glue"), **KINDS[kind]}
    words = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    assert cli.main(["plan", "gpt", *words, "--json"]) == 0
    [arm] = json.loads(capsys.readouterr().out)["arms"]
    recipe = recipe_of(kind, place)
    expected = count_parameters(expected_model(recipe, 70)).total
    assert arm["parameters"]["total"] == expected
    assert arm["memory_bytes"] > 16 * expected


def write_recipe(path, settings):
    tables: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        table, _, name = key.partition(".")
        tables.setdefault(table, {})[name] = value
    lines = ['title = "t"', 'source = "s"', 'cost = ""']
    for table, values in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.slow
def test_an_encoder_and_a_writer_of_text_are_compared_by_the_score_of_one_task(place, capsys):
    path = {"data.path": str(place / "glue")}
    pair = write_recipe(place / "pair.toml", {**SMALL, **path, **KINDS["labels"]})
    settings = {**KINDS["text"], "data.tasks": "sst2", "model.positions": "learned"}
    text = write_recipe(place / "text.toml", {**SMALL, **path, **settings})
    out = place / "study"
    words = ["compare", pair, text, "--seeds", "3", "--match", "none", "--out", str(out), "--json"]
    assert cli.main(words) == 0
    said = capsys.readouterr()
    assert "score follows from no single items: verdicts are of other seeds" in said.err
    result = json.loads(said.out)
    assert result["differences"][0]["parts"]["items"] is None
    assert [arm["name"] for arm in result["arms"]] == ["pair", "text"]
    assert result["metric"] == "score"
    for arm in result["arms"]:
        assert len(arm["values"]) == 3 and all(0 <= value <= 1 for value in arm["values"])
    [difference] = result["differences"]
    assert difference["verdict"] in ("better", "worse", "cannot tell")
    assert "sst2" in (out / "report.html").read_text()
    # Both are scored on the same rows, whatever stands around them.
    assert not any("another text" in note for note in result["notes"])
    runs = [next((out / "arms").glob(f"{number}-*")) / "seed-0" for number in range(2)]
    assert cli.main(["compare", str(runs[0]), str(runs[0].parent / "seed-1")]) == 0
    assert cli.main(["compare", *map(str, runs)]) == 2
    assert "objective.format = pair and text write examples" in capsys.readouterr().err


def test_runs_of_two_formats_are_told_to_be_trained_together():
    of_tasks = {"objective.kind": "supervised", "data.tasks": "sst2", "data.path": "glue"}
    pair = run("a", {**of_tasks, "model.kind": "encoder"})
    text = run("b", {**of_tasks, "objective.format": "text"}, train="1")
    with pytest.raises(ConfigError, match=r"objective.format = pair and text write examples for"):
        check_agree([pair, text])
