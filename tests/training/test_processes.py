"""Several processes train as one does: whole copies, parts of weights, and to the bit."""

import json
import signal
import subprocess

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import Preempted
from sublayer.files.checkpoints import checkpoint_path, saved_steps
from sublayer.files.tensor_parts import read_stored
from sublayer.loading import load
from sublayer.runs.run import train_run
from sublayer.training.checkpoints.layout import stored_model, stored_training
from sublayer.training.progress import SilentProgress
from tests.made import LSTM, MASKED, QUESTIONS, SPAN, TEXT, TINY, TRANSLATION
from tests.stopping import stopped_at
from tests.torchrun import in_processes
from tests.training.conftest import ROOT
from tests.training.runs import Notes, SignalAt, figures
from tests.training.several_trainings import save_again
from tests.training.shared_work import SETTINGS

TASKS_MODULE = "tests.training.several_trainings"
SHORT = {"train.steps": 8, "train.evaluate_steps": 8, "model.dropout": 0.0}
AUXILIARY = {"model.n_layers": 3, "objective.auxiliary": "layers", "objective.targets": 2}
"""Losses of which some stop on the way, and leave parameters without gradients."""

LAMB = {"optimizer.kind": "lamb", "optimizer.lr": 1e-2}
SHARED = {**LAMB, "model.share": "all", "model.ffn": "swiglu"}
SHARED |= {"optimizer.schedule": "polynomial", "optimizer.warmup": "albert"}
"""Ratios of norms, of weights that all layers share."""

ADAFACTOR = {"model.ffn": "swiglu", "optimizer.kind": "adafactor", "optimizer.min_factored": 8}
"""Means of rows and columns, of matrices that are stored together."""

DOCUMENTS = {**LSTM, "data.boundaries": "respect"}
# No choice, start or end depends on what all logits share: the gradient of that bias is noise, of
# which Adam would make much.
SGD = {"optimizer.kind": "sgd", "optimizer.lr": 0.1, "objective.dropout": 0.0}
BLEU = {**TRANSLATION, "train.best_by": "bleu"}
COPIES = {
    # A sentence head that is not trained, and an optimizer that leaves it alone.
    "unjudged": {**MASKED, "objective.sentence": "none", **LAMB},
    # Batches of few pairs, of which one has a pair alone: less than there are processes.
    "lonely": {**TRANSLATION, "data.context": 13, "train.batch_sequences": 2},
    # Of which some have no answer: the joint head.
    "questions": {**QUESTIONS, "data.tasks": "squad2", **SGD},
    "frozen": {"init.freeze": "embeddings"},
}
COPIES = {name: {**way, **SHORT} for name, way in COPIES.items()}
FULL, OPTIMIZER = {"train.shard": "full"}, {"train.shard": "optimizer"}
ODD = {"model.d_model": 27, "model.n_heads": 3, "model.d_ff": 37, "model.ffn": "swiglu"}
"""Sides that neither two nor four processes divide."""
GROUPS = {"model.share": "attention", "model.share_groups": 2, "model.n_layers": 4}
# The gradient of the keys' bias is rounding alone, which updates by whole matrices make as long as
# others.
BARE = {"model.bias": False}
PARTS = {
    # Steps of which two processes compute different numbers of micro-batches.
    "ragged": {"train.batch_sequences": 5, **FULL},
    "auxiliary": {**AUXILIARY, "train.recompute": "blocks", **FULL},
    "shared in groups": {**SHARED, **GROUPS, **BARE, **OPTIMIZER}, "lstm": {**DOCUMENTS, **FULL},
    "masked": {**MASKED, **LAMB, **FULL},
    "translation": {**BLEU, "model.zero_padding": True, **FULL},
    "odd, adafactor": {**ODD, **ADAFACTOR, **BARE, **FULL},
}  # fmt: skip
PARTS = {name: {**way, **SHORT} for name, way in PARTS.items()}
# Seven parts: no power of two, and no multiple of the processes.
SEVEN = {"train.batch_sequences": 7, "train.micro_batch_sequences": 1}
SEVEN |= {**SHORT, "model.dropout": 0.2, "train.exact": True}
EXACT = {
    "bfloat16": {"train.precision": "bfloat16", **SEVEN}, "masked": {**MASKED, **LAMB, **SEVEN},
    "translation": {**BLEU, **SEVEN}, "span": {**SPAN, "optimizer.kind": "adafactor", **SEVEN},
    "text": {**TEXT, "data.tasks": ["sst2", "rte"], **SEVEN},
}  # fmt: skip
SEVERAL = {"copies": COPIES, "parts": PARTS, "exact": EXACT}
WHOLE = {name: {**way, "train.shard": "none"} for name, way in PARTS.items()}
MOVED_PARTS = ("auxiliary", "shared in groups", "odd, adafactor")
MOVED = [*(("parts", name) for name in MOVED_PARTS), ("exact", "bfloat16"), ("exact", "masked")]
"""What two processes begin and four continue."""


