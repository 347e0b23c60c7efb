"""Starts from another model, frozen parts; runs broken off, resumed, made longer."""

import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import sys
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file

from sublayer import loading
from sublayer.api.run import from_recipe, load, train
from sublayer.config.load import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.objective import CausalObjective
from sublayer.config.resolve import resolve_model
from sublayer.config.train import Frozen, InitConfig
from sublayer.data.tasks.encoded import TRAVERSAL_NAMES
from sublayer.data.tokenizers.base import CharacterTokenizer
from sublayer.errors import CheckpointError, ConfigError, Interrupted
from sublayer.estimate.memory import n_frozen_parameters
from sublayer.files.checkpoints import checkpoint_path, saved_steps
from sublayer.model.kernels.compiled import compiled_activation
from sublayer.model.model_folder import save_model, spec_files
from sublayer.model.transformer import build
from sublayer.objective.base import family_of
from sublayer.runs.resume import plan_branch, read_lengthenings
from sublayer.runs.run import train_run
from sublayer.runs.session import Place, check_place, choose_kernels, prepare_data, resolve
from sublayer.tasks.registry import TASKS, TaskSpec
from sublayer.text_model import TextModel
from sublayer.training.log import SilentProgress
from sublayer.training.speed import Pace
from sublayer.training.warm_start import StartModel, freeze, frozen_parameters
from sublayer.training.world import World
from tests.breadth import rows
from tests.made import KINDS, LSTM, MASKED, PAIR, QUESTIONS, SPAN, TRANSLATION
from tests.training.runs import (
    ALONE,
    OPTIMIZERS,
    Notes,
    SignalAt,
    figures,
    needs_compiler,
    open_session,
    results,
)

ENCODER, SHARED = {"kind": "encoder"}, {"share": "all"}
PER_LAYER, POOLED = {"positions": "learned-per-layer"}, {**ENCODER, "pooler": "tanh"}
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


def start(model, source, folder, layers=None, files=(), tokenizer=None, task=None):
    save_model(folder, source, dict(files))
    text_model = TextModel(model, tokenizer, task)
    notes = StartModel(InitConfig(run=str(folder), layers=layers)).copy_into(text_model)
    return [note.replace(str(folder), "RUN") for note in notes]


def stack(name, first, end, n_places=2):
    blocks = range(first, end)
    return [f"{name}.sublayers.{place}.{block}." for place in range(n_places) for block in blocks]


def later(first, n_encoder=3, n_decoder=2):
    return stack("source.encoder", first, n_encoder) + stack("decoder", first, n_decoder, 3)


JUDGE, NO_JUDGE, NO_BIAS = ["sentence_head."], "sentence head (RUN has none)", {"head_bias": False}
OF_BOTH, LATER = "{} encoder blocks and {} decoder blocks".format, [*stack("encoder", 1, 3), *JUDGE]
TABLE = "positions.tables.{}.".format
RAGGED = [*later(1, 2, 4), f"source.{TABLE(1)}", TABLE(1), TABLE(2), TABLE(3)]
STARTS = [
    (TWO, TWO, None, "", []),
    (JUDGED, ENCODER, None, f"pooler (RUN has none), {NO_JUDGE}", ["pooler.", *JUDGE]),
    (ONE_CLASS, JUDGED, None, "sentence head (the head of RUN has another shape)", JUDGE),
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
        "keeps the first 7 of the 11 learned positions of RUN",
    ]
    assert all(of.equal(source.state_dict()[k][: len(of)]) for k, of in model.state_dict().items())


