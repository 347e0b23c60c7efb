"""Models that answer tasks in and out: logits, labels, tasks, pipelines, refusals."""

import json
import shutil

import pytest
import torch

from sublayer import cli
from sublayer.errors import ConfigError
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.loading import load
from sublayer.objective.supervised.loss import unscaled
from sublayer.tasks.example import Example
from sublayer.tasks.registry import TASKS
from tests.interop.answering import CONTEXT, answered, model_for
from tests.interop.folders import change_json, change_weights, check_refused, close, read_json
from tests.interop.tiny import tiny
from tests.task_files import write_rte


@pytest.mark.parametrize("kept", ["transformer.tokens_embed.weight", "lm_head.weight"])
def test_two_heads_may_name_their_one_matrix_either_way(tmp_path, kept):
    original = tiny("openai-gpt for choices")
    (stored,) = {"transformer.tokens_embed.weight", "lm_head.weight"} & original.tensors.keys()
    folder = original.save(tmp_path / "theirs")
    change_weights(folder, lambda held: {kept: held.pop(stored), **held})
    assert torch.equal(read_huggingface(folder).embedding.weight, original.tensors[stored])


def test_labels_without_words_and_single_outputs_are_read(tmp_path):
    folder = tiny("bert for labels").save(tmp_path / "plain", id2label=..., num_labels=3)
    worded = tiny("bert for labels", id2label={"2": "yes", "0": "no", "1": "it may be"})
    read = [read_huggingface(each) for each in (folder, worded.save(tmp_path / "worded"))]
    labels = [model.task.tasks[0].labels for model in read]
    assert labels == [("LABEL_0", "LABEL_1", "LABEL_2"), ("no", "it may be", "yes")]
    original = tiny("bert for labels", id2label={"0": "score"})
    for problem in (..., "regression"):
        folder = original.save(tmp_path / "number", problem_type=problem)
        task = read_huggingface(folder).task.tasks[0]
        assert (task.kind, task.labels, task.is_bounded) == ("number", (), False)
        outputs = torch.tensor([-7.5, 0.25, 1e3])
        assert torch.equal(unscaled(task, outputs), outputs)
    folder = original.save(tmp_path / "one", problem_type="single_label_classification")
    check_refused(folder, "of one output: it has nothing to choose")


@pytest.mark.parametrize("name, changes, message", [
    ("bert for labels", {"num_labels": 4}, "num_labels = 4, and id2label has 3"),
    ("bert for labels", {"id2label": {"0": "a"}}, r"\[3, 12\], config.json says \[1, 12\]"),
    ("bert for labels", {"architectures": ["BertForTokenClassification"]}, "labels tokens"),
    ("openai-gpt for choices", {"summary_activation": "tanh"}, "summary_activation = 'tanh'"),
])  # fmt: skip
def test_a_head_that_no_recipe_has_is_refused_by_field(tmp_path, name, changes, message):
    folder = tiny(name).save(tmp_path / "theirs", **changes)
    check_refused(folder, message)


@pytest.mark.parametrize("name, task, title", [
    ("albert", "stsb", "AlbertForSequenceClassification"),
    ("albert", "copa", "AlbertForMultipleChoice"), ("bert", "squad", "BertForQuestionAnswering"),
    ("gpt2", "mnli", "GPT2ForSequenceClassification"),
    ("gpt1", "race", "OpenAIGPTDoubleHeadsModel"), ("t5", "sst2", "T5ForConditionalGeneration"),
])  # fmt: skip
def test_an_export_is_of_the_class_that_answers_and_comes_back_with_its_task(
    tmp_path, name, task, title
):
    model = model_for(name, TASKS[task]).double()
    certificate = export_huggingface(model, tmp_path / "exported")
    assert certificate["largest_difference"]["float64"] < 1e-9
    fields = read_json(tmp_path / "exported" / "config.json")
    settings = read_json(tmp_path / "exported" / "tokenizer_config.json")
    assert (fields["architectures"], settings["model_max_length"]) == ([title], CONTEXT)
    if task == "mnli":
        words = ["entailment", "neutral", "contradiction"]
        assert fields["id2label"] == {str(index): word for index, word in enumerate(words)}
        assert fields["label2id"] == dict(zip(words, range(3), strict=True))
        assert fields["problem_type"] == "single_label_classification"
    import_huggingface(tmp_path / "exported", tmp_path / "again")
    again = load(tmp_path / "again")
    assert again.task == model.task
    text = b"the cat ran over the field"
    assert again.tokenizer.encode(text).tolist() == model.tokenizer.encode(text).tolist()
    assert again.tokenizer.added_ids == model.tokenizer.added_ids