def task_of(way, path, out, **more):
    settings = {**TINY, **way, "data.path": str(path)}
    if settings.get("model.kind") == "lstm":
        del settings["model.n_heads"]
    return {"recipe": "gpt", "settings": settings, "out": str(out), **more}


def words_of(task):
    fields = [f"{key}={json.dumps(value)}" for key, value in task["settings"].items()]
    return ["train", "gpt", *fields, "--out", task["out"], "--resume"]


def last_checkpoint(folder):
    return checkpoint_path(folder / "checkpoints", saved_steps(folder / "checkpoints")[-1])


def lines_of_errors(text):
    return [line for line in text.splitlines() if line.startswith("error:")]


class Trained:
    def __init__(self, workshop, made):
        self.workshop = workshop
        COPIES["frozen"]["init.run"] = str(made("causal"))

    def task(self, way, out, **more):
        return task_of(way, self.workshop.path(way), out, **more)

    def alone(self, mode, name):
        def train(folder):
            way = {**SEVERAL, "parts": WHOLE}[mode][name]
            train_run(self.workshop.recipe(way), folder, progress=SilentProgress())

        return self.workshop.once(f"one-{mode}-{name}", train)

    def launch(self, n_processes, folder, tasks):
        folder.mkdir()
        (folder / "tasks.json").write_text(json.dumps(tasks))
        command = in_processes(n_processes, TASKS_MODULE, folder / "tasks.json")
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        (folder / "stdout").write_text(done.stdout)
        (folder / "stderr").write_text(done.stderr)
        assert done.returncode == 0, done.stderr[-6000:]

    def in_two(self):
        """Give the folder of what two processes did."""
        return self.workshop.once("two", self._in_two)

    def _in_two(self, folder):
        tasks = [
            words_of(self.task(way, folder / mode / name))
            for mode, ways in SEVERAL.items()
            for name, way in ways.items()
        ]
        for mode, name in MOVED:
            begun = folder / f"begun {mode}" / name
            tasks.append(self.task(SEVERAL[mode][name], begun, end=5))
        for name in MOVED_PARTS:
            tasks.append(self.task(PARTS[name], "", into=str(folder / "drawn" / name)))
        tasks.append({"differing": words_of(self.task({}, folder / "differing"))})
        tasks.append({"found": str(folder), "paths": self.texts_of_work(folder)})
        self.launch(2, folder, tasks)

    def answers(self):
        return [json.loads((self.in_two() / f"{rank}.json").read_text()) for rank in range(2)]

    def texts_of_work(self, folder):
        words, stories = self.workshop.path({}).read_text(), self.workshop.path(MASKED)
        more = folder.parent / "more-texts"
        (more / "stories").mkdir(parents=True)
        (more / "words.txt").write_text((words + "\n") * 4)
        for number, path in enumerate(sorted(stories.iterdir()) * 30):
            (more / "stories" / f"{number}.txt").write_text(path.read_text())
        text, tasks = str(more / "words.txt"), str(self.workshop.path(TEXT))
        pairs = str(self.workshop.path(TRANSLATION))
        return [text, str(more / "stories"), pairs, text, *[tasks] * 4]

    def in_four(self):
        """Give the folder of what four processes continued, and saved as they had read it."""
        return self.workshop.once("four", self._in_four)

    def _in_four(self, folder):
        two, tasks = self.in_two(), []
        for mode, name in MOVED:
            tasks.append(words_of(self.task(SEVERAL[mode][name], two / f"begun {mode}" / name)))
        for name in MOVED_PARTS:
            saved = str(last_checkpoint(two / "parts" / name))
            into = str(folder / "again" / name)
            tasks.append(self.task(PARTS[name], "", restore=saved, into=into))
        self.launch(4, folder, tasks)


