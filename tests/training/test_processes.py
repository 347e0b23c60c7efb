"""Several processes train as one does, whole copies, parts and to the bit; how they meet."""

import json
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from sublayer.api.run import load
from sublayer.errors import CheckpointError, ConfigError, Preempted, SaidElsewhere, TrainingError
from sublayer.files.checkpoints import checkpoint_path, saved_steps
from sublayer.files.tensors import StoredTensors
from sublayer.runs.run import train_run
from sublayer.training import world as joined_world
from sublayer.training.checkpoints import stored_model, stored_training
from sublayer.training.log import SilentProgress
from sublayer.training.parallel import TreeSum, exchange, part_range, subtrees
from sublayer.training.sharded import read_parts
from sublayer.training.world import agree_on_start, reach
from tests.made import LSTM, MASKED, QUESTIONS, SPAN, TEXT, TINY, TRANSLATION
from tests.stopping import stopped_at
from tests.torchrun import in_processes
from tests.training.conftest import ROOT
from tests.training.runs import SignalAt, figures
from tests.training.several_trainings import SETTINGS, save_again

SHORT = {"train.steps": 8, "train.evaluate_steps": 8, "model.dropout": 0.0}
AUXILIARY = {"model.n_layers": 3, "objective.auxiliary": "layers", "objective.targets": 2}
"""Losses of which some stop on the way, and leave parameters without gradients."""
VALUES = {"model.value_residual": "learned", "model.attention_gate": "head"}
LAMB = {"optimizer.kind": "lamb", "optimizer.lr": 1e-2}
SHARED = {**LAMB, "model.share": "all", "model.ffn": "swiglu"}
SHARED |= {"optimizer.schedule": "polynomial", "optimizer.warmup": "albert"}
ADAFACTOR = {"model.ffn": "swiglu", "optimizer.kind": "adafactor", "optimizer.min_factored": 8}
MUON = {"model.ffn": "swiglu", "optimizer.kind": "muon"}
IN_FLOAT32 = {**MUON, "optimizer.newton_schulz_dtype": "float32"}
# Steps move the averaged weights before they gather them, also after an evaluation.
AVERAGED = {"optimizer.kind": "schedule-free", "optimizer.lr": 0.01}
DOCUMENTS = {**LSTM, "data.boundaries": "respect"}
# No choice, start or end depends on what all logits share: the gradient of that bias is noise, of
# which Adam would make much.
SGD = {"optimizer.kind": "sgd", "optimizer.lr": 0.1, "objective.dropout": 0.0}
BLEU = {**TRANSLATION, "train.best_by": "bleu"}
COPIES = {
    "unjudged": {**MASKED, "objective.sentence": "none", **LAMB},
    # Batches of few pairs, of which one has a pair alone: less than there are processes.
    "lonely": {**TRANSLATION, "data.context": 13, "train.batch_sequences": 2},
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
    "ragged": {
        "train.batch_sequences": 5, "model.block": ["attention+ffn"], **AVERAGED, **FULL
    },
    "auxiliary": {**AUXILIARY, **VALUES, "train.recompute": "blocks", **FULL},
    "shared in groups": {**SHARED, **GROUPS, **BARE, **OPTIMIZER}, "lstm": {**DOCUMENTS, **FULL},
    "masked": {**MASKED, **LAMB, **FULL},
    "translation": {**BLEU, "model.zero_padding": True, **FULL},
    "odd, adafactor": {**ODD, **ADAFACTOR, **BARE, **FULL},
    "odd, muon": {**ODD, **IN_FLOAT32, **BARE, **OPTIMIZER},
}  # fmt: skip
PARTS = {name: {**way, **SHORT} for name, way in PARTS.items()}
PARTS["ragged"]["train.evaluate_steps"] = 4
# Seven parts: no power of two, and no multiple of the processes.
SEVEN = {"train.batch_sequences": 7, "train.micro_batch_sequences": 1}
SEVEN |= {**SHORT, "model.dropout": 0.2, "train.exact": True}
EXACT = {
    "bfloat16": {"train.precision": "bfloat16", **SEVEN}, "masked": {**MASKED, **LAMB, **SEVEN},
    "translation": {**BLEU, **SEVEN}, "span": {**SPAN, "optimizer.kind": "adafactor", **SEVEN},
    "text": {**TEXT, "data.tasks": ["sst2", "rte"], **SEVEN}, "muon": {**MUON, **SEVEN},
}  # fmt: skip
SEVERAL = {"copies": COPIES, "parts": PARTS, "exact": EXACT}
WHOLE = {name: {**way, "train.shard": "none"} for name, way in PARTS.items()}
SAME = [(mode, name) for mode, ways in SEVERAL.items() for name in ways]
MOVED_PARTS = ("auxiliary", "shared in groups", "odd, adafactor", "odd, muon")
MOVED = [*(("parts", name) for name in MOVED_PARTS), ("exact", "bfloat16"), ("exact", "masked")]
MOVED.append(("exact", "muon"))