@pytest.mark.parametrize("name", ["bert", "gpt1"])
def test_labels_without_a_task_have_numbers_and_other_heads_are_left_out(tmp_path, name):
    model = model_for(name, TASKS["mnli"], head="transform" if name == "bert" else "linear")
    model.task = None
    certificate = export_huggingface(model, tmp_path / "exported")
    assert read_json(tmp_path / "exported" / "config.json")["id2label"]["2"] == "LABEL_2"
    assert not (tmp_path / "exported" / "task.json").exists()
    assert "vocabulary head" in certificate["left_out"]
    assert read_huggingface(tmp_path / "exported").config.head == "none"


@pytest.mark.parametrize("name, fields", [
    ("gpt1", {"share": "all"}), ("gpt2", {"norm_affine": False, "final_norm": "plain"}),
])  # fmt: skip
def test_a_bias_of_labels_is_written_by_way_of_the_last_norm(tmp_path, name, fields):
    from transformers import AutoModelForSequenceClassification

    model, folder = model_for(name, TASKS["mnli"], **fields).double(), tmp_path / "exported"
    certificate = export_huggingface(model, folder)
    assert certificate["largest_difference"]["float64"] < 1e-9
    oracle = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64)
    # The padding, which the last token that counts stands before.
    pad = oracle.config.pad_token_id
    ids = torch.tensor([[4, 9, 7, 8, 5], [6, 3, pad, pad, pad]])
    with torch.inference_mode():
        close(oracle.eval()(ids).logits, model(ids, ids != pad)["label"])


def test_a_gain_of_zero_writes_no_bias_of_labels(tmp_path):
    model = model_for("gpt2", TASKS["mnli"])
    torch.nn.init.zeros_(model.final_norm.weight)
    with pytest.raises(ConfigError, match="final_norm has a gain of zero"):
        export_huggingface(model, tmp_path / "exported")


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_one_output_of_two_labels_becomes_one_of_each(tmp_path, name):
    model = model_for(name, TASKS["sst2"], label_outputs=1).double()
    export_huggingface(model, tmp_path / "exported")
    again = read_huggingface(tmp_path / "exported")
    assert again.config.label_outputs == 2
    examples = [Example("0", {"sentence": "the cat ran"})]
    close(answered(again, examples), answered(model, examples))


@pytest.mark.parametrize("name, task, fields, message", [
    ("gpt2", "qqp", {}, "both orders .* reads one row"),
    ("gpt1", "qqp", {}, "OpenAIGPTForSequenceClassification reads one row"),
    ("gpt2", "copa", {}, "a row for each choice"),
    ("gpt1", "copa", {"head": "none"}, "model.head = none: .*objective.language_weight"),
    ("bert", "mnli", {"pooler": "none"}, "model.pooler = none: .*model.pooler=tanh"),
    ("bert", "mnli", {"norm": "rms"}, "model.norm = rms: the model cannot be exported$"),
])  # fmt: skip
def test_a_task_that_no_class_answers_is_refused(tmp_path, name, task, fields, message):
    with pytest.raises(ConfigError, match=message):
        export_huggingface(model_for(name, TASKS[task], **fields), tmp_path / "exported")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers") / "exported"
    export_huggingface(model_for("bert", TASKS["mnli"]), folder)
    return folder


_TABLE = {"kind": "choice", "labels": [], "name": "table", "suite": "table"}


