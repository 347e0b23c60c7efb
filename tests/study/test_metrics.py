"""Metrics by which arms are scored, and items of a study that fit into a record."""

import json
import lzma
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sublayer import cli
from sublayer.api.training import compare
from sublayer.config.layering.layers import vary
from sublayer.config.layering.run_recipe import dump_recipe
from sublayer.config.task_heads import expected_model, rows_of_example
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.prepare import prepare
from sublayer.errors import CheckpointError, ConfigError, DataError
from sublayer.estimate.cost import count_parameters
from sublayer.evaluation.items import FromItems, Items, ItemTable
from sublayer.evaluation.likelihood import spread_windows, windows
from sublayer.files.arrays import dump_arrays
from sublayer.loading import load
from sublayer.objective.masked.scored_batches import Scoring
from sublayer.objective.masked.scores import encoder_scores
from sublayer.objective.metric import Metric
from sublayer.runs.folder import RunFolder
from sublayer.runs.items import read_items
from sublayer.runs.resolution import resolve
from sublayer.runs.session import Place, prepare_data
from sublayer.study.budget.measure import train_step
from sublayer.study.definition import load_study
from sublayer.study.items.compaction import (
    COARSE,
    FINE,
    Compaction,
    Stack,
    add_neighbours,
    round_column,
)
from sublayer.study.items.file_header import STUDY_ITEMS, RunItems
from sublayer.study.items.reading import read_study_items
from sublayer.study.items.writing import write_study_items
from sublayer.study.judgement.evidence import scored_elsewhere
from sublayer.study.metrics import study_metrics
from sublayer.study.options import Options
from sublayer.study.report.caveats import list_caveats
from sublayer.study.report.text_caveats import list_text_caveats
from sublayer.study.results import Results
from sublayer.study.runner import run_study
from sublayer.training.processes.world import World
from tests.made import PAIR, TEXT, TRAVERSAL
from tests.study.studies import WORDS, Studies, settings_of

ACCURACIES = ["mlm_accuracy", "nsp_accuracy", "sop_accuracy"]
STUDY = """
match = "none"
{metric}
[scale.cpu]
recipe = "albert-small"
[scale.cpu.set]
model = {{ n_layers = 1, d_model = 16, n_heads = 2, d_embed = 8 }}
train = {{ steps = 4, batch_sequences = 4, threads = 1, precision = "float32" }}
[scale.cpu.set.data]
sentences = "lines"
documents = "blank-line"
vocab_size = 60
context = 32
path = "{path}"
[[arms]]
name = "one"
{one}
[[arms]]
name = "two"
{two}
"""