def words_of(task):
    fields = [f"{key}={json.dumps(value)}" for key, value in task["settings"].items()]
    return ["train", "gpt", *fields, "--out", task["out"], "--resume"]


def last_checkpoint(folder):
    return checkpoint_path(folder / "checkpoints", saved_steps(folder / "checkpoints")[-1])


class Trained:
    def __init__(self, workshop, made):
        self.workshop = workshop
        COPIES["frozen"]["init.run"] = str(made("causal"))

    def task(self, way, out="", **more):
        settings = {**TINY, **way, "data.path": str(self.workshop.path(way))}
        if settings.get("model.kind") == "lstm":
            del settings["model.n_heads"]
        return {"recipe": "gpt", "settings": settings, "out": str(out), **more}

    def alone(self, mode, name):
        def train(folder):
            way = {**SEVERAL, "parts": WHOLE}[mode][name]
            train_run(self.workshop.recipe(way), folder, progress=SilentProgress())

        return self.workshop.once(f"one-{mode}-{name}", train)

    def launch(self, n, folder, tasks, *options):
        folder.mkdir()
        (folder / "tasks.json").write_text(json.dumps(tasks))
        command = in_processes(n, "tests.training.several_trainings", folder / "tasks.json")
        command[3:3] = options
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr[-6000:]
        (folder / "stdout").write_text(done.stdout)
        (folder / "stderr").write_text(done.stderr)
        return done.stderr

    def in_two(self):
        return self.workshop.once("two", self._in_two)

    def _in_two(self, folder):
        tasks = [words_of(self.task(SEVERAL[m][name], folder / m / name)) for m, name in SAME]
        for mode, name in MOVED:
            tasks.append(self.task(SEVERAL[mode][name], folder / f"begun {mode}" / name, end=5))
        for name in MOVED_PARTS:
            tasks.append(self.task(PARTS[name], into=str(folder / "drawn" / name)))
        tasks.append({"differing": words_of(self.task({}, folder / "differing"))})
        tasks.append({"found": str(folder), "paths": self.texts_of_work(folder)})
        self.launch(2, folder, tasks)

    def answers(self, kind):
        files = (self.in_two() / f"{rank}.json" for rank in range(2))
        return [json.loads(file.read_text())[kind] for file in files]

    def texts_of_work(self, folder):
        more = folder.parent / "more-texts"
        (more / "stories").mkdir(parents=True)
        (more / "words.txt").write_text((self.workshop.path({}).read_text() + "\n") * 4)
        for number, path in enumerate(sorted(self.workshop.path(MASKED).iterdir()) * 30):
            (more / "stories" / f"{number}.txt").write_text(path.read_text())
        text, pairs = str(more / "words.txt"), str(self.workshop.path(TRANSLATION))
        return [text, str(more / "stories"), pairs, text, *[str(self.workshop.path(TEXT))] * 4]

    def in_four(self):
        return self.workshop.once("four", self._in_four)

    def _in_four(self, folder):
        two, tasks = self.in_two(), []
        for mode, name in MOVED:
            tasks.append(words_of(self.task(SEVERAL[mode][name], two / f"begun {mode}" / name)))
        for name in MOVED_PARTS:
            saved, into = last_checkpoint(two / "parts" / name), folder / "again" / name
            tasks.append(self.task(PARTS[name], restore=str(saved), into=str(into)))
        self.launch(4, folder, tasks)


