import json
import re

import pytest

from sublayer.errors import ConfigError, TrainingError
from sublayer.files.checkpoints import saved_steps
from sublayer.loading import load
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.checkpoints.snapshots import Snapshots
from sublayer.training.loop import Evaluate, Loop
from sublayer.training.metrics import METRICS, read_metrics
from sublayer.training.progress import SilentProgress
from tests.made import MASKED, TRANSLATION
from tests.training.conftest import Notes
from tests.training.test_step import open_session


def test_a_run_learns_and_leaves_its_record(run, tmp_path):
    record = run("run", {"train.steps": 40, "model.dropout": 0.0})
    lines = read_metrics(tmp_path / "run" / METRICS)
    valid = [line for line in lines if line["kind"] == "valid"]
    assert valid[-1]["loss"] < valid[0]["loss"]
    assert record["valid"]["loss"] == min(line["loss"] for line in valid)
    assert record["step"] == 40
    assert record["tokens"] == 40 * 6 * 32
    assert record == json.loads((tmp_path / "run" / "record.json").read_text())
    assert [line["step"] for line in lines if line["kind"] == "train"] == [*range(3, 40, 3), 40]


@pytest.mark.slow
def test_a_bits_per_byte_is_nats_over_ln_2_for_bytes(run):
    valid = run("run")["valid"]
    assert valid["bits_per_byte"] == pytest.approx(valid["loss"] / 0.6931471805599453)