@pytest.fixture(scope="session")
def trained(workshop, made):
    return Trained(workshop, made)


def model_of(folder):
    return load_file(folder / "model" / "model.safetensors")


def assert_near(folder, alone, way):
    is_bare = way.get("model.bias") is False
    near = {"rtol": 1e-5, "atol": 1e-6} if is_bare else {"rtol": 1e-2, "atol": 2e-3}
    for kind in ("train", "valid"):
        assert figures(folder, kind) == pytest.approx(figures(alone, kind), rel=1e-4)
    assert_close(model_of(folder), model_of(alone), **near)


@pytest.mark.parametrize("name", COPIES)
def test_two_processes_give_the_losses_and_weights_of_one(trained, made, name):
    folder, alone = trained.in_two() / "copies" / name, trained.alone("copies", name)
    assert_near(folder, alone, COPIES[name])
    if name == "frozen":
        frozen = model_of(made("causal"))["embedding.weight"]
        assert torch.equal(model_of(folder)["embedding.weight"], frozen)


def test_the_first_process_alone_speaks_and_no_library_warns(trained):
    two = trained.in_two()
    n_runs = len(COPIES) + len(PARTS) + len(EXACT)
    assert (two / "stdout").read_text().count("trained 8 steps") == n_runs
    errors = (two / "stderr").read_text()
    assert "arning" not in errors
    # Processes that were started differently.
    (line,) = lines_of_errors(errors)
    assert "process 1 has another recipe than the first" in line
    assert not (two / "differing" / "recipe.toml").exists()


@pytest.mark.parametrize("name", PARTS)
def test_parts_give_the_losses_and_weights_of_whole_copies(trained, name):
    folder, alone = trained.in_two() / "parts" / name, trained.alone("parts", name)
    assert_near(folder, alone, PARTS[name])
    assert load(folder).config == load(alone).config


def assert_exact(folder, alone):
    assert_close(model_of(folder), model_of(alone), rtol=0, atol=0)
    for kind in ("train", "valid"):
        assert figures(folder, kind) == figures(alone, kind)


@pytest.mark.parametrize("name", EXACT)
def test_exact_training_has_the_bits_of_one_process_in_two(trained, name):
    assert_exact(trained.in_two() / "exact" / name, trained.alone("exact", name))


@pytest.mark.parametrize(("mode", "name"), MOVED)
def test_runs_of_two_processes_are_resumed_by_four(trained, mode, name):
    trained.in_four()
    folder, alone = trained.in_two() / f"begun {mode}" / name, trained.alone(mode, name)
    if mode == "exact":
        assert_exact(folder, alone)
    else:
        assert_near(folder, alone, PARTS[name])


def assert_same_bits(ours, theirs):
    for stored in (stored_model, stored_training):
        assert_close(read_stored(stored(theirs)), read_stored(stored(ours)), rtol=0, atol=0)


@pytest.mark.parametrize("name", MOVED_PARTS)
def test_each_process_draws_its_part_of_the_weights_that_one_process_draws(trained, tmp_path, name):
    save_again(trained.task(PARTS[name], "", into=str(tmp_path / "one")))
    folders = (tmp_path / "one", trained.in_two() / "drawn" / name)
    assert_same_bits(*(checkpoint_path(folder / "checkpoints", 0) for folder in folders))


