"""Models of transformers that answer tasks come in with equal logits, and with their labels."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from sublayer.errors import CheckpointError
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.loading import load
from sublayer.objective.supervised.loss import unscaled
from tests.in_time import some_in_time
from tests.interop import conftest, encoders
from tests.interop.tiny import tiny

WEIGHTS = "model.safetensors"
LABELS = {"0": "no", "1": "it may be", "2": "yes"}
_OF_TOKENS, _OF_CHOICES = "BertForTokenClassification", "BertForMultipleChoice"
_MULTIPLE = "multi_label_classification"
each_encoder = pytest.mark.parametrize("name", ["bert", "albert"])
each_answer = pytest.mark.parametrize(
    ("ending", "head"),
    [
        ("ForSequenceClassification", "label"),
        ("ForMultipleChoice", "label"),
        ("ForQuestionAnswering", "span"),
    ],
)


def saved(place: Path, name: str, ending: str, seed: int = 0) -> Any:
    """Save a random encoder of a class as transformers does, and return it."""
    # A norm of two features would make one of all texts.
    sizes = {"hidden_size": 12, "num_attention_heads": 3}
    if name == "albert":
        sizes["embedding_size"] = [7, 12, 14][seed % 3]
    fields = {**encoders.random_fields(name, seed), **sizes}
    oracle = encoders.random_encoder(name, ending, **fields)
    oracle.double().save_pretrained(place)
    return oracle


@torch.inference_mode()
def theirs(oracle: Any) -> torch.Tensor:
    """Return the logits of texts, of choices as if each were a text, or of starts and ends."""
    given = encoders.batch()
    inputs = {
        "input_ids": given["tokens"],
        "attention_mask": given["mask"].long(),
        "token_type_ids": given["segments"],
    }
    if type(oracle).__name__.endswith("ForMultipleChoice"):
        choices: torch.Tensor = oracle(**{key: each[None] for key, each in inputs.items()}).logits
        return choices.T
    output = oracle(**inputs)
    if "start_logits" in output:
        spans = torch.stack([output.start_logits, output.end_logits], dim=-1)
        return spans[given["mask"]]
    logits: torch.Tensor = output.logits
    return logits


@torch.inference_mode()
def ours(model: Any, head: str) -> torch.Tensor:
    given = encoders.batch()
    logits: torch.Tensor = model(**given)[head]
    return logits[given["mask"]] if head == "span" else logits


@each_encoder
@each_answer
@pytest.mark.parametrize("seed", some_in_time(range(3), 3))
def test_an_encoder_that_answers_has_the_same_logits_here_and_back_there(
    tmp_path: Path, name: str, ending: str, head: str, seed: int
) -> None:
    import transformers

    oracle = saved(tmp_path / "theirs", name, ending, seed)
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    model = load(tmp_path / "ours")
    expected = theirs(oracle)
    assert expected.dtype == torch.float64
    assert expected.std() > 0.01
    torch.testing.assert_close(ours(model, head), expected, rtol=0, atol=1e-9)
    assert certificate["largest_difference"]["float64"] < 1e-9
    back = export_huggingface(model, tmp_path / "back")
    assert back["largest_difference"]["float64"] < 1e-9
    kind = getattr(transformers, f"Auto{'ModelFor' + ending.removeprefix('For')}")
    again = kind.from_pretrained(tmp_path / "back", dtype=torch.float64)
    assert type(again) is type(oracle)
    torch.testing.assert_close(theirs(again.eval()), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", some_in_time(range(6), 3))
@torch.inference_mode()
def test_a_gpt2_that_labels_has_the_same_logits_here_and_back_there(
    tmp_path: Path, seed: int
) -> None:
    import transformers

    torch.manual_seed(seed)
    padding = [None, 3][seed % 2]
    fields = {**conftest.random_fields(seed), "num_labels": 1 + seed % 3, "pad_token_id": padding}
    oracle = transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**fields))
    for parameter in oracle.parameters():
        parameter.normal_(std=0.3).add_(0.1)
    oracle.double().eval().save_pretrained(tmp_path / "theirs")
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    model = load(tmp_path / "ours")
    tokens = torch.randint(4, oracle.config.vocab_size, (1, oracle.config.n_positions))
    expected = oracle(tokens).logits
    torch.testing.assert_close(model(tokens)["label"], expected, rtol=0, atol=1e-9)
    assert certificate["largest_difference"]["float64"] < 1e-9
    assert not model.label_head.bias.any()
    export_huggingface(model, tmp_path / "back")
    before, after = (load_file(tmp_path / name / WEIGHTS) for name in ("theirs", "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("seed", some_in_time(range(4), 4))
@pytest.mark.parametrize(
    "kind", ["OpenAIGPTForSequenceClassification", "OpenAIGPTDoubleHeadsModel"]
)
@torch.inference_mode()
def test_a_gpt1_that_answers_has_the_same_logits_here_and_back_there(
    tmp_path: Path, kind: str, seed: int
) -> None:
    import transformers

    torch.manual_seed(seed)
    chooses = kind.endswith("DoubleHeadsModel")
    fields: dict[str, Any] = {
        "vocab_size": 19,
        "n_positions": 9,
        "n_embd": 12,
        "n_layer": 1 + seed % 3,
        "n_head": [1, 3][seed % 2],
        "afn": ["gelu", "relu", "silu"][seed % 3],
    }
    if not chooses:
        fields |= {"num_labels": 1 + seed % 3, "pad_token_id": [None, 3][seed % 2]}
    oracle = getattr(transformers, kind)(transformers.OpenAIGPTConfig(**fields))
    for parameter in oracle.parameters():
        parameter.normal_(std=0.3).add_(0.1)
    oracle.double().eval().save_pretrained(tmp_path / "theirs")
    certificate = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert certificate["largest_difference"]["float64"] < 1e-9
    model = load(tmp_path / "ours")
    task = model.task.tasks[0]
    assert task.kind == ("choice" if chooses else "number" if seed % 3 == 0 else "classes")
    tokens = torch.randint(4, 19, (3 if chooses else 1, 9))
    given = tokens[None] if chooses else tokens
    expected, found = oracle(given), model(tokens)
    if chooses:
        torch.testing.assert_close(found["label"].T, expected.mc_logits, rtol=0, atol=1e-9)
        torch.testing.assert_close(found.logits, expected.logits[0], rtol=0, atol=1e-9)
    else:
        torch.testing.assert_close(found["label"], expected.logits, rtol=0, atol=1e-9)
    export_huggingface(model, tmp_path / "back")
    again = getattr(transformers, kind).from_pretrained(tmp_path / "back", dtype=torch.float64)
    for key, value in oracle.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key


@pytest.mark.parametrize("kept", ["transformer.tokens_embed.weight", "lm_head.weight"])
def test_two_heads_may_name_their_one_matrix_either_way(tmp_path: Path, kept: str) -> None:
    model = tiny("openai-gpt for choices")
    names = {"transformer.tokens_embed.weight", "lm_head.weight"}
    (stored,) = names & model.tensors.keys()
    tensors = {key: each for key, each in model.tensors.items() if key != stored}
    tensors[kept] = model.tensors[stored]
    folder = type(model)(model.name, model.kind, model.fields, tensors).save(tmp_path / "theirs")
    found = read_huggingface(folder)
    assert torch.equal(found.embedding.weight, model.tensors[stored])


@each_encoder
@each_answer
def test_an_import_and_export_give_back_the_same_bits(
    tmp_path: Path, name: str, ending: str, head: str
) -> None:
    saved(tmp_path / "theirs", name, ending, seed=1)
    export_huggingface(read_huggingface(tmp_path / "theirs"), tmp_path / "back")
    before, after = (load_file(tmp_path / each / WEIGHTS) for each in ("theirs", "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(
    "name", ["bert for labels", "albert for labels", "gpt2 for labels", "openai-gpt for labels"]
)
def test_labels_are_those_of_the_folder_in_the_models_order(tmp_path: Path, name: str) -> None:
    import_huggingface(tiny(name).save(tmp_path / "theirs"), tmp_path / "ours")
    task = load(tmp_path / "ours").task.tasks[0]
    assert (task.kind, task.labels, task.fields) == ("classes", tuple(LABELS.values()), ("text",))
    shuffled = {"2": "yes", "0": "no", "1": "it may be"}
    folder = tiny(name).save(tmp_path / "shuffled", id2label=shuffled)
    assert read_huggingface(folder).task.tasks[0].labels == task.labels


def test_labels_without_words_are_called_as_there(tmp_path: Path) -> None:
    folder = tiny("bert for labels").save(tmp_path / "theirs", id2label=..., num_labels=3)
    labels = read_huggingface(folder).task.tasks[0].labels
    assert labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_what_is_asked_follows_from_the_class(tmp_path: Path) -> None:
    asked = {}
    for name in ("bert for choices", "albert for spans"):
        spec = read_huggingface(tiny(name).save(tmp_path / name)).task
        asked[name] = (spec.format, spec.context, spec.tasks[0].kind, spec.tasks[0].fields)
    assert asked == {
        "bert for choices": ("pair", 16, "choice", ("text",)),
        "albert for spans": ("pair", 16, "span", ("context", "question")),
    }


@pytest.mark.parametrize("problem", [..., None, "regression"])
def test_one_output_is_a_number_without_bounds(tmp_path: Path, problem: Any) -> None:
    original = tiny("bert for labels", id2label={"0": "score"})
    model = read_huggingface(original.save(tmp_path / "theirs", problem_type=problem))
    task = model.task.tasks[0]
    assert (task.kind, task.labels, task.is_bounded) == ("number", (), False)
    outputs = torch.tensor([-7.5, 0.25, 1e3])
    assert torch.equal(unscaled(task, outputs), outputs)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("bert for labels", {"problem_type": "regression"}, "of 3 outputs: .* one number"),
        ("bert for labels", {"num_labels": 4}, "num_labels = 4, and id2label has 3"),
        ("bert for labels", {"id2label": {"0": "a"}}, r"\[3, 12\], config.json says \[1, 12\]"),
        ("bert for labels", {"architectures": [_OF_TOKENS]}, "which labels tokens"),
        ("bert for labels", {"architectures": [_OF_CHOICES]}, r"config.json says \[1, 12\]"),
        ("bert for spans", {"num_labels": 3}, "num_labels = 3, and spans have 2"),
        ("gpt2 for labels", {"problem_type": _MULTIPLE}, "exclude each other"),
        ("openai-gpt for labels", {"num_labels": 4}, "num_labels = 4, and id2label has 3"),
        ("openai-gpt for choices", {"summary_type": "mean"}, "summary_type = 'mean'"),
        ("openai-gpt for choices", {"summary_activation": "tanh"}, "summary_activation = 'tanh'"),
    ],
)
def test_a_head_that_a_recipe_cannot_say_is_refused_by_field(
    tmp_path: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    folder = tiny(name).save(tmp_path / "theirs", **changes)
    with pytest.raises(CheckpointError, match=message) as caught:
        import_huggingface(folder, tmp_path / "ours")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "ours").exists()


def test_one_class_alone_is_refused(tmp_path: Path) -> None:
    original = tiny("bert for labels", id2label={"0": "yes"})
    folder = original.save(tmp_path / "theirs", problem_type="single_label_classification")
    with pytest.raises(CheckpointError, match="of one output: it has nothing to choose"):
        read_huggingface(folder)


@each_encoder
def test_a_pooler_that_spans_do_not_read_is_left_out(tmp_path: Path, name: str) -> None:
    oracle = saved(tmp_path / "theirs", name, "ForQuestionAnswering")
    tensors = load_file(tmp_path / "theirs" / WEIGHTS)
    tensors[f"{name}.pooler.weight"] = torch.ones(3)
    save_file(tensors, tmp_path / "theirs" / WEIGHTS)
    model = read_huggingface(tmp_path / "theirs")
    torch.testing.assert_close(ours(model, "span"), theirs(oracle), rtol=0, atol=1e-9)


@each_encoder
def test_a_classifier_without_its_pooler_is_refused(tmp_path: Path, name: str) -> None:
    saved(tmp_path / "theirs", name, "ForSequenceClassification")
    tensors = load_file(tmp_path / "theirs" / WEIGHTS)
    kept = {key: tensor for key, tensor in tensors.items() if "pooler" not in key}
    save_file(kept, tmp_path / "theirs" / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"the weights lack pooler.* and 1 other"):
        read_huggingface(tmp_path / "theirs")


def test_the_labels_of_a_folder_are_kept_by_its_model_folder(tmp_path: Path) -> None:
    import_huggingface(tiny("bert for labels").save(tmp_path / "theirs"), tmp_path / "ours")
    written = json.loads((tmp_path / "ours" / "task.json").read_text())
    assert written["tasks"][0]["labels"] == list(LABELS.values())


@pytest.mark.parametrize(
    "name", ["T5ForSequenceClassification", "T5EncoderModel", "GPT2DoubleHeadsModel"]
)
def test_a_class_with_another_head_is_refused_by_name(tmp_path: Path, name: str) -> None:
    import transformers

    small = {"vocab_size": 20, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    if name.startswith("T5"):
        config = transformers.T5Config(**small)
    else:
        config = transformers.GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2)
    getattr(transformers, name)(config).save_pretrained(tmp_path / "theirs")
    with pytest.raises(CheckpointError, match=f"is of {name}, which cannot be imported: "):
        import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