@pytest.mark.slow
def test_the_model_of_a_run_is_its_best_checkpoint(run, tmp_path):
    # A learning rate that ruins the model: the last evaluation need not be the best.
    record = run(
        "run", {"optimizer.schedule": "constant", "optimizer.lr": 0.5, "optimizer.warmup_steps": 5}
    )
    best = record["valid"]["step"]
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == (
        tmp_path / "run" / "checkpoints" / f"step-{best:08d}" / "model" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(
    ("losses", "kept"),
    [
        ([1.0, 2.0, 3.0, 4.0], [6, 20, 24]),
        # The checkpoint of step 20 cannot be resumed without that of step 6.
        ([2.0, 3.0, 4.0, 1.0], [6, 20, 24]),
        ([4.0, 2.0, 3.0, 1.0], [12, 20, 24]),
        ([4.0, 3.0, 2.0, 1.0], [18, 20, 24]),
    ],
)
def test_the_newest_checkpoints_and_the_best_of_each_are_kept(tiny, tmp_path, losses, kept):
    snapshots = train_with_losses(tiny(), tmp_path, losses)
    assert saved_steps(snapshots.root) == kept


def train_with_losses(loaded, folder, losses):
    """Train a tiny run, whose evaluations give these losses; return its checkpoints."""
    session = open_session(loaded)
    snapshots = Snapshots(folder, session.train_step, lambda folder: None)
    given = iter(losses)
    evaluate = Evaluate(lambda: {"loss": next(given)}, ("loss",))
    Loop(session.recipe.train, session.train_step, evaluate, snapshots, LoopState()).run(
        SilentProgress()
    )
    return snapshots


def test_a_loss_that_is_not_finite_stops_the_run_and_names_step_and_checkpoint(run, tmp_path):
    ruinous = {"optimizer.lr": 1e6, "optimizer.weight_decay": 0.1, "optimizer.warmup_steps": 0}
    with pytest.raises(
        TrainingError, match=r"not finite at step \d+ of 24; there is no checkpoint before it"
    ) as caught:
        run("run", ruinous)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_validation_loss_that_is_not_finite_is_never_the_best(tiny, tmp_path):
    session = open_session(tiny())
    snapshots = Snapshots(tmp_path, session.train_step, lambda folder: None)
    ruined = {"loss": float("nan"), "bits_per_byte": float("nan")}
    evaluate = Evaluate(lambda: ruined, ("loss", "bits_per_byte"))
    loop = Loop(session.recipe.train, session.train_step, evaluate, snapshots, LoopState())
    with pytest.raises(TrainingError, match="the validation loss is not finite at step 6 of 24"):
        loop.run(SilentProgress())
    assert loop.state.best is None


def test_only_translations_are_chosen_by_bleu(run):
    with pytest.raises(
        ConfigError, match="train.best_by = 'bleu' has no effect with objective.kind = 'causal'"
    ):
        run("run", {"train.best_by": "bleu"})


@pytest.mark.slow
def test_a_run_goes_on_from_another(run, tmp_path):
    first = run("first")
    second = run("second", {"init.run": str(tmp_path / "first"), "optimizer.lr": 1e-3})
    valid = [
        line for line in read_metrics(tmp_path / "second" / METRICS) if line["kind"] == "valid"
    ]
    assert valid[0]["loss"] < first["valid"]["loss"] + 0.1
    assert second["valid"]["loss"] <= first["valid"]["loss"] + 0.05


@pytest.mark.slow
def test_the_first_blocks_of_another_run_can_be_taken(run, tmp_path, tiny):
    import torch

    from sublayer.runs.run import from_recipe
    from tests.made import TINY

    run("first", {"model.positions": "learned-per-layer"})
    settings = {
        **TINY,
        "model.n_layers": 3,
        "model.positions": "learned-per-layer",
        "init.run": str(tmp_path / "first"),
    }
    source = load(tmp_path / "first")
    model = from_recipe("gpt", {**settings, "init.layers": 1, "data.path": tiny().recipe.data.path})
    fresh = from_recipe("gpt", {**settings, "init.layers": 0, "data.path": tiny().recipe.data.path})
    for name, value in model.state_dict().items():
        if name.startswith("decoder.sublayers."):
            taken = name.split(".")[3] == "0"
            expected = source.state_dict()[name] if taken else fresh.state_dict()[name]
        elif name.startswith("positions.tables."):
            expected = (
                source.state_dict()[name] if name.split(".")[2] == "0" else fresh.state_dict()[name]
            )
        else:
            expected = source.state_dict()[name]
        assert torch.equal(value, expected), name
    with pytest.raises(ConfigError, match="init.layers = 3 is more than the 2 blocks of .*first"):
        from_recipe("gpt", {**settings, "init.layers": 3, "data.path": tiny().recipe.data.path})


def test_compilation_on_a_cpu_is_refused_with_the_reason(run):
    with pytest.raises(ConfigError, match="train.compile = true gains nothing on a CPU"):
        run("run", {"train.compile": True})


@pytest.mark.parametrize(("share", "layers"), [("all", None), ("all", 2), ("none", 2)])
def test_a_deeper_encoder_starts_from_a_shallower_one(run, tiny, tmp_path, share, layers):
    settings = {**MASKED, "model.share": share, "train.steps": 2, "train.evaluate_steps": 2}
    run("shallow", settings)
    deeper = {"model.n_layers": 4, "init.run": str(tmp_path / "shallow")} | (
        {} if layers is None else {"init.layers": layers}
    )
    kept = {
        key: value
        for key, value in settings.items()
        if key not in ("data.tokenizer", "data.vocab_size")
    }
    model = open_session(tiny({**kept, **deeper})).train_step.objective.model
    given, found = load(tmp_path / "shallow").state_dict(), model.state_dict()
    assert given.keys() <= found.keys()
    assert all(value.equal(found[name]) for name, value in given.items())
    assert (len(found) > len(given)) == (share == "none")


def test_what_the_text_does_not_fill_is_said_before_training(run, tmp_path):
    for number in range(40):
        (tmp_path / f"{number:02}.txt").write_text(
            f"the cat sat {number}.\nthe dog ran {number}.\n" if number % 4 else " "
        )
    notes = Notes()
    settings = {
        "data.path": str(tmp_path / "*.txt"),
        "data.documents": "file",
        "train.batch_sequences": 2,
    }
    run("short", {**MASKED, **settings, "train.steps": 1, "data.vocab_size": 5000}, progress=notes)
    (unfilled,) = [
        text
        for text in notes.texts
        if text.startswith("data.vocab_size = 5000, of which the training")
    ]
    left_out = [text.split() for text in notes.texts[notes.texts.index(unfilled) + 1 :]]
    assert sum(int(words[5]) for words in left_out) == 10


def test_what_a_vocabulary_of_translations_lacks_is_said_before_training(run, tmp_path):
    (tmp_path / "few.codes").write_text("#version: 0.2\no n</w>\nt h\nth e</w>\n")
    settings = {key: value for key, value in TRANSLATION.items() if key != "data.vocab_size"}
    notes = Notes()
    run(
        "few",
        {**settings, "data.tokenizer": str(tmp_path / "few.codes"), "train.steps": 1},
        progress=notes,
    )
    (note,) = [text for text in notes.texts if "unknown" in text]
    assert re.fullmatch(
        r"[\d,]+ of [\d,]+ tokens of the train split are unknown to data.tokenizer", note
    )
    notes = Notes()
    run("all", {**TRANSLATION, "train.steps": 1}, progress=notes)
    assert not any("unknown" in text for text in notes.texts)


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, 0), (TRANSLATION, 3)], ids=["windows", "pairs"]
)
def test_what_blocks_of_many_shapes_leave_is_released_at_each_line_of_the_log(
    run, monkeypatch, settings, expected
):
    released = []
    monkeypatch.setattr("sublayer.training.loop.release_freed_memory", lambda: released.append(1))
    run("run", {**settings, "train.steps": 6, "train.log_steps": 2})
    assert len(released) == expected
