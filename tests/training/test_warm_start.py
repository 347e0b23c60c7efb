"""Starts from another model: what is taken, what stays frozen; epochs and tasks of fine-tuning."""

import json
import math
import shutil
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file

from sublayer import loading
from sublayer.config.freezing import Frozen
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.causal import CausalObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.config.train import InitConfig
from sublayer.data.tasks.marks import TRAVERSAL_NAMES
from sublayer.data.tokenizers.characters import CharacterTokenizer
from sublayer.data.tokenizers.extended import with_names
from sublayer.errors import CheckpointError, ConfigError, Interrupted
from sublayer.estimate.frozen import n_frozen_parameters
from sublayer.loading import load
from sublayer.model.build import build
from sublayer.model.model_folder import save_model
from sublayer.objective.causal.family import CAUSAL
from sublayer.runs.resolution import resolve
from sublayer.runs.session import prepare_data
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec, spec_files
from sublayer.training.freezing import freeze, frozen_parameters
from sublayer.training.warm_start import Pretrained, start_from
from tests.made import KINDS, PAIR, SPAN
from tests.training.runs import ALONE, Notes, SignalAt, results

ENCODER, SHARED = {"kind": "encoder"}, {"share": "all"}
PER_LAYER = {"positions": "learned-per-layer"}
POOLED = {**ENCODER, "pooler": "tanh"}
JUDGED, ONE_CLASS = ({**POOLED, "sentence_classes": n} for n in (2, 1))
DEEP, SHALLOW = {**JUDGED, "n_layers": 4}, {**JUDGED, "n_layers": 2}
TWO = {"kind": "encoder-decoder", "n_decoder_layers": 2}
THREE = {**TWO, "n_decoder_layers": 3}
WITH_TABLES, WITH_TABLE = {**TWO, **PER_LAYER}, {**TWO, "positions": "relative"}
LOW = {**WITH_TABLES, "n_layers": 2, "n_decoder_layers": 4}
HIGH = {**WITH_TABLES, "n_layers": 3, "n_decoder_layers": 1}


def make_model(seed, **fields):
    config = ModelConfig(**{"n_layers": 3, "d_model": 8, "n_heads": 2, "head_bias": True, **fields})
    return build(resolve_model(config, vocab_size=9, context=7), seed=seed)


def start(model, source, folder, layers=None):
    save_model(folder, source, {})
    notes = start_from(model, Pretrained(InitConfig(run=str(folder), layers=layers)))
    return [note.replace(str(folder), "RUN") for note in notes]


def stack(name, first, end, n_places=2):
    blocks = range(first, end)
    return [f"{name}.sublayers.{place}.{block}." for place in range(n_places) for block in blocks]


def later(first, n_encoder=3, n_decoder=2):
    return stack("source.encoder", first, n_encoder) + stack("decoder", first, n_decoder, 3)


JUDGE, NO_JUDGE, NO_BIAS = ["sentence_head."], "sentence head (RUN has none)", {"head_bias": False}
OTHERS = "sentence head (that of RUN has other weights)"
OF_BOTH = "{} encoder blocks and {} decoder blocks".format
LATER = [*stack("encoder", 1, 3), *JUDGE]
TABLE = "positions.tables.{}.".format
RAGGED = [*later(1, 2, 4), f"source.{TABLE(1)}", TABLE(1), TABLE(2), TABLE(3)]
STARTS = [
    (TWO, TWO, None, "", []),
    (JUDGED, ENCODER, None, f"pooler (RUN has none), {NO_JUDGE}", ["pooler.", *JUDGE]),
    (ONE_CLASS, JUDGED, None, OTHERS, JUDGE),
    ({}, NO_BIAS, None, "output bias (RUN has none)", ["head.bias"]),
    (JUDGED, POOLED, 1, f"{NO_JUDGE}, 2 of 3 blocks", LATER),
    (DEEP, SHALLOW, 2, "2 of 4 blocks", stack("encoder", 2, 4)),
    ({**DEEP, **SHARED}, {**SHALLOW, **SHARED}, None, "", []),
    (TWO, TWO, 0, OF_BOTH("3 of 3", "2 of 2"), later(0)),
    (WITH_TABLES, WITH_TABLES, 2, "1 of 3 encoder blocks", [*later(2), f"source.{TABLE(2)}"]),
    (WITH_TABLE, WITH_TABLE, 1, OF_BOTH("2 of 3", "1 of 2"), later(1)),
    (LOW, HIGH, 1, OF_BOTH("1 of 2", "3 of 4"), RAGGED),
    ({**WITH_TABLE, **SHARED}, {**WITH_TABLE, **SHARED}, 1, "", []),
]
"""Fields of a model and its start, blocks to take, what is noted, and names of what is fresh."""


