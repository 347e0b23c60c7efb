"""Metrics by which arms are scored."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sublayer.api.run import load
from sublayer.cli import main as cli
from sublayer.config.load import dump_recipe
from sublayer.config.resolve import expected_model, rows_of_example
from sublayer.data.prepare import prepare
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.items import FromItems, Items, ItemTable, Metric, read_items, write_items
from sublayer.model.estimates import count_parameters
from sublayer.objective.causal import spread_windows, windows
from sublayer.objective.masked import Scoring, encoder_scores
from sublayer.runs.folder import RunFolder
from sublayer.runs.session import Place, prepare_data, resolve
from sublayer.study.arms import PRETRAINING
from sublayer.study.collect import list_caveats, list_text_caveats
from sublayer.study.columns import study_metrics
from sublayer.study.definition import Options, load_study
from sublayer.study.evidence import scored_elsewhere
from sublayer.study.jobs.run import Outcome
from sublayer.study.runner import run_study
from sublayer.study.runs import StageRuns
from sublayer.study.step_time import train_step
from sublayer.training.world import World
from tests.made import PAIR, TEXT, TRAVERSAL
from tests.study.studies import WORDS, compared, settings_of

STUDY = """
match = "none"
{metric}
arms = [{{ name = "one", set = {{ {one} }} }}, {{ name = "two", set = {{ {two} }} }}]
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
path = "{text}"
"""
HEADLESS = 'model.sentence_classes = 0, objective.sentence = "none"'
NONE, SOP = 'objective.sentence = "none"', 'objective.sentence = "sop"'
SST2 = {"data.tasks": "sst2"}
DECODER = {key: value for key, value in TEXT.items() if not key.startswith("model.")}
DECODERS = """
seeds = 1
match = "none"
score = { split = "valid", stride = 1, tokens = 50 }
scale.cpu = { recipe = "gpt", set.data.context = 16 }
arms = [{ name = "long" }, { name = "short", set = { data.context = 8 } }]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a cache of its own, and a text of 60 documents of 4 sentences."""
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_documents("text.txt", 4)
    return tmp_path


def write_documents(name: str, n_sentences: int, first: int = 0) -> None:
    documents = []
    for number in range(first, first + 60):
        drawn = [[number * 7 + i * i + 3 * s for i in range(6)] for s in range(n_sentences)]
        sentences = [" ".join(WORDS[place % len(WORDS)] for place in each) for each in drawn]
        documents.append("".join(f"{each}.\n" for each in sentences))
    Path(name).write_text("\n".join(documents))


def study_file(metric: str = "", *, one: str = NONE, two: str = SOP, text: str = "text.txt") -> str:
    named = {"metric": f'metric = "{metric}"' if metric else "", "text": Path(text).resolve()}
    Path("study_file.toml").write_text(STUDY.format(**named, one=one, two=two))
    return "study_file.toml"


def test_the_metric_that_a_study_names_decides_and_the_others_keep_their_order(folder):
    others = ["mlm_accuracy", "nsp_accuracy", "loss"]
    for named, names in (
        ("sop_accuracy", ["sop_accuracy", *others]), ("", [*others[:2], "sop_accuracy", "loss"]),
    ):  # fmt: skip
        metrics = study_metrics(load_study(study_file(named)))
        assert [metric.name for metric in metrics] == names
        assert [metric.is_lower_better for metric in metrics] == [False, False, False, True]
    for metric, one, message in (
        ("accuracy", NONE, "metric = 'accuracy' is not one of mlm_accuracy, nsp_accuracy.*loss"),
        ("sop_accuracy", HEADLESS, r"sop_accuracy needs a head: one .*sentence_classes = 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            study_metrics(load_study(study_file(metric, one=one)))
    write_documents("single.txt", 1)
    with pytest.raises(DataError, match="no document of the test split has two sentences"):
        compared(study_file("sop_accuracy", text="single.txt"), seeds=1, out="out")
    assert not list(folder.rglob("record.json"))


def test_other_texts_vocabularies_and_items_are_noted_by_the_basis_of_the_metric():
    write_documents("other.txt", 5, first=3)
    arm = load_study(study_file()).arms[0]
    other = arm.loaded.vary({"data.path": "other.txt", "data.vocab_size": 50})
    data = {"one": prepare(arm.loaded.recipe.data), "two": prepare(other.recipe.data)}
    metric = Metric("loss", "nats", is_lower_better=True, from_items=None)
    small, text, vocabulary = list_text_caveats(data, metric)
    assert "only 4 documents" in small
    assert text.startswith("two: scored on a different text")
    assert vocabulary.startswith("two: the vocabulary differs")
    assert list_text_caveats({"one": data["one"], "two": replace(data["one"])}, metric) == [small]
    pairs = {**data, "three": replace(data["two"])}
    against = {"two": "two", "three": "two"}
    assert list_text_caveats(pairs, metric, against=against) == [small]
    crossed = list_text_caveats(pairs, metric, against={"two": "three"})
    assert [note.partition(":")[0] for note in crossed[1:]] == ["three", "three"]
    data = prepare(load_study(study_file()).arms[0].loaded.recipe.data)
    lossy = replace(data.test, store=replace(data.test.store, is_lossless=False))

    def notes(basis: str, split, *elsewhere: str) -> list[str]:
        metric = Metric("x", "nats", is_lower_better=True, from_items=None, basis=basis)
        texts = list_text_caveats({"one": replace(data, test=split)}, metric)
        _, *others = list_caveats(texts, metric, elsewhere)
        return [" ".join(note.split()[:4]) for note in others]

    assert notes("items", data.test, "two") == ["two: scored on different"]
    assert notes("bytes", lossy, "two") == ["The tokenizer of one"]
    assert notes("items", lossy) == notes("scores", lossy, "two") == []
    metric = Metric("x", "nats", is_lower_better=True, from_items=FromItems("pieces", len))
    runs = {}
    for arm, digest in (("one", "a"), ("two", "a"), ("three", "b")):
        of_pieces = ItemTable("", digest * 64, {"n": np.ones(1)}, None)
        Path(arm).mkdir()
        write_items(Path(arm), Items("test", "c" * 64, {"pieces": of_pieces}), {})
        runs[arm, PRETRAINING] = StageRuns({0: [Outcome(Path(arm), test={})]})
    cases = [({}, ["three"]), ({"three": "three"}, []), ({"two": "three"}, ["two", "three"])]
    for against, expected in cases:
        assert scored_elsewhere(runs, "one", metric, against) == expected


def test_windows_score_the_tokens_and_the_split_that_a_study_names(studies):
    # 40 targets in 20 parts of 2: the middles of 3 equal shares are parts 3, 10 and 16.
    for context, starts in ((4, [4, 18, 30]), (9, [0, 13, 25])):
        plan = spread_windows(41, context=context, stride=2, max_tokens=7)
        targets = [place for window in plan for place in range(window.first, window.stop)]
        assert targets == [7, 8, 21, 22, 33, 34]
        assert [window.start for window in plan] == starts
    whole = spread_windows(41, context=4, stride=2, max_tokens=40)
    assert whole == windows(41, context=4, stride=2)
    Path("study.toml").write_text(DECODERS)
    short = settings_of(studies.text, "train.steps=3")
    settings = [each for each in short if not each.startswith("data.context")]
    results, _ = run_study(["study.toml"], settings, Options(out=Path("out")))
    assert results.split == "valid"
    assert any("also chose the checkpoint of each run:" in note for note in results.notes)
    for position, arm in enumerate(load_study("study.toml", settings).arms):
        recipe, run = arm.loaded.recipe, Path(f"out/arms/{position}-{arm.name}/seed-0")
        ids = np.asarray(prepare_data(recipe).valid.ids)
        plan = spread_windows(len(ids), context=recipe.data.context, stride=1, max_tokens=50)
        assert len(plan) == 50
        model, nats = load(run).model, []
        for window in plan:
            tokens = torch.tensor([ids[window.start : window.stop].tolist()])
            logits = model(tokens[:, :-1]).logits[0, -1]
            nats.append(-logits.log_softmax(-1)[tokens[0, -1]].item())
        expected = sum(nats) / math.log(2) / 50
        assert results.arms[position].values[0] == pytest.approx(expected, rel=1e-4)
        items = read_items(run)
        assert items.split == "valid"
        assert items.tables["windows"].columns["nats"] == pytest.approx(nats, rel=1e-4)
        assert (run / "valid.json").exists() and not (run / "test.json").exists()


@pytest.mark.parametrize("settings, n_rows", [
    ({**PAIR, **SST2}, 1), (PAIR, 1), ({**PAIR, "data.tasks": "copa"}, 2), (TRAVERSAL, 2),
    ({**TRAVERSAL, "data.tasks": "stsb", "objective.language_weight": 0.0}, 2),
    ({**TEXT, "data.tasks": ["sst2", "rte"]}, 1), ({**DECODER, **SST2}, 1),
], ids=["labels", "numbers", "choices", "traversals", "orders", "text", "decoder"])  # fmt: skip
def test_a_plan_has_the_parameters_of_a_run_and_times_random_examples(settings, n_rows, workshop):
    recipe = workshop.recipe(settings).recipe
    data = prepare_data(recipe)
    resolved = resolve(recipe, data, Place(torch.device("cpu"), World(rank=0, size=1)))
    planned = expected_model(recipe, data.tokenizer.vocab_size)
    assert count_parameters(planned) == count_parameters(resolved.model)
    take_step = train_step(recipe, 90, torch.device("cpu"))
    batch = take_step.batches.batch(0)
    assert rows_of_example(recipe) == n_rows
    assert batch.read.tokens.shape == (6 * n_rows, 32) and batch.read.mask is None
    assert take_step.n_tokens(0) == batch.n_tokens
    # An example of one sequence shares its row, as real ones do.
    assert (batch.read.document_ids is None) == (n_rows > 1)
    result = take_step(0)
    assert torch.isfinite(result.loss) and result.gradient_norm > 0


def test_every_metric_is_scored_on_the_examples_and_with_the_tokenizer_of_the_first():
    one, two = f'{NONE}, data.split = "45/50/5"', f'{SOP}, data.split = "90/5/5"'
    path = study_file("sop_accuracy", one=one, two=two)
    first, second = (prepare(arm.loaded.recipe.data).tokenizer for arm in load_study(path).arms)
    assert first.fingerprint != second.fingerprint
    result = compared(path, seeds=1, out="out")
    assert (result["metric"], result["is_lower_better"]) == ("sop_accuracy", False)
    further = {each["metric"]: each["is_lower_better"] for each in result["further"]}
    assert further == {"mlm_accuracy": False, "nsp_accuracy": False, "loss": True}
    for arm in result["arms"]:
        assert all(0 <= value <= 1 for value in arm["values"]) and arm["curves"]
        assert list(arm["further"]) == list(further)
    one, two = (arm["further"]["loss"]["values"] for arm in result["arms"])
    (difference,) = result["further"][2]["differences"]
    assert difference["mean"] == pytest.approx(two[0] - one[0])
    assert not any("another text" in note for note in result["notes"])
    run = Path("out/arms/1-two/seed-0")
    recipe = RunFolder(run).recipe()
    assert recipe.objective.sentence == "sop" and recipe.data.vocab_size is None
    data = prepare_data(recipe)
    assert data.tokenizer.fingerprint == first.fingerprint
    objective = recipe.objective.model_copy(update={"sentence": "none"})
    scores = encoder_scores(load(run).model, data.test, objective, Scoring(32, 128))
    for name in ("mlm_accuracy", "loss"):
        found = result["arms"][1]["further"][name]["values"]
        assert found == pytest.approx([scores[name]], rel=1e-5)
    assert compared(path, seeds=1, out="out") == result


def test_metrics_that_some_arms_lack_are_missing_and_those_of_no_arm_left_out(folder):
    result = compared(study_file(one=HEADLESS), seeds=1, out="out")
    names = ["nsp_accuracy", "sop_accuracy", "loss"]
    assert [each["metric"] for each in result["further"]] == names
    assert result["arms"][0]["further"]["sop_accuracy"] == {"seeds": [], "values": []}
    assert result["further"][1]["differences"][0]["mean"] is None
    assert len(list((folder / "cache" / "tokenizers").iterdir())) == 1
    assert not (folder / "out/.tokenizer.json").exists()
    wide = study_file(one=HEADLESS, two=f"{HEADLESS}, model.d_ff = 24")
    alike = compared(wide, seeds=1, out="headless")
    assert [each["metric"] for each in alike["further"]] == ["loss"]


def test_an_encoder_and_a_writer_of_text_are_compared_by_the_score_of_one_task(workshop, capsys):
    learned = {**TEXT, **SST2, "model.positions": "learned"}
    for name, settings in (("pair", {**PAIR, **SST2}), ("text", learned)):
        recipe = workshop.recipe(settings, **{"train.steps": 2, "train.evaluate_steps": 2}).recipe
        Path(f"{name}.toml").write_text(dump_recipe(recipe))
    words = ["compare", "pair.toml", "text.toml", "--match", "none", "--out", "out", "--json"]
    assert cli.main([*words, "--seeds", "3"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["differences"][0]["parts"]["items"] is None and result["metric"] == "score"
    assert not any("another text" in note for note in result["notes"])
    assert cli.main(["compare", *(f"out/arms/{arm}/seed-0" for arm in ("0-pair", "1-text"))]) == 2
    assert "objective.format = pair and text write examples" in capsys.readouterr().err