def test_a_label_head_is_kept_for_the_same_answers_alone(tmp_path):
    sst2, qnli, rte = (TaskSpec((TASKS[n],), "traversal", 7) for n in ("sst2", "qnli", "rte"))
    source, model, fresh = (make_model(seed, label_outputs=2) for seed in (2, 1, 1))
    files = spec_files(rte)
    notes = start(model, source, tmp_path / "run", files=files, task=sst2)
    assert notes == ["starts fresh: label head (the head of RUN answers RTE)"]
    assert torch.equal(model.label_head.weight, fresh.label_head.weight)
    assert start(model, source, tmp_path / "again", files=files, task=qnli) == []
    assert all(value.equal(source.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("is_tied", [True, False])
def test_new_tokens_have_rows_as_drawn_and_others_stay_at_their_ids(is_tied, tmp_path):
    vocabulary = CharacterTokenizer("abcdefg")
    extended = vocabulary.with_names(TRAVERSAL_NAMES)
    n_known, n_ids = vocabulary.vocab_size, extended.vocab_size
    # Two rows beyond the vocabulary, as where it was padded: a new token takes its own there too.
    source = make_model(2, vocab_size=n_known + 2, tie_embeddings=is_tied)
    model, fresh = (make_model(1, vocab_size=n_ids + 1, tie_embeddings=is_tied) for _ in "ab")
    files = {"tokenizer.json": vocabulary.serialize()}
    [note] = start(model, source, tmp_path / "run", files=files, tokenizer=extended)
    assert "3 tokens added to the vocabulary (_start_, _delimiter_, _classify_)" in note
    with_rows = {"embedding.weight", "head.bias", *([] if is_tied else ["head.weight"])}
    for name, value in model.state_dict().items():
        n_taken = n_known if name in with_rows else len(value)
        assert torch.equal(value[:n_taken], source.state_dict()[name][:n_taken])
        assert torch.equal(value[n_taken:], fresh.state_dict()[name][n_taken:])


@pytest.mark.parametrize("fields, of_source, layers, message", [
    ({"max_len": 11}, {}, None, r"7 learned positions, .* give data\.context=7"),
    ({}, {"d_ff": 12}, None, r"input.weight has the shape \[12, 8\] there, \[32, 8\] here"),
    ({}, {"vocab_size": 11}, None, r"embedding.weight has the shape \[11, 8\].*\[9, 8\] here"),
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
    settings = {"init.run": str(first), "init.layers": 1, "objective.auxiliary": "layers"}
    settings, notes = {**settings, "train.steps": 2}, Notes()
    run("second", settings, progress=notes)
    assert [call.args for call in load_weights.call_args_list] == [(first / "model",)]
    blocks, heads = [text for text in notes.texts if text.startswith("starts fresh")]
    assert blocks == "starts fresh: 1 of 2 blocks (init.layers = 1)"
    assert "needed only in training" in heads
    (tmp_path / "second" / "record.json").unlink()
    notes = Notes()
    run("second", settings, progress=notes, resume=True)
    assert not any(text.startswith("starts fresh") for text in notes.texts)


OF_TOKENIZER = ("data.tokenizer", "data.vocab_size", "data.sentinels")
OF_LSTM, BLOCK = {"model.kind": "lstm", "model.d_embed": 12}, "decoder.sublayers.{}.0.".format
SHARED_BLOCKS = {"model.positions": "learned", "model.share": "all"}
SIDES = ("embedding.", "positions.", "source.positions.")
SHARED_PARTS = ("embedding.", "positions.", "decoder.")
FROZEN = {
    "blocks": ({"model.positions": "learned-per-layer"}, "layers:1", (BLOCK(0), BLOCK(1))),
    "embeddings and shared blocks": (SHARED_BLOCKS, ["embeddings", "layers:2"], SHARED_PARTS),
    "lstm": (OF_LSTM, ["embeddings", "layers:1"], ("embedding.", "lstm.sublayers.0.0.")),
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
    (line,) = [text for text in notes.texts if text.startswith("frozen: ")]
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
    ({**JUDGED, "segments": "both", "embedding_norm": "affine", "d_embed": 4}, Frozen(True)),
    ({"share": "all", "share_groups": 3, "block": "macaron"}, Frozen(False, 1)),
    ({"kind": "lstm", "d_embed": 4}, Frozen(False, 1)),
], ids=str)  # fmt: skip
def test_estimates_count_the_frozen_parameters(fields, frozen):
    model = make_model(1, **fields)
    found = {id(each): each.numel() for each in frozen_parameters(model, frozen)}
    assert sum(found.values()) == n_frozen_parameters(model.config, frozen) > 0


def test_to_freeze_all_parameters_is_refused():
    model = make_model(1, norm="none", final_norm="none", head_bias=False, tie_embeddings=True)
    objective = family_of(CausalObjective()).build(model, CausalObjective(), 0)
    with pytest.raises(ConfigError, match="leaves nothing to train"):
        freeze(objective, InitConfig(run="run", freeze=("embeddings", "layers:3")))


@pytest.mark.parametrize("batch, epochs, orders", [(6, 2.5, "random"), (7, 1, "both")])
def test_an_epoch_is_every_example_once_in_all_orders(tiny, batch, epochs, orders):
    settings = {**PAIR, "train.epochs": epochs, "objective.orders": orders}
    loaded = tiny({**settings, "train.batch_sequences": batch, "optimizer.warmup_steps": 0})
    recipe = resolve(loaded.recipe, prepare_data(loaded.recipe), ALONE)
    # Of 60 rows a tenth is held out.
    assert recipe.train.steps == math.ceil((epochs * 54 * (2 if orders == "both" else 1)) / batch)


@pytest.mark.parametrize("kind", ["pair", "traversal", "text"])
def test_a_run_keeps_its_tasks_in_every_model_folder(made, kind):
    folder, tasks = made(kind), KINDS[kind]["data.tasks"]
    model, names = load(folder), [tasks] if isinstance(tasks, str) else list(tasks)
    assert model.task.tasks == tuple(TASKS[name] for name in names)
    found = (model.task.context, model.task.format, model.task.target_length)
    assert found == (32, kind, 8 if kind == "text" else 0)
    [checkpoint, *_] = sorted((folder / "checkpoints").glob("step-*"))
    assert load(checkpoint).task == model.task
    assert (model.head is None, model.label_head is None) == (kind == "pair", kind == "text")


@pytest.mark.parametrize("change", [{"tasks": []}, {"context": 0}, {"tasks": [{"name": "x"}]}])
def test_damaged_tasks_of_a_folder_are_refused(made, tmp_path, change):
    folder = shutil.copytree(made("pair") / "model", tmp_path / "model")
    path = folder / "task.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CheckpointError, match=r"^[^\n]*task\.json[^\n]*$"):
        load(folder)
    path.unlink()
    assert load(folder).task is None


FILLED = {"objective.pairs": "sentences", "objective.sentence": "nsp"}
FILLED |= {"data.batch_parts": 2, "train.batch_tokens": 128}
VARIANTS = {
    **OPTIMIZERS,
    "as gpt1": {**OPTIMIZERS["as gpt1"], "model.softmax": "all"},
    "layer by layer": {"optimizer.layer_decay": 0.8},
    "shuffled": {"data.windows": "shuffled", "model.share": "all", "train.log_steps": 5},
    "documents of an lstm": {**LSTM, "data.boundaries": "respect", "train.recompute": "blocks"},
    "static copies": {**MASKED, "objective.sentence": "none", "objective.static_copies": 2},
    "steps filled with sentences": {**MASKED, **FILLED},
    "translation by BLEU": {**TRANSLATION, "train.best_by": "bleu"},
    "fairseq's batches": {**TRANSLATION, "data.batch_multiple": 8, "data.batch_order": "once"},
    "questions without answers": {**QUESTIONS, "data.tasks": "squad2"},
}

"""Beyond the shared runs; ``make test-all`` tries them."""
CONSTANT = {"optimizer.schedule": "constant", "optimizer.warmup_steps": 3}
CONSTANT |= {"train.evaluate_steps": 6}
SHORT, LONG = {"train.steps": 6}, {"train.steps": 12}
KEPT = {"train.keep_steps": [1, 7, 9], "train.best_by": "last", "train.steps": 16}


def ended_early(run, folder):
    shutil.copytree(run, folder)
    (folder / "record.json").unlink()
    shutil.rmtree(folder / "model")
    return folder


@pytest.fixture
def whole(made, run, tmp_path):
    def train(kind):
        if kind in KINDS:
            return made(kind)
        run("whole", VARIANTS[kind])
        return tmp_path / "whole"

    return train


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_resumed_equals_the_unbroken_one(made, tiny, tmp_path, kind):
    # Step 20 is between two lines of the log, and between two evaluations.
    folder = ended_early(made(kind), tmp_path / "broken")
    shutil.rmtree(folder / "checkpoints" / "step-00000024")
    assert saved_steps(folder / "checkpoints")[-1] == 20
    record = train_run(tiny(KINDS[kind]), folder, resume=True, progress=SilentProgress())
    assert record["step"] == 24 and results(folder) == results(made(kind))


@pytest.mark.parametrize("kind, number", [
    ("causal", signal.SIGINT), ("masked", signal.SIGTERM), *rows(((v, 2) for v in VARIANTS), 0),
])  # fmt: skip
def test_an_interrupted_run_resumed_equals_an_unbroken_one(run, whole, tmp_path, kind, number):
    settings = {**KINDS, **VARIANTS}[kind]
    with pytest.raises(Interrupted, match="saved at step 11 of 24"):
        run("broken", settings, progress=SignalAt(11, number))
    run("broken", settings, resume=True)
    assert results(tmp_path / "broken") == results(whole(kind))


def test_a_run_ends_early_by_patience_and_the_same_where_it_is_resumed(run, tmp_path):
    settings = {**CONSTANT, "optimizer.lr": 2.0, "train.patience": 2, "train.evaluate_steps": 2}
    notes = Notes()
    record = run("whole", settings, progress=notes)
    best, end = record["valid"]["step"], record["step"]
    assert record["stopped_early"] and end == best + 4 < 24 and f"{end} of 24" in notes.texts[-1]
    for broken in (best + 1, end - 1):
        with pytest.raises(Interrupted):
            run(f"broken-{broken}", settings, progress=SignalAt(broken))
        run(f"broken-{broken}", settings, resume=True)
        assert results(tmp_path / f"broken-{broken}") == results(tmp_path / "whole")
    assert run("whole", settings, resume=True) == record
    folder = ended_early(tmp_path / "whole", tmp_path / "unrecorded")
    assert run(folder.name, settings, resume=True)["step"] == end
    with pytest.raises(ConfigError, match="ended early.*init.run="):
        run("whole", {**settings, "train.steps": 48}, resume=True)


def killed_at_file_operation(count, folder, loaded):
    """Train in a child that is killed at its `count`-th file operation in a folder; is it done?"""
    child = os.fork()
    if child == 0:
        begun = itertools.count(1)
        writing = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")

        def hook(event, arguments):
            if event in writing and str(folder) in str(arguments[0]) and next(begun) == count:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            train_run(loaded, folder, resume=True, progress=SilentProgress())
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), "a resumed run failed"
    return code == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork beside threads
@pytest.mark.parametrize("kind", ["causal", *rows(VARIANTS, 0)])
def test_a_run_killed_at_any_file_operation_equals_an_unbroken_one(whole, tiny, tmp_path, kind):
    settings, draw, kills = {**KINDS, **VARIANTS}[kind], random.Random(kind), 0
    while not killed_at_file_operation(draw.randint(1, 160), tmp_path / "broken", tiny(settings)):
        kills += 1
        assert kills < 50, "a run that is killed and resumed gets nowhere"
    assert kills >= 2 and results(tmp_path / "broken") == results(whole(kind))
    partial = (tmp_path / "broken" / "checkpoints").glob(".*.partial")
    assert not [each for each in partial if any(each.iterdir())]


def test_a_truncated_checkpoint_is_refused_by_name_and_the_one_before_is_used(made, run, tmp_path):
    folder = ended_early(made("causal"), tmp_path / "broken")
    weights = folder / "checkpoints" / "step-00000024" / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    notes = Notes()
    run("broken", resume=True, progress=notes)
    assert "step-00000024 is refused" in notes.texts[0]
    assert results(folder) == results(made("causal"))
    assert (folder / "checkpoints" / "refused-step-00000024-1").is_dir()


def test_a_start_resumed_and_a_signal_at_a_step_just_saved_change_nothing(run, tmp_path):
    run("plain", SHORT)
    (tmp_path / "empty").mkdir()
    run("empty", SHORT, resume=True)
    with pytest.raises(Interrupted, match="saved at step 4 of 6"):
        run("broken", SHORT, progress=SignalAt(4))
    assert not list((tmp_path / "broken" / "checkpoints").glob("refused-*"))
    run("broken", SHORT, resume=True)
    for name in ("empty", "broken"):
        assert results(tmp_path / name) == results(tmp_path / "plain")


def test_a_finished_run_is_left_as_it_is_and_never_written_over(run, made, tmp_path):
    done = shutil.copytree(made("causal"), tmp_path / "done")
    before = {path: path.stat().st_mtime_ns for path in done.rglob("*")}
    assert run("done", resume=True) == json.loads((done / "record.json").read_text())
    with pytest.raises(ConfigError, match="already holds a run"):
        run("done")
    with pytest.raises(ConfigError, match=r"model\.d_model = 24, not 48"):
        run("done", {"model.d_model": 48}, resume=True)
    assert {path: path.stat().st_mtime_ns for path in done.rglob("*")} == before


def test_a_lengthened_run_of_a_constant_rate_equals_the_run_of_that_length(run, tmp_path):
    first, notes = run("longer", {**CONSTANT, **SHORT}), Notes()
    record = run("longer", {**CONSTANT, **LONG}, resume=True, progress=notes)
    run("whole", {**CONSTANT, **LONG})
    assert results(tmp_path / "longer") == results(tmp_path / "whole")
    assert (first["lengthened"], record["step"]) == ([], 12)
    assert record["lengthened"] == [{"at_step": 6, "from_steps": 6, "to_steps": 12}]
    assert record["seconds"] > first["seconds"]
    assert any(text.startswith("continues from step 6 to 12") for text in notes.texts)
    assert json.loads((tmp_path / "longer" / "record-step-00000006.json").read_text()) == first
    again = run("longer", {**CONSTANT, "train.steps": 14}, resume=True)
    assert [each["to_steps"] for each in again["lengthened"]] == [12, 14]


def test_an_unfinished_run_may_be_lengthened_interrupted_and_resumed(run, tmp_path):
    with pytest.raises(Interrupted):
        run("longer", {**CONSTANT, **SHORT}, progress=SignalAt(5))
    with pytest.raises(Interrupted, match="saved at step 9 of 12"):
        run("longer", {**CONSTANT, **LONG}, resume=True, progress=SignalAt(9))
    folder = tmp_path / "longer"
    train_run(load_recipe(folder), folder, resume=True, progress=SilentProgress())
    run("whole", {**CONSTANT, **LONG})
    assert results(folder) == results(tmp_path / "whole")
    assert [each.at_step for each in read_lengthenings(folder / "recipe.toml")] == [5]


def test_a_branch_of_a_constant_run_equals_the_run_that_cools_down_there(run, tmp_path):
    run("constant", {**CONSTANT, "train.steps": 16, "train.keep_steps": [4, 6]})
    constant = tmp_path / "constant"
    before = {path: path.read_bytes() for path in constant.rglob("*") if path.is_file()}
    run("whole", {**CONSTANT, "train.steps": 9, "optimizer.cooldown_share": 3 / 9})
    trained = train(constant, branch_decay=3, from_step=6, out=tmp_path / "branch")
    assert results(tmp_path / "branch") == results(tmp_path / "whole")
    assert trained["lengthened"] == [{"at_step": 6, "from_steps": 16, "to_steps": 9}]
    branch, broken = plan_branch(constant, 1 / 3, 6), tmp_path / "broken"
    assert branch.recipe == trained.recipe
    branch.begin(broken)
    with pytest.raises(Interrupted, match="saved at step 7 of 9"):
        train_run(load_recipe(broken), broken, resume=True, progress=SignalAt(7))
    train_run(load_recipe(broken), broken, resume=True, progress=SilentProgress())
    assert results(broken) == results(tmp_path / "whole")
    last = plan_branch(constant, 0.2)
    assert (last.state.step, last.recipe.train.steps) == (16, 20)
    assert {path: path.read_bytes() for path in constant.rglob("*") if path.is_file()} == before


def test_a_branch_keeps_the_best_evaluation_that_there_is(run, tmp_path):
    run("constant", {**CONSTANT, "train.evaluate_steps": 2, "train.keep_steps": [4, 5]})
    states = tmp_path / "constant" / "checkpoints"
    for step in set(saved_steps(states)) - {4, 5}:
        shutil.rmtree(checkpoint_path(states, step))
    for path in (checkpoint_path(states, step) / "state.json" for step in (4, 5)):
        state = json.loads(path.read_text())
        path.write_text(json.dumps({**state, "best": {**state["best"], "step": 2}}))
    assert plan_branch(tmp_path / "constant", 2, 4).state.best.step == 4
    with pytest.raises(ConfigError, match="not evaluated at step 5"):
        plan_branch(tmp_path / "constant", 2, 5)


@pytest.mark.parametrize("settings, arguments, message", [
    ({"optimizer.schedule": "cosine"}, (3,), "optimizer.schedule = cosine"),
    ({"optimizer.kind": "schedule-free"}, (3,), "optimizer.kind = schedule-free"),
    (CONSTANT, (3, 5), "no checkpoint of step 5 to branch from.* at 4 and 6;"),
    ({**CONSTANT, "optimizer.warmup_steps": 6, "train.keep_steps": [3]}, (3, 3), "step 3 .* at 6"),
    ({**CONSTANT, "optimizer.cooldown_share": 0.5}, (3,), "no checkpoint .* nowhere"),
    (CONSTANT, (1.5,), "1.5 is no length"),
])  # fmt: skip
def test_a_branch_without_a_constant_rate_or_a_checkpoint_is_refused(
    run, tmp_path, settings, arguments, message
):
    run("run", {**settings, **SHORT})
    with pytest.raises(ConfigError, match=message):
        plan_branch(tmp_path / "run", *arguments)


def test_a_shorter_length_and_another_field_are_refused_by_name(run, tmp_path):
    run("done", SHORT)
    done = tmp_path / "done"
    before = (done / "recipe.toml").read_bytes()
    refused = {"train.steps = 5": {"train.steps": 5}, "train.tokens = 6.0": {"train.tokens": 6.0}}
    refused["model.d_ff = unset, not 9"] = {"train.steps": 24, "model.d_ff": 9}
    for field, settings in refused.items():
        with pytest.raises(ConfigError, match=field):
            run("done", settings, resume=True)
    shutil.rmtree(done / "checkpoints")
    with pytest.raises(ConfigError, match=r"no checkpoint to continue from: .* init.run="):
        run("done", LONG, resume=True)
    assert (done / "recipe.toml").read_bytes() == before and (done / "record.json").exists()


@pytest.mark.parametrize("length", ["tokens", "epochs", "minutes"])
def test_a_length_of_another_kind_continues_to_it(run, tmp_path, length):
    run("done", SHORT)
    done = tmp_path / "done"
    state = json.loads((done / "checkpoints" / "step-00000006" / "state.json").read_text())
    minutes = 9.5 * state["seconds"] / 6 / 60
    value, notes = {"tokens": 9 * 6 * 32, "epochs": 0.05, "minutes": minutes}[length], Notes()
    record = run("done", {f"train.{length}": value}, resume=True, progress=notes)
    last = re.findall(r"(\d+) steps in all", " ".join(notes.texts))[-1:]
    # Only minutes are planned anew, where the pace changes.
    assert last == [] or length == "minutes"
    assert record["step"] == int(last[0]) if last else record["step"] >= 9
    assert load_recipe(done).origins["train.steps"] == "default"
    (continues,) = [text for text in notes.texts if text.startswith("continues")]
    assert "optimizer.schedule = cosine" in continues
    assert length == "epochs" or continues.startswith("continues from step 6 to 9"), continues


def kept(folder):
    return saved_steps(folder / "checkpoints")


@pytest.fixture
def kept_run(workshop, tmp_path):
    recipe, shown = workshop.recipe(KEPT), SilentProgress()
    made = workshop.once("kept-steps", lambda folder: train_run(recipe, folder, progress=shown))
    return shutil.copytree(made, tmp_path / "kept")


def test_named_steps_are_kept_beside_the_newest_and_change_nothing(run, kept_run, tmp_path):
    run("plain", {**KEPT, "train.keep_steps": []})
    with pytest.raises(Interrupted):
        run("again", KEPT, progress=SignalAt(8))
    run("again", KEPT, resume=True)
    assert kept(tmp_path / "plain") == [12, 16]
    assert kept(kept_run) == kept(tmp_path / "again") == [1, 7, 9, 12, 16]
    assert results(kept_run) == results(tmp_path / "plain") == results(tmp_path / "again")
    run("kept", {**KEPT, "train.keep_steps": [1, 7, 9, 19], "train.steps": 24}, resume=True)
    assert kept(kept_run) == [1, 7, 9, 19, 20, 24]
    assert load_recipe(kept_run).recipe.train.keep_steps == (1, 7, 9, 19)


@pytest.mark.parametrize("steps, length, message", [
    ([1, 7, 9, 11], 24, "names step 11, but .* is past it"),
    ([1, 7], 24, r"train.keep_steps = \[1, 7, 9\], not \[1, 7\]"),
    ([1, 7, 9, 25], 24, "names step 25, but the run has 24 steps"),
    ([1], 16, "was started with train.keep_steps"),
])  # fmt: skip
def test_a_resumed_run_keeps_nothing_that_is_over(run, kept_run, steps, length, message):
    with pytest.raises(ConfigError, match=message):
        run("kept", {**KEPT, "train.keep_steps": steps, "train.steps": length}, resume=True)
    assert kept(kept_run) == [1, 7, 9, 12, 16]


def test_a_kept_checkpoint_is_a_model_to_start_from_and_a_missing_one_is_refused(kept_run):
    path = checkpoint_path(kept_run / "checkpoints", 7)
    weights = load(path).state_dict()
    started = from_recipe("gpt", {"init.run": str(path), "data.context": 32})
    assert all(value.equal(weights[name]) for name, value in started.state_dict().items())
    missing = kept_run / "checkpoints" / "step-00000008"
    for read in (load, lambda path: from_recipe("gpt", {"init.run": str(path)})):
        with pytest.raises(CheckpointError, match="no checkpoint step-00000008: .*step-00000009"):
            read(missing)
    shutil.rmtree(missing.parent)
    with pytest.raises(CheckpointError, match="no checkpoint step-00000008: there are none"):
        load(missing)


@pytest.fixture
def without_compiler(monkeypatch, tmp_path):
    def remove():
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))

    return remove