@pytest.mark.parametrize(("fields", "of_source", "layers", "fresh", "prefixes"), STARTS)
def test_parts_of_a_start_are_taken(fields, of_source, layers, fresh, prefixes, tmp_path):
    model, drawn = (make_model(1, **fields) for _ in range(2))
    source = make_model(2, **of_source)
    words = f" (init.layers = {layers})" if layers is not None else ""
    expected = [f"starts fresh: {fresh}{words}"] if fresh else []
    assert start(model, source, tmp_path / "run", layers) == expected
    theirs, as_drawn = source.state_dict(), drawn.state_dict()
    for name, value in model.state_dict().items():
        is_fresh = name.startswith(tuple(prefixes))
        assert torch.equal(value, (as_drawn if is_fresh else theirs)[name]), name
    assert all(any(name.startswith(prefix) for name in as_drawn) for prefix in prefixes)


def test_heads_and_positions_that_are_not_asked_for_are_left_out(tmp_path):
    fields = {**WITH_TABLES, "pooler": "tanh"}
    model = make_model(1, **fields, max_len=7)
    source = make_model(2, **fields, sentence_classes=2, max_len=11)
    assert start(model, source, tmp_path / "run") == [
        "left out of RUN: sentence head (the recipe asks for none)",
        "keeps the first 7 of the 11 positions that RUN has learned",
    ]
    theirs = source.state_dict()
    ours = model.state_dict()
    assert all(value.equal(theirs[name][: len(value)]) for name, value in ours.items())