HEADLESS = 'set = { model.sentence_classes = 0, objective.sentence = "none" }'
NONE, SOP = ('set = { objective.sentence = "none" }', 'set = { objective.sentence = "sop" }')


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a cache of its own, and a text of 60 documents of 4 sentences."""
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n".join(document(number, 4) for number in range(60)))
    return tmp_path


def document(number: int, n_sentences: int) -> str:
    words = [
        [WORDS[(number * 7 + i * i + 3 * s) % len(WORDS)] for i in range(6)]
        for s in range(n_sentences)
    ]
    return "".join(f"{' '.join(sentence)}.\n" for sentence in words)


def study_file(folder, *, metric="", one=NONE, two=SOP, text="text.txt"):
    path = folder / "study_file.toml"
    line = f'metric = "{metric}"' if metric else ""
    path.write_text(STUDY.format(metric=line, path=folder / text, one=one, two=two))
    return str(path)


def compared(source: str, **options: Any) -> dict[str, Any]:
    return compare(source, seeds=1, out="out", **options)


def test_the_metric_that_a_study_names_decides_and_the_others_keep_their_order(folder):
    metrics = study_metrics(load_study(study_file(folder, metric="sop_accuracy")))
    names = ["sop_accuracy", "mlm_accuracy", "nsp_accuracy", "loss"]
    assert [metric.name for metric in metrics] == names
    metrics = study_metrics(load_study(study_file(folder)))
    assert [metric.name for metric in metrics] == [*ACCURACIES, "loss"]
    assert [metric.is_lower_better for metric in metrics] == [False, False, False, True]


def test_text_without_pairs_cannot_decide_by_them(folder):
    (folder / "single.txt").write_text("\n".join(document(number, 1) for number in range(60)))
    with pytest.raises(DataError, match="no document of the test split has two sentences"):
        compared(study_file(folder, metric="sop_accuracy", text="single.txt"))
    assert not list(folder.rglob("record.json"))


def test_other_text_and_other_vocabularies_are_noted(folder):
    (folder / "other.txt").write_text("\n".join(document(number + 3, 5) for number in range(60)))
    arm = load_study(study_file(folder)).arms[0]
    other = vary(arm.loaded, {"data.path": str(folder / "other.txt"), "data.vocab_size": 50})
    data = {"one": prepare(arm.loaded.recipe.data), "two": prepare(other.recipe.data)}
    metric = Metric("loss", "nats", is_lower_better=True, from_items=None)
    small, text, vocabulary = list_text_caveats(data, metric)
    assert small.startswith("The test split is 4 documents: ")
    assert text.startswith("two: scored on another text")
    assert vocabulary.startswith("two: another vocabulary")
    alike = {"one": data["one"], "two": replace(data["one"])}
    assert list_text_caveats(alike, metric) == [small]
    # An arm has the text of what it is compared with, a control that of itself.
    pairs = {**data, "three": replace(data["two"])}
    against = {"two": "two", "three": "two"}
    assert list_text_caveats(pairs, metric, against=against) == [small]
    crossed = list_text_caveats(pairs, metric, against={"two": "three"})
    assert [note.partition(":")[0] for note in crossed[1:]] == ["three", "three"]


def test_what_cannot_be_compared_is_noted_by_the_basis_of_the_metric(folder):
    data = prepare(load_study(study_file(folder)).arms[0].loaded.recipe.data)
    lossy = replace(data.test, store=replace(data.test.store, is_lossless=False))

    def notes(basis: str, split: Any, *elsewhere: str) -> list[str]:
        metric = Metric("x", "nats", is_lower_better=True, from_items=None, basis=basis)
        texts = list_text_caveats({"one": replace(data, test=split)}, metric)
        _, *others = list_caveats(texts, metric=metric, elsewhere=elsewhere)
        return [" ".join(note.split()[:4]) for note in others]

    assert notes("items", data.test, "two") == ["two: scored on other"]
    assert notes("bytes", lossy, "two") == ["The tokenizer of one"]
    assert notes("items", lossy) == notes("scores", lossy, "two") == []


def test_arms_whose_items_differ_from_the_baselines_are_found():
    metric = Metric("x", "nats", is_lower_better=True, from_items=FromItems("pieces", len))
    kept = [
        RunItems(arm, 0, Items("", "", {"pieces": ItemTable("", digest, {}, None)}), {"pieces": 1})
        for arm, digest in (("one", "a"), ("two", "a"), ("three", "b"))
    ]
    assert scored_elsewhere(kept, "one", metric) == ["three"]
    assert scored_elsewhere(kept, "one", metric, {"three": "three"}) == []
    assert scored_elsewhere(kept, "one", metric, {"two": "three"}) == ["two", "three"]


def targets(plan: list[Any]) -> list[int]:
    return [place for window in plan for place in range(window.first, window.stop)]


def test_spread_windows_score_the_same_tokens_behind_every_context():
    # 40 targets in 20 parts of 2: the middles of 3 equal shares are parts 3, 10 and 16.
    plan = spread_windows(41, context=4, stride=2, max_tokens=7)
    assert targets(plan) == [7, 8, 21, 22, 33, 34]
    assert [window.start for window in plan] == [4, 18, 30]
    longer = spread_windows(41, context=9, stride=2, max_tokens=7)
    assert targets(longer) == targets(plan)
    assert [window.start for window in longer] == [0, 13, 25]
    whole = spread_windows(41, context=4, stride=2, max_tokens=40)
    assert whole == windows(41, context=4, stride=2)


ENCODER = {**PAIR, "data.tasks": "sst2"}
WRITER = {**TEXT, "data.tasks": "sst2"}
DECODER = {key: value for key, value in WRITER.items() if not key.startswith("model.")}
KINDS: dict[str, tuple[dict[str, Any], int]] = {
    "labels": (ENCODER, 1),
    "numbers": (PAIR, 1),
    "choices": ({**PAIR, "data.tasks": "copa"}, 2),
    "orders": ({**TRAVERSAL, "data.tasks": "stsb", "objective.language_weight": 0.0}, 2),
    "traversals": (TRAVERSAL, 2),
    "text": ({**TEXT, "data.tasks": ["sst2", "rte"]}, 1),
    "text of a decoder": (DECODER, 1),
}

"""Recipes, and the rows of an example."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_has_the_parameters_of_a_run_and_times_random_examples(kind, workshop):
    settings, n_rows = KINDS[kind]
    recipe = workshop.recipe(settings).recipe
    data = prepare_data(recipe)
    resolved = resolve(recipe, data, Place(torch.device("cpu"), World(rank=0, size=1)))
    planned = expected_model(recipe, data.tokenizer.vocab_size)
    assert count_parameters(planned) == count_parameters(resolved.model)
    take_step = train_step(recipe, 90, torch.device("cpu"))
    batch = take_step.batches.batch(0)
    assert isinstance(batch, PackedBatch)
    assert rows_of_example(recipe) == n_rows
    assert batch.read.tokens.shape == (6 * n_rows, 32) and batch.read.mask is None
    assert take_step.n_tokens(0) == batch.n_tokens
    # An example of one sequence shares its row, as real ones do.
    assert (batch.read.document_ids is None) == (n_rows > 1)
    result = take_step(0)
    assert torch.isfinite(result.loss) and result.gradient_norm > 0