@pytest.mark.parametrize("changes, of_task, message", [
    ({"format": "traversal"}, {}, "of format traversal, which no encoder reads"),
    ({"context": CONTEXT + 1}, {}, "65 tokens, more than 64"),
    ({"version": [1] * 99}, {}, "of version"), ({"threshold": "x"}, {}, "threshold is no number"),
    ({"answer": "guess"}, {}, "does not say how an answer"),
    ({}, {"labels": ["neutral", "entailment", "contradiction"]}, "labels neutral"),
    ({}, {"labels": [1, 2, 3]}, "its labels are no texts"), ({}, _TABLE, "choice, not classes"),
    ({}, {"kind": "x"}, "is no kind of task"),
    ({}, {"numbers": [1, 1]}, "not the lowest and the highest"),
])  # fmt: skip
def test_a_damaged_or_contradicted_task_is_refused(exported, tmp_path, changes, of_task, message):
    path = shutil.copytree(exported, tmp_path / "exported") / "task.json"
    (task,) = read_json(path)["tasks"]
    change_json(path, **{"tasks": [task | of_task], **changes})
    check_refused(tmp_path / "exported", f"task.json.*{message}")


def test_a_task_is_of_a_format_and_a_head_that_the_model_has(exported, tmp_path):
    spec = read_json(exported / "task.json")
    for name, format_, message in (
        ("gpt2", "traversal", "of format traversal: the model has no such head"),
        ("t5", "pair", "of format pair, which no encoder-decoder reads"),
    ):
        path = tiny(name).save(tmp_path / name) / "task.json"
        path.write_text(json.dumps({**spec, "format": format_, "context": 16}))
        check_refused(path.parent, message)


FIRST = ["the dog ran over the mat", "It is the BEST of them all!", "nothing, and wrong", "a"]
SECOND = ["the cat", "everyone who saw it smiled", "not so", "a film that the cat would"]
# Longer than the context.
LONG = "the field and the cat and the mat and the dog, all of them wrong, " * 3
SENTENCES = ([{"sentence": text} for text in (*FIRST, LONG)], [*FIRST, LONG])
PAIRS = (
    [{"premise": one, "hypothesis": two} for one, two in zip(FIRST, SECOND, strict=True)],
    [{"text": one, "text_pair": two} for one, two in zip(FIRST, SECOND, strict=True)],
)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
@pytest.mark.parametrize(("task", "fields"), [("sst2", SENTENCES), ("mnli", PAIRS)])
def test_pipelines_of_transformers_answer_as_the_exported_model(tmp_path, name, task, fields):
    from transformers import pipeline

    model = model_for(name, TASKS[task])
    export_huggingface(model, tmp_path / task)
    asked = pipeline("text-classification", model=str(tmp_path / task), device="cpu")
    expected = answered(model, [Example("0", each) for each in fields[0]])
    assert expected.std(0).max() > 1e-3
    found = asked(fields[1], top_k=None, truncation=True)
    for answers, probabilities in zip(found, expected.tolist(), strict=True):
        scores = {answer["label"]: answer["score"] for answer in answers}
        labelled = dict(zip(TASKS[task].labels, probabilities, strict=True))
        assert scores == pytest.approx(labelled, abs=1e-5)


def test_a_score_depends_on_the_words_of_labels_and_not_on_their_order(tmp_path, capsys):
    folder, tasks = tmp_path / "theirs", write_rte(tmp_path / "tasks")
    export_huggingface(model_for("bert", TASKS["rte"]), folder)
    (folder / "task.json").unlink()
    import_huggingface(folder, tmp_path / "plain")
    places = ("classifier.weight", "classifier.bias")
    change_weights(folder, lambda held: held | {name: held[name].flip(0) for name in places})
    change_json(folder / "config.json", id2label={"0": "NOT_ENTAILMENT", "1": "Entailment"})
    import_huggingface(folder, tmp_path / "turned")

    def evaluate(name, *options):
        words = ["evaluate", str(tmp_path / name), "--path", str(tasks), "--json", *options]
        return cli.main(words), capsys.readouterr().out

    plain, turned = (json.loads(evaluate(name, "--task", "rte")[1]) for name in ("plain", "turned"))
    assert plain["tasks"] == turned["tasks"]
    assert plain["loss"] == pytest.approx(turned["loss"], abs=1e-6) and plain["loss"] > 0
    assert [evaluate("plain", *options)[0] for options in ((), ("--task", "sst2"))] == [2, 2]