def test_a_label_head_is_kept_for_the_same_answers_alone(tmp_path):
    run, source = tmp_path / "run", make_model(2, label_outputs=2)
    save_model(run, source, spec_files(TaskSpec((TASKS["rte"],), "traversal", 7)))
    pretrained = Pretrained(InitConfig(run=str(run)))
    model, fresh = (make_model(1, label_outputs=2) for _ in range(2))
    model.task = TaskSpec((TASKS["sst2"],), "traversal", 7)
    notes = start_from(model, pretrained)
    assert notes == [f"starts fresh: label head (that of {run} answers RTE)"]
    assert torch.equal(model.label_head.weight, fresh.label_head.weight)
    model.task = TaskSpec((TASKS["qnli"],), "traversal", 7)
    assert start_from(model, pretrained) == []
    assert all(value.equal(source.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("is_tied", [True, False])
def test_new_tokens_have_rows_as_drawn_and_others_stay_at_their_ids(is_tied, tmp_path):
    vocabulary = CharacterTokenizer("abcdefg")
    extended = with_names(vocabulary, TRAVERSAL_NAMES)
    n_known, n_ids = vocabulary.vocab_size, extended.vocab_size
    # Two rows beyond the vocabulary, as where it was padded: a new token takes its own there too.
    source = make_model(2, vocab_size=n_known + 2, tie_embeddings=is_tied)
    model, fresh = (make_model(1, vocab_size=n_ids + 1, tie_embeddings=is_tied) for _ in "ab")
    model.tokenizer = extended
    save_model(tmp_path / "run", source, {"tokenizer.json": vocabulary.serialize()})
    [note] = start_from(model, Pretrained(InitConfig(run=str(tmp_path / "run"))))
    assert "3 tokens added to the vocabulary (_start_, _delimiter_, _classify_)" in note
    with_rows = {"embedding.weight", "head.bias", *([] if is_tied else ["head.weight"])}
    for name, value in model.state_dict().items():
        n_taken = n_known if name in with_rows else len(value)
        assert torch.equal(value[:n_taken], source.state_dict()[name][:n_taken])
        assert torch.equal(value[n_taken:], fresh.state_dict()[name][n_taken:])


@pytest.mark.parametrize("fields, of_source, layers, message", [
    ({"max_len": 11}, {}, None, r"learned 7 positions, .* give data\.context=7"),
    ({}, {"d_ff": 12}, None, r"input.weight is \[12, 8\] there, \[32, 8\] here"),
    ({}, {"vocab_size": 11}, None, r"embedding.weight is \[11, 8\] there, \[9, 8\] here"),
    ({}, {"n_layers": 2}, None, r"it has no decoder.sublayers.0.2.function.output.bias"),
    (THREE, TWO, 3, "init.layers = 3 is more than the 2 blocks of the decoder of the model of"),
    ({**TWO, "n_layers": 2}, THREE, 3, "than the 2 blocks of the encoder of the recipe"),
])  # fmt: skip
def test_starts_that_do_not_fit_are_refused(fields, of_source, layers, message, tmp_path):
    model, source = make_model(1, **fields), make_model(2, **of_source)
    with pytest.raises((CheckpointError, ConfigError), match=message):
        start(model, source, tmp_path / "run", layers)


def test_a_run_reads_its_start_once_and_notes_it_once(made, run, tmp_path, monkeypatch):
    load_weights = Mock(wraps=loading.load_weights)
    monkeypatch.setattr(loading, "load_weights", load_weights)
    first = made("causal")
    settings = {"init.run": str(first), "init.layers": 1, "train.steps": 2}
    settings, notes = {**settings, "objective.auxiliary": "layers"}, Notes()
    run("second", settings, progress=notes)
    assert [call.args for call in load_weights.call_args_list] == [(first / "model",)]
    blocks, heads = [text for text in notes.texts if text.startswith("starts fresh")]
    assert blocks == "starts fresh: 1 of 2 blocks (init.layers = 1)"
    assert "training alone needs" in heads
    (tmp_path / "second" / "record.json").unlink()
    notes = Notes()
    run("second", settings, progress=notes, resume=True)
    assert not any(text.startswith("starts fresh") for text in notes.texts)


OF_TOKENIZER = ("data.tokenizer", "data.vocab_size", "data.sentinels")
"""What a start brings."""
LSTM, BLOCK = {"model.kind": "lstm", "model.d_embed": 12}, "decoder.sublayers.{}.0.".format
SHARED_BLOCKS = {"model.positions": "learned", "model.share": "all"}
SIDES = ("embedding.", "positions.", "source.positions.")
FROZEN = {
    "blocks": ({"model.positions": "learned-per-layer"}, "layers:1", (BLOCK(0), BLOCK(1))),
    "embeddings and shared blocks": (
        SHARED_BLOCKS, ["embeddings", "layers:2"], ("embedding.", "positions.", "decoder.")
    ),
    "lstm": (LSTM, ["embeddings", "layers:1"], ("embedding.", "lstm.sublayers.0.0.")),
    "both sides' embeddings": ({**SPAN, "model.tie_embeddings": False}, "embeddings", SIDES),
}  # fmt: skip


@pytest.mark.parametrize("case", FROZEN)
def test_frozen_parts_stay_to_the_bit_and_all_else_moves(run, tmp_path, case):
    settings, freeze, prefixes = FROZEN[case]
    short, notes = {**settings, "train.steps": 2, "optimizer.weight_decay": 0.1}, Notes()
    run("start", short)
    kept_settings = {name: value for name, value in short.items() if name not in OF_TOKENIZER}
    started = {**kept_settings, "init.run": str(tmp_path / "start"), "init.freeze": freeze}
    run("end", started, progress=notes)
    paths = (tmp_path / name / "model" / "model.safetensors" for name in ("start", "end"))
    before, after = map(load_file, paths)
    kept = {name for name, value in before.items() if torch.equal(value, after[name])}
    assert kept == {name for name in before if name.startswith(prefixes)}
    (line,) = [text for text in notes.texts if text.startswith("stays as it is")]
    n_kept = sum(before[name].numel() for name in kept)
    assert f"{n_kept:,} parameters of {sum(each.numel() for each in before.values()):,}" in line
    states = load_file(tmp_path / "end" / "checkpoints" / "step-00000002" / "training.safetensors")
    named = {name.partition("/")[2].removeprefix("model.") for name in states}
    assert named & set(before) == set(before) - kept


def test_a_frozen_run_resumed_equals_an_unbroken_one(made, run, tmp_path):
    settings = {"init.run": str(made("causal")), "init.freeze": ["embeddings", "layers:1"]}
    settings["train.steps"] = 7
    run("whole", settings)
    with pytest.raises(Interrupted):
        run("broken", settings, progress=SignalAt(5))
    run("broken", settings, resume=True)
    assert results(tmp_path / "broken") == results(tmp_path / "whole")


@pytest.mark.parametrize("fields, frozen", [
    (PER_LAYER, Frozen(True, 3)),
    ({**JUDGED, "segments": "both", "embedding_norm": True, "d_embed": 4}, Frozen(True)),
    ({"share": "all", "share_groups": 3, "block": "macaron"}, Frozen(False, 1)),
    ({"kind": "lstm", "d_embed": 4}, Frozen(False, 1)),
], ids=str)  # fmt: skip
def test_estimates_count_the_frozen_parameters(fields, frozen):
    model = make_model(1, **fields)
    found = {id(each): each.numel() for each in frozen_parameters(model, frozen)}
    assert sum(found.values()) == n_frozen_parameters(model.config, frozen) > 0


def test_to_freeze_all_parameters_is_refused():
    model = make_model(1, norm="none", final_norm="none", head_bias=False, tie_embeddings=True)
    objective = CAUSAL.build(model, CausalObjective(), 0)
    with pytest.raises(ConfigError, match="leaves nothing to train"):
        freeze(objective, InitConfig(run="run", freeze=("embeddings", "layers:3")))


@pytest.mark.parametrize(
    ("batch", "epochs", "orders"), [(6, 2.5, "random"), (7, 3, "random"), (7, 1, "both")]
)
def test_an_epoch_is_every_example_once_in_all_orders(tiny, batch, epochs, orders):
    settings = {**PAIR, "train.epochs": epochs, "objective.orders": orders}
    loaded = tiny({**settings, "train.batch_sequences": batch, "optimizer.warmup_steps": 0})
    recipe = resolve(loaded.recipe, prepare_data(loaded.recipe), ALONE)
    # Of 60 rows a tenth is held out.
    n_examples = epochs * 54 * (2 if orders == "both" else 1)
    assert recipe.train.steps == math.ceil(n_examples / batch)


@pytest.mark.parametrize("kind", ["pair", "traversal", "text"])
def test_a_run_keeps_its_tasks_in_every_model_folder(made, kind):
    folder, tasks = made(kind), KINDS[kind]["data.tasks"]
    model = load(folder)
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    assert model.task.tasks == tuple(TASKS[name] for name in names)
    found = (model.task.context, model.task.format, model.task.target_length)
    assert found == (32, kind, 8 if kind == "text" else 0)
    [checkpoint, *_] = sorted((folder / "checkpoints").glob("step-*"))
    assert load(checkpoint).task == model.task
    # Of a head that only training needs, and no task takes, nothing is left.
    assert (model.head is None) == (kind == "pair")
    assert (model.label_head is None) == (kind == "text")


@pytest.mark.parametrize("change", [{"tasks": []}, {"context": 0}, {"tasks": [{"name": "x"}]}])
def test_damaged_tasks_of_a_folder_are_refused(made, tmp_path, change):
    folder = shutil.copytree(made("pair") / "model", tmp_path / "model")
    path = folder / "task.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CheckpointError, match=r"^[^\n]*task\.json[^\n]*$"):
        load(folder)
    path.unlink()
    assert load(folder).task is None