@pytest.fixture(scope="session")
def trained(workshop, made):
    return Trained(workshop, made)


def model_of(folder):
    return load_file(folder / "model" / "model.safetensors")


def assert_equal(folder, alone, mode, name):
    way = SEVERAL[mode][name]
    near = {"rtol": 1e-5, "atol": 1e-6} if "model.bias" in way else {"rtol": 1e-2, "atol": 2e-3}
    losses = [[figures(each, kind) for kind in ("train", "valid")] for each in (folder, alone)]
    if mode == "exact":
        near = {"rtol": 0, "atol": 0}
        assert losses[0] == losses[1]
    for found, expected in zip(*losses, strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    assert_close(model_of(folder), model_of(alone), **near)


@pytest.mark.parametrize("mode, name", SAME)
def test_two_processes_give_the_losses_and_weights_of_one(trained, made, mode, name):
    folder, alone = trained.in_two() / mode / name, trained.alone(mode, name)
    assert_equal(folder, alone, mode, name)
    assert load(folder).config == load(alone).config
    if name == "frozen":
        frozen = model_of(made("causal"))["embedding.weight"]
        assert torch.equal(model_of(folder)["embedding.weight"], frozen)


def test_the_first_process_alone_speaks_and_no_library_warns(trained):
    two = trained.in_two()
    assert (two / "stdout").read_text().count("trained 8 steps") == len(SAME)
    errors = (two / "stderr").read_text()
    assert "arning" not in errors
    (line,) = [line for line in errors.splitlines() if line.startswith("error:")]
    assert "process 1 has another recipe than the first" in line
    assert not (two / "differing" / "recipe.toml").exists()


@pytest.mark.parametrize("mode, name", MOVED)
def test_runs_of_two_processes_are_resumed_by_four(trained, mode, name):
    trained.in_four()
    assert_equal(trained.in_two() / f"begun {mode}" / name, trained.alone(mode, name), mode, name)


def assert_same_bits(ours, theirs):
    for stored in (stored_model, stored_training):
        assert_close(stored(theirs).read(), stored(ours).read(), rtol=0, atol=0)


@pytest.mark.parametrize("name", MOVED_PARTS)
def test_parts_of_weights_are_drawn_saved_and_read_as_those_of_one_process(trained, tmp_path, name):
    save_again(trained.task(PARTS[name], into=str(tmp_path / "one")))
    folders = (tmp_path / "one", trained.in_two() / "drawn" / name)
    assert_same_bits(*(checkpoint_path(folder / "checkpoints", 0) for folder in folders))
    saved = last_checkpoint(trained.in_two() / "parts" / name)
    assert not stored_model(saved).is_whole
    assert_close(dict(load(saved).state_dict()), stored_model(saved).read(), rtol=0, atol=0)
    save_again(trained.task(PARTS[name], restore=str(saved), into=str(tmp_path / "again")))
    for again in (tmp_path / "again", trained.in_four() / "again" / name):
        assert_same_bits(saved, last_checkpoint(again))


@pytest.mark.parametrize("kind", SETTINGS)
def test_two_processes_score_what_one_does_to_the_bit_and_share_the_work(trained, kind):
    for effort in ("training", "test"):
        first, second = (each[kind][effort] for each in trained.answers("scores"))
        alone, together = first["alone"], [first["together"], second["together"]]
        assert "loss" in alone["scores"]
        keeps_items = kind in ("causal", "masked", "translation", "span")
        assert bool(alone["items"]) == (effort == "test" and keeps_items)
        for found in together:
            assert (found["items"], found["scores"]) == (alone["items"], alone["scores"])
            assert 0 < found["calls"] <= 0.8 * alone["calls"]


def test_two_processes_agree(trained):
    first, second = trained.answers("agreement")
    expected = {"ragged": [[1.5], [], [3.0, float(2**40)], [4.0], [5.0, 6.0, 7.0]]}
    expected |= {"fewer": [[8.0]], "sum": [3.0], "share": [0.0, 7.0], "any": [True, True, False]}
    for found, written in ((first, [0]), (second, [])):
        assert "process 1 has another text than the first" in found.pop("differing")
        assert found.pop("failure")[0] == ("SaidElsewhere" if found is second else "ValueError")
        assert found == {**expected, "written": written}


@pytest.mark.all
def test_a_process_that_is_lost_costs_one_line_and_some_steps(trained, tmp_path):
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    way = {"train.steps": 12, "train.hang_minutes": 0.5, "train.exact": True}
    train_run(trained.workshop.recipe(way), unbroken, progress=SilentProgress())
    task = trained.task(way, broken)
    tasks = [{**task, "lost": words_of(task)}]
    errors = trained.launch(2, tmp_path / "tasks", tasks, "--max-restarts", "3")
    (line,) = [line for line in errors.splitlines() if line.startswith("error:")]
    assert "another process was lost" in line and "Traceback" not in errors
    assert_close(model_of(broken), model_of(unbroken), rtol=0, atol=0)
    for kind in ("train", "valid"):
        assert figures(broken, kind) == figures(unbroken, kind)


def test_a_warning_saves_and_asks_to_be_started_again(run, tmp_path):
    with pytest.raises(Preempted, match="saved at step 5 of 8"):
        run("warned", {"train.steps": 8}, progress=SignalAt(5, signal.SIGUSR1))
    assert saved_steps(tmp_path / "warned" / "checkpoints")[-1] == 5


@pytest.mark.all
def test_the_exit_code_of_a_warning_asks_for_another_try(trained, tmp_path):
    words = words_of(trained.task({"train.steps": 60}, tmp_path / "run"))[:-1]  # no --resume
    command = stopped_at([("open", "state.json")] * 2, signal.SIGUSR1, *words)
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 75, ended.stderr


MINUTE = timedelta(seconds=60)


def start(store, size):
    with ThreadPoolExecutor(size) as pool:
        names = list(pool.map(lambda rank: agree_on_start(store, rank, size, MINUTE), range(size)))
    assert len(set(names)) == 1
    return names[0]


def test_processes_agree_on_a_new_name_at_every_start_whatever_one_that_failed_has_left():
    store = dist.HashStore()
    assert len({start(store, 3) for _ in range(5)}) == 5
    store = dist.HashStore()
    for rank in (0, 1):
        with pytest.raises(RuntimeError, match="Timed out waiting for the other processes"):
            agree_on_start(store, rank, 2, timedelta(seconds=0.2))
    first = start(store, 2)
    with pytest.raises(RuntimeError, match="Timed out"):
        agree_on_start(store, 1, 2, timedelta(seconds=0.2))
    # The first process finds what the dead one asked, and tells it: the living one asks again.
    with ThreadPoolExecutor(2) as pool:
        main = pool.submit(agree_on_start, store, 0, 2, MINUTE)
        other = pool.submit(agree_on_start, store, 1, 2, MINUTE)
        assert main.result() == other.result() != first


def launch(monkeypatch, rank, address, port):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    values = {"WORLD_SIZE": 2, "RANK": rank, "MASTER_ADDR": address, "MASTER_PORT": port}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


def test_a_port_of_another_program_is_named_and_not_asked(monkeypatch):
    with socket.socket() as mute:
        mute.bind(("", 0))
        mute.listen()
        port = mute.getsockname()[1]
        launch(monkeypatch, 0, "127.0.0.1", port)
        with pytest.raises(ConfigError, match=f"MASTER_PORT = {port} is in use"):
            reach(MINUTE)
    monkeypatch.setattr(joined_world, "_stores", [])
    assert joined_world.says_first("that it hangs for ever")


@pytest.mark.parametrize("address", ["127.0.0.1", "no-such-host.invalid"])
def test_an_address_where_nothing_answers_is_named(monkeypatch, address):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        launch(monkeypatch, 1, address, port)
        with pytest.raises(TrainingError, match=f"MASTER_ADDR = {address}, MASTER_PORT = {port}"):
            reach(timedelta(0))


@pytest.mark.parametrize("error, is_first, said, kind", [
    (RuntimeError("Connection closed by peer [1]"), True, "was lost", TrainingError),
    (RuntimeError("Application timeout caused pair closure"), True, "hangs", TrainingError),
    (dist.DistNetworkError("gone"), False, "was lost", SaidElsewhere),
    (RuntimeError("a bug"), True, "a bug", RuntimeError),
    (ValueError("Broken pipe"), True, "Broken pipe", ValueError),
])  # fmt: skip
def test_a_lost_process_is_named_once(monkeypatch, error, is_first, said, kind):
    monkeypatch.setattr(joined_world, "n_launched", lambda: 2)
    monkeypatch.setattr(joined_world, "says_first", lambda what: is_first)
    monkeypatch.setattr(joined_world, "ignore_from_now_on", lambda: None)
    with pytest.raises(kind, match=said) as caught, joined_world.naming_lost("step 4 is kept"):
        raise error
    assert type(caught.value) is kind
    assert ("step 4 is kept" in str(caught.value)) == (caught.value is not error)


PART = "shard-00001-model-00001-of-00001.safetensors"


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_folders_of_two_checkpoints_and_damaged_parts_are_refused(tmp_path):
    into, whole = {"x": torch.zeros(2)}, tmp_path / "model.safetensors"
    (tmp_path / PART).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_parts(into, StoredTensors(whole, tmp_path))
    save_file({"x": torch.ones(2)}, whole)
    with pytest.raises(CheckpointError, match=f"has {PART} besides model.safetensors"):
        read_parts(into, StoredTensors(whole, tmp_path))
    whole.rename(tmp_path / "copy.safetensors")
    with pytest.raises(CheckpointError, match=f"has copy.safetensors besides {PART}"):
        read_parts(into, StoredTensors(whole, tmp_path))
    assert torch.equal(into["x"], torch.zeros(2))


TREES = {1: "0", 5: "(((0 1) (2 3)) 4)", 7: "(((0 1) (2 3)) ((4 5) 6))"}


@pytest.mark.parametrize("n_parts", TREES)
def test_any_number_of_processes_adds_the_same_tree(n_parts):
    for size in range(1, n_parts + 1):
        whole, taken = TreeSum("({} {})".format), []
        for rank in range(size):
            parts = part_range(rank, size, n_parts)
            taken += parts
            part_sum = TreeSum("({} {})".format)
            for part in parts:
                part_sum.push((0, part), str(part))
            assert [node for node, _ in part_sum.nodes] == subtrees(parts)
            for node, value in part_sum.nodes:
                whole.push(node, value)
        assert (taken, whole.total()) == (list(range(n_parts)), TREES[n_parts])


def test_a_process_sums_its_share_of_every_subtree_of_every_process(monkeypatch):
    # Two processes with two subtrees and equal gradients: this one sums the first parameter.
    swapped = SimpleNamespace(
        all_to_all_single=lambda received, sent, *_: received.copy_(sent.chunk(2)[0].repeat(2)),
        all_gather=lambda chunks, total: chunks[0].copy_(total),
    )
    monkeypatch.setattr("sublayer.training.parallel.dist", swapped)
    world = SimpleNamespace(size=2, device="cpu", sum=torch.clone)
    one, two, three, four = (torch.full((16,), float(n)) for n in range(1, 5))
    summed, _ = exchange(world, [one, two], [((1, 0), [one, two]), ((0, 2), [three, four])], 6)
    assert torch.equal(summed, 2 * (one + three))
