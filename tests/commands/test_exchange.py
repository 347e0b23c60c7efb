"""``sublayer import`` and ``export``, the certificate, and the commands that are named as next."""

import json

import pytest

from sublayer.commands.shared.following import after_import, after_training
from sublayer.config.layering.layers import load_recipe
from sublayer.interop.huggingface.exchange import export_huggingface
from sublayer.model.model_folder import save_model
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import spec_files
from tests.interop.answering import model_for
from tests.interop.test_encoders import MAX_LEN, VOCAB_SIZE, random_encoder, released, write_bundle
from tests.interop.test_gpt1 import draw as draw_arrays
from tests.interop.test_gpt1 import save as save_arrays

SIZES = {
    "hidden_size": 6,
    "embedding_size": 4,
    "num_attention_heads": 2,
    "intermediate_size": 7,
    "num_hidden_layers": 2,
    "vocab_size": VOCAB_SIZE,
    "max_position_embeddings": MAX_LEN,
}

CHECKED = "largest difference of logits from transformers "


def test_a_run_goes_out_and_comes_back(sublayer, trained, tmp_path, monkeypatch):
    there, back = tmp_path / "out", tmp_path / "back"
    first, second, _ = sublayer("export", trained, "--to", "huggingface", there).out.splitlines()
    assert first == f"exported: {there}, with its tokenizer"
    assert second.startswith(CHECKED)
    found = sublayer("import", "huggingface", there, "--out", back, "--json").answer()
    assert found["certificate"] == json.loads((back / "certificate.json").read_text())
    assert found["certificate"]["largest_difference"]["float64"] < 1e-9
    text = trained.parent / "text.txt"
    before, after = (
        sublayer("evaluate", run, "--path", text, "--json").answer() for run in (trained, back)
    )
    assert before["loss"] == after["loss"]
    monkeypatch.chdir(tmp_path)
    assert sublayer("import", "huggingface", there).code == 0
    assert (tmp_path / "runs" / "out" / "model.safetensors").is_file()


def test_the_arrays_of_gpt1_come_in(sublayer, tmp_path):
    folder = save_arrays(tmp_path / "released", draw_arrays())
    shown = sublayer("import", "gpt1-numpy", folder, "--out", tmp_path / "ours").shown()
    first, second, *_ = shown.splitlines()
    assert first.endswith(
        "/ours, without a tokenizer: encoder_bpe_40000.json and vocab_40000.bpe are not beside "
        "the arrays"
    )
    assert second.startswith(CHECKED)


def test_a_model_that_answers_comes_in_and_goes_out(sublayer, tmp_path):
    there, back, again = (tmp_path / name for name in ("there", "back", "again"))
    export_huggingface(model_for("gpt2", TASKS["sst2"], head="linear"), there)
    shown = sublayer("import", "huggingface", there, "--out", back).shown()
    assert shown.endswith(f"next: sublayer evaluate {back} --path DIR\n")
    exported = sublayer("export", back, "--to", "huggingface", again).shown()
    following = f"next: transformers.pipeline('text-classification', model={str(again)!r})\n"
    assert exported.endswith(following)
    (there / "task.json").unlink()
    unnamed = sublayer("import", "huggingface", there, "--out", tmp_path / "unnamed").shown()
    assert unnamed.endswith("/unnamed --task TASK --path DIR\n")


def test_heads_that_do_not_answer_are_named(sublayer, tmp_path):
    model = model_for("gpt2", TASKS["sst2"], head="linear")
    assert model.tokenizer is not None
    files = {"tokenizer.json": model.tokenizer.serialize(), **spec_files(model.task)}
    save_model(tmp_path / "model", model, files)
    shown = sublayer("export", tmp_path / "model", tmp_path / "there").shown()
    named = "left out, as GPT2ForSequenceClassification has none: vocabulary head"
    assert named in shown.splitlines()


def test_the_release_of_albert_comes_in(sublayer, tmp_path):
    checkpoint, model = tmp_path / "model.ckpt-best", tmp_path / "model"
    weights = released(random_encoder("albert", **SIZES, pad_token_id=None))
    write_bundle(checkpoint, weights)
    (tmp_path / "albert_config.json").write_text(json.dumps(SIZES))
    shown = sublayer("import", "albert-tf", checkpoint, "--out", model).shown()
    n_left = sum(name.endswith(("adam_m", "adam_v", "global_step")) for name in weights)
    assert shown.splitlines() == [
        f"model: {model}, without a tokenizer: the folder has none",
        "not checked against transformers: it reads no checkpoints of TensorFlow",
        f"left out: {n_left} tensors of an optimizer",
    ]


GENERATE = 'generate a --prompt "The '
BOOK = {"data.path": "book.txt"}
TASK = {"objective.kind": "supervised", "data.tasks": "sst2", "data.path": "glue"}
PREFIX = {**BOOK, "objective.noise": "prefix"}
PAIR = {"data.source_path": "train.en", "data.target_path": "train.de"}
VALID = {"data.valid_source_path": "valid.en", "data.valid_target_path": "valid.de"}
PACKED = {"data.test_source_path": "test.en.gz", "data.test_target_path": "test.de.gz"}


@pytest.mark.parametrize(
    ("recipe", "settings", "splits", "first", "second"),
    [
        ("bert-base", TASK, "train valid test", "evaluate a", "predict a FILE"),
        ("gpt", BOOK, "train valid", "evaluate a --split valid", f'{GENERATE}"'),
        ("gpt", BOOK, "train", "evaluate a --path book.txt", f'{GENERATE}"'),
        ("gpt", {}, "train", "evaluate a --path FILE", f'{GENERATE}"'),
        (
            *("albert-small", {"data.path": "my books"}, "train"),
            *("evaluate a --path 'my books'", "inspect layers a --path 'my books'"),
        ),
        ("t5-mini", PREFIX, "train valid test", "evaluate a --split test", f'{GENERATE}"'),
        (
            *("multi30k-tiny", {**PAIR, **VALID, **PACKED}, "train valid test"),
            *("evaluate a --split test", "translate a < valid.en"),
        ),
        (
            *("multi30k-tiny", {"data.path": "pairs.tsv"}, "train valid test"),
            *("evaluate a --split test", "translate a < FILE"),
        ),
    ],
)
def test_after_training_stand_the_commands_of_that_kind_of_model(
    recipe, settings, splits, first, second
):
    found = after_training("a", load_recipe(recipe, settings).recipe, tuple(splits.split()))
    assert list(found) == [f"next: sublayer {first}", f"      sublayer {second}"]


@pytest.mark.parametrize(
    ("kind", "marks", "commands"),
    [
        ("decoder", {}, ["evaluate m --path FILE", 'generate m --prompt "The "']),
        ("encoder", {}, ["inspect layers m --path FILE"]),
        ("encoder-decoder", {"is_translator": True}, ["translate m < FILE"]),
        (
            *("encoder-decoder", {"knows_gaps": True}),
            ['generate m --prompt "The <extra_id_0> of the book."'],
        ),
        ("encoder-decoder", {}, ['generate m --prompt "The "']),
        ("decoder", {"answers": "rte", "lacks_marks": True}, ["finetune m TASK --data DIR"]),
    ],
)
def test_after_an_import_stand_the_commands_of_that_kind_of_model(kind, marks, commands):
    found = after_import("m", kind, **{"is_translator": False, "knows_gaps": False, **marks})
    assert [line.removeprefix("next: ").strip() for line in found] == [
        f"sublayer {command}" for command in commands
    ]