@needs_compiler
def test_compiled_kernels_are_chosen_for_long_runs_that_can_have_them(
    workshop, tmp_path, monkeypatch, without_compiler
):
    def chosen(step_s=1e-2, **settings):
        loaded = workshop.recipe(settings, **{"train.steps": 2_000_000})
        data, notes = prepare_data(loaded.recipe), Notes()
        resolved = resolve(loaded.recipe, data, ALONE)
        recipe = choose_kernels(resolved, ALONE, Pace(step_s, 1.0), notes.note)
        return recipe.train.kernels, notes.texts

    eager = ("eager", [])
    assert chosen() == ("compiled", [])  # 20,000 seconds
    assert chosen(step_s=1e-4) == eager
    assert chosen(**{"model.ffn": "relu"}) == eager
    assert chosen(**{"model.ffn": "relu", "model.norm": "rms"}) == ("compiled", [])
    assert chosen(**{"train.kernels": "eager"}) == eager
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setenv("CXX", str(broken))
    compiled_activation.cache_clear()
    kernels, (note,) = chosen()
    assert kernels == "eager" and str(broken) in note
    without_compiler()
    assert chosen() == eager


@needs_compiler
def test_a_compiled_run_goes_on_with_a_compiler_only_and_an_eager_one_stays(
    workshop, tmp_path, without_compiler
):
    def begun(name, **settings):
        loaded = workshop.recipe({}, **settings)
        with pytest.raises(Interrupted):
            train_run(loaded, tmp_path / name, progress=SignalAt(9))
        return loaded

    compiled = {"train.kernels": "compiled"}
    loaded, whole = begun("compiled", **compiled), tmp_path / "whole"
    train_run(loaded, whole, progress=SilentProgress())
    shutil.copytree(tmp_path / "compiled", tmp_path / "refused")
    train_run(loaded, tmp_path / "compiled", resume=True, progress=SilentProgress())
    assert results(tmp_path / "compiled") == results(whole)
    with pytest.raises(ConfigError, match=r"train\.kernels = compiled is for a CPU"):
        check_place(open_session(loaded).recipe, Place(torch.device("cuda"), ALONE.world))
    check_place(open_session(loaded).recipe, Place(torch.device("cuda"), ALONE.world, trains=False))
    eager = begun("eager")
    train_run(eager, tmp_path / "eager", resume=True, progress=SilentProgress())
    assert 'kernels = "eager"' in (tmp_path / "eager" / "recipe.toml").read_text()
    without_compiler()
    for folder in ("refused", "new"):
        with pytest.raises(ConfigError, match=r"there is none: install g\+\+"):
            train_run(loaded, tmp_path / folder, resume=folder == "refused")