@pytest.mark.parametrize("name", MOVED_PARTS)
def test_a_checkpoint_in_parts_is_a_model_of_the_same_bits_everywhere(trained, tmp_path, name):
    saved = last_checkpoint(trained.in_two() / "parts" / name)
    assert not stored_model(saved).is_whole
    assert_close(dict(load(saved).state_dict()), read_stored(stored_model(saved)), rtol=0, atol=0)
    save_again(trained.task(PARTS[name], "", restore=str(saved), into=str(tmp_path)))
    for again in (tmp_path, trained.in_four() / "again" / name):
        assert_same_bits(saved, last_checkpoint(again))


@pytest.mark.parametrize("kind", SETTINGS)
def test_two_processes_score_what_one_does_to_the_bit_and_share_the_work(trained, kind):
    answers = trained.answers()
    for effort in ("training", "test"):
        first, second = (each["scores"][kind][effort] for each in answers)
        alone, together = first["alone"], [first["together"], second["together"]]
        assert "loss" in alone["scores"]
        keeps_items = kind in ("causal", "masked", "translation", "span")
        assert bool(alone["items"]) == (effort == "test" and keeps_items)
        for found in together:
            assert (found["items"], found["scores"]) == (alone["items"], alone["scores"])
            assert 0 < found["calls"] <= 0.8 * alone["calls"]


def test_two_processes_agree(trained):
    first, second = (answer["agreement"] for answer in trained.answers())
    expected = {"ragged": [[1.5], [], [3.0, float(2**40)], [4.0], [5.0, 6.0, 7.0]]}
    expected |= {"fewer": [[8.0]], "sum": [3.0], "share": [0.0, 7.0], "any": [True, True, False]}
    for found, written in ((first, [0]), (second, [])):
        assert "process 1 has another text than the first" in found.pop("differing")
        failure = found.pop("failure")
        assert failure[0] == ("SaidElsewhere" if found is second else "ValueError")
        assert found == {**expected, "written": written}


@pytest.mark.all
def test_a_process_that_is_lost_costs_one_line_and_some_steps(tmp_path, text_path):
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    way = {"train.steps": 12, "train.hang_minutes": 0.5, "train.exact": True}
    task = task_of(way, text_path, unbroken)
    train_run(load_recipe("gpt", task["settings"]), unbroken, progress=SilentProgress())
    # The second process sends itself the signal after step 7, in its first start alone.
    words = [str(signal.SIGKILL.value), *words_of(task_of(way, text_path, broken))]
    command = in_processes(2, "tests.training.lost_process", *words)
    command[3:3] = ["--max-restarts", "3"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0 and "Traceback" not in result.stderr, result.stderr
    (line,) = lines_of_errors(result.stderr)
    assert "another process was lost" in line
    assert_exact(broken, unbroken)


def test_a_warning_saves_and_asks_to_be_started_again(run, tmp_path):
    with pytest.raises(Preempted, match="saved at step 5 of 8"):
        run("warned", {"train.steps": 8}, progress=SignalAt(5, signal.SIGUSR1))
    assert saved_steps(tmp_path / "warned" / "checkpoints")[-1] == 5


@pytest.mark.all
def test_the_exit_code_of_a_warning_asks_for_another_try(tmp_path, text_path):
    words = words_of(task_of({"train.steps": 60}, text_path, tmp_path / "run"))
    # While the second checkpoint is written.
    command = stopped_at([("open", "state.json")] * 2, signal.SIGUSR1, *words)
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 75, ended.stderr


def test_one_process_is_told_that_it_divides_nothing(run):
    notes = Notes()
    run("alone", {"train.shard": "full", "train.steps": 2}, progress=notes)
    assert any("divides nothing" in text for text in notes.texts)
