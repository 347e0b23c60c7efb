"""Comparisons of encoders, by each metric, on the same examples for every arm."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sublayer.api.training import compare
from sublayer.config.layering.layers import load_recipe, vary
from sublayer.config.objectives.masked import MaskedObjective
from sublayer.data.prepare import prepare
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.items import FromItems, Items, ItemTable
from sublayer.loading import load
from sublayer.model.encoder import Encoder
from sublayer.objective.masked.scored_batches import Scoring
from sublayer.objective.masked.scores import encoder_scores
from sublayer.objective.metric import Metric
from sublayer.runs.folder import RunFolder
from sublayer.runs.session import prepare_data
from sublayer.study.arms import Arm
from sublayer.study.definition import Study, load_study
from sublayer.study.items.file_header import RunItems
from sublayer.study.judgement.evidence import scored_elsewhere
from sublayer.study.metrics import study_metrics
from sublayer.study.report.caveats import list_caveats
from sublayer.study.report.text_caveats import list_text_caveats

ACCURACIES = ["mlm_accuracy", "nsp_accuracy", "sop_accuracy"]
WORDS = [
    "reed",
    "river",
    "bends",
    "oak",
    "falls",
    "wind",
    "stands",
    "storm",
    "tall",
    "low",
    "root",
    "leaf",
    "rain",
]
STUDY = """
match = "none"
{metric}
[scale.cpu]
recipe = "albert-small"
[scale.cpu.set]
model = {{ n_layers = 1, d_model = 16, n_heads = 2, d_embed = 8 }}
[scale.cpu.set.data]
sentences = "lines"
documents = "blank-line"
vocab_size = 60
context = 32
path = "{path}"
[scale.cpu.set.train]
steps = 4
batch_sequences = 4
threads = 1
precision = "float32"
evaluate_tokens = 64
[[arms]]
name = "one"
{one}
[[arms]]
name = "two"
{two}
"""
NONE, SOP = ('set = { objective.sentence = "none" }', 'set = { objective.sentence = "sop" }')


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def study(
    folder: Path, *, metric: str = "", one: str = NONE, two: str = SOP, text: str = "text.txt"
) -> str:
    path = folder / "study.toml"
    line = f'metric = "{metric}"' if metric else ""
    path.write_text(STUDY.format(metric=line, path=folder / text, one=one, two=two))
    return str(path)


def compared(source: str, **options: Any) -> dict[str, Any]:
    return compare(source, seeds=1, out="out", **options)


def test_hidden_tokens_decide_where_a_study_names_no_metric(folder: Path):
    metrics = study_metrics(load_study(study(folder)))
    assert [metric.name for metric in metrics] == [*ACCURACIES, "loss"]
    assert [metric.is_lower_better for metric in metrics] == [False, False, False, True]


def test_the_metric_that_a_study_names_decides_and_the_others_keep_their_order(folder: Path):
    metrics = study_metrics(load_study(study(folder, metric="sop_accuracy")))
    assert [metric.name for metric in metrics] == [
        "sop_accuracy",
        "mlm_accuracy",
        "nsp_accuracy",
        "loss",
    ]


def test_a_decoder_is_compared_by_bits_per_byte_alone():
    assert [metric.name for metric in study_metrics(load_study("demo"))] == ["bits_per_byte"]


def test_an_unknown_metric_is_refused_with_the_choices(folder: Path):
    with pytest.raises(
        ConfigError, match=r"metric = 'accuracy' is not one of mlm_accuracy, nsp_accuracy.*loss"
    ):
        study_metrics(load_study(study(folder, metric="accuracy")))


def test_arms_of_different_objectives_have_no_metric_in_common():
    arms = tuple(Arm(name, load_recipe(name), {}) for name in ("gpt", "albert-small"))
    with pytest.raises(
        ConfigError, match=r"objective\.kind = causal and masked are scored by different metrics"
    ):
        study_metrics(Study("both", "", "", "none", None, arms))


def test_an_arm_without_a_head_cannot_be_judged_by_pairs(folder: Path):
    headless = 'set = { model.sentence_classes = 0, objective.sentence = "none" }'
    with pytest.raises(
        ConfigError,
        match=r"sop_accuracy needs a head: two has none with model\.sentence_classes = 0",
    ):
        study_metrics(load_study(study(folder, metric="sop_accuracy", one=SOP, two=headless)))


def test_text_without_pairs_cannot_decide_by_them(folder: Path):
    (folder / "single.txt").write_text("\n".join(document(number, 1) for number in range(60)))
    with pytest.raises(DataError, match="no document of the test split has two sentences"):
        compared(study(folder, metric="sop_accuracy", text="single.txt"))
    assert not list(folder.rglob("record.json"))


@pytest.mark.slow
def test_every_measure_is_scored_and_the_named_one_decides(folder: Path):
    result = compared(study(folder, metric="sop_accuracy"))
    assert result["metric"] == "sop_accuracy"
    assert not result["is_lower_better"]
    assert [each["metric"] for each in result["further"]] == [
        "mlm_accuracy",
        "nsp_accuracy",
        "loss",
    ]
    assert [each["is_lower_better"] for each in result["further"]] == [False, False, True]
    for arm in result["arms"]:
        assert all(0 <= value <= 1 for value in arm["values"])
        assert arm["curves"]
        assert list(arm["further"]) == ["mlm_accuracy", "nsp_accuracy", "loss"]
        assert all(each["seeds"] == [0] for each in arm["further"].values())
    one, two = (arm["further"]["loss"]["values"] for arm in result["arms"])
    (difference,) = result["further"][2]["differences"]
    assert difference["mean"] == pytest.approx(two[0] - one[0])


@pytest.mark.slow
def test_every_arm_is_scored_on_the_examples_of_the_first(folder: Path):
    result = compared(study(folder))
    run = folder / "out/arms/1-two/seed-0"
    recipe, model = RunFolder(run).recipe(), load(run)
    assert isinstance(recipe.objective, MaskedObjective)
    assert isinstance(model, Encoder)
    assert recipe.objective.sentence == "sop"
    test, scoring = prepare_data(recipe).test, Scoring(32, 128)
    scores = encoder_scores(
        model, test, recipe.objective.model_copy(update={"sentence": "none"}), scoring
    )
    assert result["arms"][1]["values"][0] == pytest.approx(scores["mlm_accuracy"], rel=1e-9)
    assert result["arms"][1]["further"]["loss"]["values"][0] == pytest.approx(
        scores["loss"], rel=1e-5
    )


@pytest.mark.slow
def test_what_no_arm_has_a_head_for_is_left_out_and_what_some_lack_is_missing(folder: Path):
    headless = 'set = { model.sentence_classes = 0, objective.sentence = "none" }'
    result = compared(study(folder, one=headless, two=SOP))
    assert [each["metric"] for each in result["further"]] == [
        "nsp_accuracy",
        "sop_accuracy",
        "loss",
    ]
    assert result["arms"][0]["further"]["sop_accuracy"] == {"seeds": [], "values": []}
    assert result["further"][1]["differences"][0]["mean"] is None
    wide = headless.replace("set = {", "set = { model.d_ff = 24,")
    result = compare(study(folder, one=headless, two=wide), seeds=1, out="headless")
    assert [each["metric"] for each in result["further"]] == ["loss"]


@pytest.mark.slow
def test_arms_on_different_text_have_the_tokenizer_of_the_first(folder: Path):
    half, whole = 'set = { data.split = "45/50/5" }', 'set = { data.split = "90/5/5" }'
    path = study(folder, one=half, two=whole)
    arms = load_study(path).arms
    apart = [prepare(arm.loaded.recipe.data).tokenizer for arm in arms]
    assert apart[0].fingerprint != apart[1].fingerprint
    result = compared(path)
    assert not any(
        "scored on another text" in note or "vocabulary" in note for note in result["notes"]
    )
    runs = [RunFolder(folder / f"out/arms/{arm}/seed-0").recipe() for arm in ("0-one", "1-two")]
    assert [prepare_data(recipe).tokenizer.fingerprint for recipe in runs] == [
        apart[0].fingerprint
    ] * 2
    assert runs[1].data.vocab_size is None
    assert compared(path) == result


def test_other_text_and_other_vocabularies_are_noted(folder: Path):
    (folder / "other.txt").write_text("\n".join(document(number + 3, 5) for number in range(60)))
    arm = load_study(study(folder)).arms[0]
    other = vary(arm.loaded, {"data.path": str(folder / "other.txt"), "data.vocab_size": 50})
    data = {"one": prepare(arm.loaded.recipe.data), "two": prepare(other.recipe.data)}
    metric = Metric("loss", "nats", is_lower_better=True, from_items=None)
    small, text, vocabulary = list_text_caveats(data, metric)
    assert small.startswith("The test split is 4 documents: ")
    assert text.startswith("two: scored on another text")
    assert vocabulary.startswith("two: another vocabulary")
    alike = {"one": data["one"], "two": replace(data["one"])}
    assert list_text_caveats(alike, metric) == [small]
    translated = {
        name: replace(each, test=replace(each.test, read_pairs=list)) for name, each in data.items()
    }
    *_, of_pairs = list_text_caveats(translated, metric)
    assert of_pairs.endswith(
        "vocabulary than the baseline's, so that nats per token do not compare."
    )
    # An arm has the text of what it is compared with, a control that of itself.
    pairs = {**data, "three": replace(data["two"])}
    against = {"two": "two", "three": "two"}
    assert list_text_caveats(pairs, metric, against=against) == [small]
    crossed = list_text_caveats(pairs, metric, against={"two": "three"})
    assert [note.partition(":")[0] for note in crossed[1:]] == ["three", "three"]


@pytest.mark.slow
def test_arms_of_one_text_train_one_tokenizer(folder: Path):
    compared(study(folder))
    assert len(list((folder / "cache" / "tokenizers").iterdir())) == 1
    assert not (folder / "out/.tokenizer.json").exists()


def test_what_cannot_be_compared_is_noted_by_what_the_metric_is_of(folder: Path):
    data = {"one": prepare(load_study(study(folder)).arms[0].loaded.recipe.data)}

    def notes(basis: str, *elsewhere: str, is_lossless: bool = True) -> tuple[str, ...]:
        metric = Metric("x", "nats", is_lower_better=True, from_items=None, basis=basis)  # type: ignore[arg-type]
        test = data["one"].test
        store = replace(test.store, is_lossless=is_lossless)
        known = {"one": replace(data["one"], test=replace(test, store=store))}
        texts = list_text_caveats(known, metric)
        small, *others = list_caveats(texts, metric=metric, elsewhere=elsewhere)
        assert small.startswith("The test split is")
        return tuple(others)

    (targets,) = notes("items", "two")
    assert targets.startswith("two: scored on other targets than the baseline, so that nats do not")
    (lossy,) = notes("bytes", "two", is_lossless=False)
    assert lossy.startswith("The tokenizer of one does not keep every byte")
    assert notes("items", is_lossless=False) == notes("scores", "two", is_lossless=False) == ()


def test_arms_whose_items_differ_from_the_baselines_are_found():
    metric = Metric("x", "nats", is_lower_better=True, from_items=FromItems("pieces", len))

    def run(arm: str, digest: str) -> RunItems:
        table = ItemTable("a piece", digest, {}, None)
        return RunItems(arm, 0, Items("test", "", {"pieces": table}), {"pieces": 1})

    kept = [run("one", "a"), run("two", "a"), run("three", "b")]
    assert scored_elsewhere(kept, "one", metric) == ["three"]
    assert scored_elsewhere(kept, "one", metric, {"three": "three"}) == []
    assert scored_elsewhere(kept, "one", metric, {"two": "three"}) == ["two", "three"]
    assert scored_elsewhere(kept, "none of them", metric) == []
    assert scored_elsewhere(kept, "one", replace(metric, from_items=None)) == []


def test_compounds_are_scored_where_words_are_divided_at_hyphens(tmp_path: Path):
    arms = "".join(
        f'[[arms]]\nname = "{name}"\nset = {{ {setting} }}\n'
        for name, setting in (("one", "data.moses_hyphens = true"), ("two", "model.d_ff = 8"))
    )
    path = tmp_path / "hyphens.toml"
    path.write_text(f'metric = "bleu_compounds"\n[scale.cpu]\nrecipe = "multi30k-tiny"\n{arms}')
    with pytest.raises(
        ConfigError,
        match="bleu_compounds needs words that are divided at hyphens: "
        "two has none with data.moses_hyphens = false",
    ):
        study_metrics(load_study(str(path)))
    both = path.read_text().replace("model.d_ff = 8", "model.d_ff = 8, data.moses_hyphens = true")
    path.write_text(both)
    assert study_metrics(load_study(str(path)))[0].name == "bleu_compounds"