def test_a_run_of_replicas_resumes_to_the_bit_and_is_close_to_a_run_of_one(workshop, tmp_path):
    shared = {"train.threads": 2, "model.dropout": 0.0, "train.steps": 4}
    shared |= {"train.checkpoint_steps": 2, "train.evaluate_steps": 2, "train.log_steps": 1}
    loaded = workshop.recipe({}, **{"train.replicas": 2}, **shared)
    train_run(loaded, tmp_path / "whole", progress=SilentProgress())
    with pytest.raises(Interrupted):
        train_run(loaded, tmp_path / "resumed", progress=SignalAt(3))
    train_run(loaded, tmp_path / "resumed", resume=True, progress=SilentProgress())
    assert results(tmp_path / "resumed") == results(tmp_path / "whole")
    one = workshop.recipe({}, **{"train.replicas": 1}, **shared)
    train_run(one, tmp_path / "one", progress=SilentProgress())
    losses = [figures(tmp_path / name, "train") for name in ("whole", "one")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_replicas_are_for_threads_of_one_process_on_a_cpu_without_random_draws(workshop):
    def replicas(place=ALONE, **settings):
        given = {"train.threads": 2, "model.dropout": 0.0, **settings}
        recipe = workshop.recipe({}, **given).recipe
        resolved = resolve(recipe, prepare_data(recipe), place)
        check_place(resolved, place)
        return resolved.train.replicas

    assert replicas() == 2
    for one in ({"train.threads": 3}, {"model.dropout": 0.1}, {"train.micro_batch_sequences": 1},
                {"train.exact": True}, {"model.d_model": 258, "model.n_heads": 2}):  # fmt: skip
        assert replicas(**one) == 1
    two = {"train.replicas": 2}
    for wrong in ({"train.threads": 3}, {"train.micro_batch_sequences": 1}):
        with pytest.raises(ConfigError, match=r"train\.replicas = 2 must divide train\.threads"):
            replicas(**two, **wrong)
    with pytest.raises(ConfigError, match="all other dropouts are 0"):
        replicas(**two, **{"model.dropout": 0.1})
    with pytest.raises(ConfigError, match="is for one process on a CPU: leave it out"):
        replicas(Place(torch.device("cpu"), World(rank=0, size=2)), **two)