def test_a_metric_that_no_arm_or_not_every_arm_has_is_refused(folder):
    for metric, one, message in (
        ("accuracy", NONE, "metric = 'accuracy' is not one of mlm_accuracy, nsp_accuracy.*loss"),
        ("sop_accuracy", HEADLESS, r"sop_accuracy needs a head: one .*sentence_classes = 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            study_metrics(load_study(study_file(folder, metric=metric, one=one)))


def test_every_metric_is_scored_on_the_examples_and_with_the_tokenizer_of_the_first(folder):
    half = NONE.replace("}", ', data.split = "45/50/5" }')
    whole = SOP.replace("}", ', data.split = "90/5/5" }')
    path = study_file(folder, metric="sop_accuracy", one=half, two=whole)
    apart = [prepare(arm.loaded.recipe.data).tokenizer for arm in load_study(path).arms]
    assert apart[0].fingerprint != apart[1].fingerprint
    result = compared(path)
    assert (result["metric"], result["is_lower_better"]) == ("sop_accuracy", False)
    names = ["mlm_accuracy", "nsp_accuracy", "loss"]
    assert [each["metric"] for each in result["further"]] == names
    assert [each["is_lower_better"] for each in result["further"]] == [False, False, True]
    for arm in result["arms"]:
        assert all(0 <= value <= 1 for value in arm["values"]) and arm["curves"]
        assert list(arm["further"]) == names
    one, two = (arm["further"]["loss"]["values"] for arm in result["arms"])
    (difference,) = result["further"][2]["differences"]
    assert difference["mean"] == pytest.approx(two[0] - one[0])
    assert not any("another text" in note for note in result["notes"])
    run = folder / "out/arms/1-two/seed-0"
    recipe, model = RunFolder(run).recipe(), load(run)
    assert recipe.objective.sentence == "sop" and recipe.data.vocab_size is None
    data = prepare_data(recipe)
    assert data.tokenizer.fingerprint == apart[0].fingerprint
    objective = recipe.objective.model_copy(update={"sentence": "none"})
    scores = encoder_scores(model, data.test, objective, Scoring(32, 128))
    further = result["arms"][1]["further"]
    assert further["mlm_accuracy"]["values"] == pytest.approx([scores["mlm_accuracy"]])
    assert further["loss"]["values"] == pytest.approx([scores["loss"]], rel=1e-5)
    assert compared(path) == result


def test_metrics_that_some_arms_lack_are_missing_and_those_of_no_arm_left_out(folder):
    result = compared(study_file(folder, one=HEADLESS))
    names = ["nsp_accuracy", "sop_accuracy", "loss"]
    assert [each["metric"] for each in result["further"]] == names
    assert result["arms"][0]["further"]["sop_accuracy"] == {"seeds": [], "values": []}
    assert result["further"][1]["differences"][0]["mean"] is None
    # Arms of one text train one tokenizer.
    assert len(list((folder / "cache" / "tokenizers").iterdir())) == 1
    assert not (folder / "out/.tokenizer.json").exists()
    wide = HEADLESS.replace("set = {", "set = { model.d_ff = 24,")
    alike = compare(study_file(folder, one=HEADLESS, two=wide), seeds=1, out="headless")
    assert [each["metric"] for each in alike["further"]] == ["loss"]


DECODERS = """
seeds = 1
match = "none"
{head}
[scale.cpu]
recipe = "gpt"
set.data.context = 16
[[arms]]
name = "long"
[[arms]]
name = "short"
set = {{ data.context = 8 }}
"""


def scored(studies: Studies, head: str) -> tuple[Results, dict[str, Any]]:
    """Compare decoders of two contexts, scored as a study's file says."""
    Path("study.toml").write_text(DECODERS.format(head=head))
    short = settings_of(studies.text, "train.steps=3")
    settings = [each for each in short if not each.startswith("data.context")]
    recipes = {arm.name: arm.loaded.recipe for arm in load_study("study.toml", settings).arms}
    results, _ = run_study(["study.toml"], settings, Options(out=Path("out")))
    return results, recipes


def test_a_study_scores_the_split_and_the_tokens_that_it_names(studies, folder):
    head = 'score = { split = "valid", stride = 1, tokens = 50 }'
    results, recipes = scored(studies, head)
    assert results.split == "valid"
    assert any("also chose the checkpoint of each run:" in note for note in results.notes)
    for position, (name, recipe) in enumerate(recipes.items()):
        run = folder / f"out/arms/{position}-{name}/seed-0"
        ids = np.asarray(prepare_data(recipe).valid.ids)
        plan = spread_windows(len(ids), context=recipe.data.context, stride=1, max_tokens=50)
        assert len(plan) == 50
        # Each token by itself, at the end of a window that is a text of its own.
        model = load(run)
        nats = []
        for window in plan:
            tokens = torch.tensor([ids[window.start : window.stop].tolist()])
            logits = model(tokens[:, :-1]).logits[0, -1]
            nats.append(-logits.log_softmax(-1)[tokens[0, -1]].item())
        expected = sum(nats) / math.log(2) / 50
        assert results.arms[position].values[0] == pytest.approx(expected, rel=1e-4)
        items = read_items(run)
        assert items is not None and items.split == "valid"
        assert items.tables["windows"].columns["nats"] == pytest.approx(nats, rel=1e-4)
        assert (run / "valid.json").exists() and not (run / "test.json").exists()


def test_an_encoder_and_a_writer_of_text_are_compared_by_the_score_of_one_task(
    folder, workshop, capsys
):
    for name, settings in (("pair", ENCODER), ("text", {**WRITER, "model.positions": "learned"})):
        recipe = workshop.recipe(settings, **{"train.steps": 2, "train.evaluate_steps": 2}).recipe
        Path(f"{name}.toml").write_text(dump_recipe(recipe))
    words = ["compare", "pair.toml", "text.toml", "--match", "none", "--out", "out", "--json"]
    assert cli.main([*words, "--seeds", "3"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["differences"][0]["parts"]["items"] is None
    assert ([arm["name"] for arm in result["arms"]], result["metric"]) == (
        ["pair", "text"],
        "score",
    )
    # Both are scored on the same rows, whatever stands around them.
    assert not any("another text" in note for note in result["notes"])
    runs = [str(next(folder.glob(f"out/arms/{number}-*")) / "seed-0") for number in range(2)]
    assert cli.main(["compare", *runs]) == 2
    assert "objective.format = pair and text write examples" in capsys.readouterr().err


METRICS = {"loss": "windows"}


def run_of(seed, n_items=12, *, n_documents=3, digest="ab" * 32, spread=30.0):
    """A run whose windows of 128 tokens cost about 200 nats."""
    rng = np.random.default_rng(seed)
    documents = None if n_documents is None else np.arange(n_items) * n_documents // n_items
    columns = {
        "nats": rng.normal(200, spread, n_items),
        "tokens": np.full(n_items, 128),
        "bytes": np.arange(n_items) % 7 + 500,
        "correct": rng.integers(0, 20, n_items),
    }
    table = ItemTable("a window", digest, columns, documents)
    items = Items("test", "cd" * 32, {"windows": table})
    return RunItems(f"arm {seed % 2}", seed, items, {"windows": 1})


def header_of(path: Path) -> dict[str, Any]:
    data = lzma.decompress(path.read_bytes())
    entries = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    header: dict[str, Any] = json.loads(entries["__metadata__"]["header"])
    return header


def test_neighbours_of_a_document_are_added_worked_out_by_hand():
    columns = {"nats": np.array([[1.0, 2, 4, 8, 16]]), "counts": np.ones((1, 5, 2), dtype=np.uint8)}
    # Documents 0 and 1 take turns, as the examples of a pass do.
    stack = Stack(columns, np.array([0, 1, 0, 1, 0]))
    found = add_neighbours(stack, Compaction(added=2))
    # Of document 0: 1 + 4 and 16; of document 1: 2 + 8.
    assert found.columns["nats"].tolist() == [[5.0, 16.0, 10.0]]
    assert found.columns["counts"].tolist() == [[[2, 2], [1, 1], [2, 2]]]
    assert found.documents is not None and found.documents.tolist() == [0, 0, 1]
    across = add_neighbours(stack, Compaction(added=4, across_documents=True))
    assert across.columns["nats"].tolist() == [[1.0 + 4 + 16 + 2, 8.0]]
    assert across.documents is not None and across.documents.tolist() == [0, 1]
    without = add_neighbours(Stack(columns, None), Compaction(added=2))
    assert without.columns["nats"].tolist() == [[3.0, 12.0, 16.0]]
    assert add_neighbours(stack, Compaction()) is stack
    # Counts are added beyond their type.
    many = Stack({"counts": np.full((1, 4), 200, dtype=np.uint8)}, None)
    assert add_neighbours(many, Compaction(added=4)).columns["counts"].tolist() == [[800]]


def test_rounding_is_within_a_step_and_of_a_sum_within_half():
    column = np.random.default_rng(0).normal(200, 30, (3, 5000))
    found = round_column(column, 0.25) * 0.25
    assert np.abs(found - column).max() <= 0.25 * (1 + 1e-9)
    assert np.abs(found.sum(1) - column.sum(1)).max() <= 0.125 * (1 + 1e-6)


def test_a_small_study_keeps_every_item(tmp_path):
    runs = [run_of(seed) for seed in range(4)] + [run_of(4, 5, digest="ef" * 32)]
    path = tmp_path / STUDY_ITEMS
    write_study_items(path, "demo", runs, METRICS, missing=["arm 1, seed 9"])
    header = header_of(path)
    assert (header["study"], header["missing"]) == ("demo", ["arm 1, seed 9"])
    # The one that scored other items stands apart; what is equal in all runs is stored once.
    assert [group["runs"] for group in header["groups"]] == [[0, 1, 2, 3], [4]]
    assert header["groups"][0]["shared"] == ["tokens", "bytes"]
    assert header["groups"][0]["steps"] == {"nats": FINE}
    for run, found in zip(runs, read_study_items(path), strict=True):
        assert (found.arm, found.seed, found.added) == (run.arm, run.seed, {"windows": 1})
        before, after = run.items.tables["windows"], found.items.tables["windows"]
        assert after.digest == before.digest
        assert after.documents is not None and before.documents is not None
        assert after.documents.tolist() == before.documents.tolist()
        for name in ("tokens", "bytes", "correct"):
            assert after.columns[name].tolist() == before.columns[name].tolist()
        assert np.abs(after.columns["nats"] - before.columns["nats"]).max() <= FINE


def check_sums(runs: list[RunItems], found: list[RunItems]) -> None:
    """Nothing is dropped: all sums are as before, those of nats within half a step."""
    for run, read in zip(runs, found, strict=True):
        before, after = run.items.tables["windows"].sums(), read.items.tables["windows"].sums()
        for name in ("tokens", "bytes", "correct"):
            assert after[name] == before[name]
        assert abs(float(after["nats"] - before["nats"])) <= COARSE


@pytest.mark.parametrize("n_documents", [None, 300])
def test_any_limit_is_held_as_long_as_an_item_is_left(tmp_path, n_documents):
    runs = [run_of(seed, 300, n_documents=n_documents) for seed in range(3)]
    path = tmp_path / STUDY_ITEMS
    sizes = []
    for limit in (100_000, 3000, 2000, 1500, 10):
        write_study_items(path, "small", runs, METRICS, max_bytes=limit)
        sizes.append(path.stat().st_size)
        assert sizes[-1] <= limit or limit == 10
        check_sums(runs, read_study_items(path))
    assert sizes == sorted(sizes, reverse=True)
    (group,) = header_of(path)["groups"]
    assert group["added"] >= 300
    # Documents of one item each are only smaller together, and the header says so.
    assert group["across_documents"] is (n_documents == 300)


def altered(tmp_path: Path, **changed: Any) -> bytes:
    path = tmp_path / "whole"
    write_study_items(path, "demo", [run_of(0), run_of(1)], METRICS)
    header = header_of(path)
    header["groups"][0].update(changed)
    n_rows = {"nats": 2, "tokens": 1, "bytes": 1, "correct": 2}
    arrays = {f"0/{name}": np.ones((n, 12)) for name, n in n_rows.items()}
    arrays["0/documents"] = np.zeros(12, dtype=np.int64)
    return lzma.compress(dump_arrays(arrays, header))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"runs": [0, 7]}, "it has no run 7"),
        ({"runs": [0]}, "does not fit"),
        ({"shared": []}, "does not fit"),
        ({"steps": {"nats": "x"}}, "steps"),
    ],
    ids=str,
)
def test_a_damaged_header_is_refused_in_a_line(tmp_path, changed, message):
    path = tmp_path / STUDY_ITEMS
    path.write_bytes(altered(tmp_path))
    assert len(read_study_items(path)) == 2
    path.write_bytes(altered(tmp_path, **changed))
    with pytest.raises(CheckpointError) as error:
        read_study_items(path)
    assert message in str(error.value) and "\n" not in str(error.value)


JUNK = lzma.compress(b"x" * 100)


@pytest.mark.parametrize(
    "data",
    [b"no archive", JUNK[:-20], JUNK, lzma.compress(b"\0" * (129 << 20))],
    ids=["no archive", "cut short", "no arrays", "of 129 MiB unpacked"],
)
def test_what_is_no_file_of_items_is_refused_in_a_line(tmp_path, data):
    path = tmp_path / STUDY_ITEMS
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as error:
        read_study_items(path)
    assert STUDY_ITEMS in str(error.value) and "\n" not in str(error.value)
