"""The loop and its steps: accumulation, dropout, batches prepared ahead, checkpoints, notes."""

import math
import threading
import weakref
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from sublayer.config.model import VECTORS
from sublayer.errors import CheckpointError, DataError, Interrupted, TrainingError
from sublayer.files.checkpoints import checkpoint_path, saved_steps, verify_checkpoint
from sublayer.model.blocks import FUNCTIONS, FeedForward
from sublayer.model.parameters import parameter_roles
from sublayer.training import checkpoints, parallel
from sublayer.training.checkpoints import LoopState, Snapshots
from sublayer.training.log import SilentProgress
from sublayer.training.loop import Evaluate, Loop, MinutesPlan
from sublayer.training.step import Ahead, seed_dropout
from tests.made import MASKED, PAIR, QUESTIONS, SPAN, TEXT, TRANSLATION, TRAVERSAL
from tests.training.runs import SignalAt, open_session, results, weights


@pytest.fixture
def session(tiny):
    return lambda settings=None: open_session(tiny(settings))


def gradients(session, step=0):
    train_step = session.train_step
    loss = train_step._accumulate(step, train_step.prepare(step)[0])
    found = {name: value.grad for name, value in train_step.parameters.items()}
    return loss, {name: None if grad is None else grad.clone() for name, grad in found.items()}


def micro_batches(train_step, step):
    size, context = train_step.recipe.train.micro_batch_sequences, train_step.recipe.data.context
    parts = train_step.parallel.micro_batches(train_step.batches, step, size, context)
    return [part.batch for part in parts]


DOCUMENTS = {"data.boundaries": "respect", "data.context": 16}
AUXILIARY = {"model.n_layers": 3, "objective.auxiliary": "layers", "objective.targets": 3}
ACCUMULATED = {
    "windows": ({}, 4, 0),
    "documents": ({**DOCUMENTS, "objective.position_reduction": "sum"}, 5, 0),
    "some auxiliary losses": (AUXILIARY, 4, 20),
    # Rows of single examples and of several, with as many predictions as they have tokens for.
    "masked": ({**MASKED, "train.batch_sequences": 11, "objective.p_short": 0.6}, 2, 0),
    "translation": ({**TRANSLATION, "train.recompute": "blocks"}, 1, 3), "span": (SPAN, 2, 0),
    "text": (TEXT, 1, 0), "pairs": ({**PAIR, "objective.dropout": 0.0}, 1, 0),
    "traversals": ({**TRAVERSAL, "objective.dropout": 0.0}, 1, 0),
    "questions": ({**QUESTIONS, "objective.dropout": 0.0, "data.tasks": "squad2"}, 1, 0),
}  # fmt: skip
"""Settings, sequences of a micro-batch, and the step."""


class Judged(FeedForward):
    """A network with a loss of each sequence: no sum over tokens, as the balance of experts."""

    has_auxiliary = True

    def forward(self, x, context):
        output = super().forward(x, context)
        if not self.training:
            return output
        runs, flat = context.layout.runs, output.flatten(0, 1)
        numbers, real = torch.arange(len(x)).repeat_interleave(x.shape[1]), torch.ones(len(flat))
        if runs is not None:
            numbers, real = runs.sequences, runs.is_real.flatten().double()
        sums = flat.new_zeros(flat.shape).index_add(0, numbers, flat * real[:, None])
        lengths = flat.new_zeros(len(flat)).index_add(0, numbers, real).clamp_min(1)
        return output, (sums / lengths[:, None]).square().sum()


JUDGED = [pytest.param(kind, True, id=f"{kind}, judged") for kind in ACCUMULATED]
PLAIN = [pytest.param(kind, False, id=kind) for kind in ACCUMULATED]


@pytest.mark.parametrize("kind, is_judged", PLAIN + JUDGED)
def test_accumulated_gradients_equal_the_large_batchs(
    session, tmp_path, double, kind, is_judged, monkeypatch
):
    if is_judged:
        monkeypatch.setitem(FUNCTIONS, "ffn", Judged)
    settings, micro, step = ACCUMULATED[kind]
    if kind == "documents":
        # Many short documents make the counts of the micro-batches ragged.
        for number in range(40):
            (tmp_path / f"{number}.txt").write_text(f"{number} says {'word ' * (number % 7 + 3)}")
        settings = {**settings, "data.path": str(tmp_path)}
    found = []
    for size in (settings.get("train.batch_sequences", 6), micro):
        parted = session({**settings, "model.dropout": 0.0, "train.micro_batch_sequences": size})
        parted.train_step.objective.begin(step, 24)
        found.append(gradients(parted, step))
    (whole_loss, whole), (loss, parts) = found
    count, batches = parted.train_step.objective.all_counts, micro_batches(parted.train_step, step)
    counts = [tuple(count(batch).values()) for batch in batches]
    assert len(counts) > 1
    assert len(set(counts)) > 1 or not kind.startswith(("documents", "masked", "translation"))
    assert loss.item() == pytest.approx(whole_loss.item(), rel=1e-6)
    assert {k for k in whole if whole[k] is None} == {k for k in parts if parts[k] is None}
    compared = ({k: g for k, g in each.items() if g is not None} for each in (parts, whole))
    torch.testing.assert_close(*compared, rtol=1e-9, atol=1e-12)
    if is_judged:
        # The losses of every network of every stack arrive.
        monkeypatch.undo()
        plain = session({**settings, "model.dropout": 0.0})
        plain.train_step.objective.begin(step, 24)
        _, without = gradients(plain, step)
        networks = [name for name in without if ".function.input." in name]
        assert networks
        assert not any(torch.equal(without[name], parts[name]) for name in networks)


REPLICAS = {"train.replicas": 2, "train.threads": 2, "model.dropout": 0.0}


@pytest.mark.parametrize("kind", ACCUMULATED)
def test_gradients_of_replicas_equal_the_large_batchs(session, double, kind):
    settings, micro, step = ACCUMULATED[kind]
    found = []
    whole = {"model.dropout": 0.0, "train.replicas": 1}
    for more in (whole, {**REPLICAS, "train.micro_batch_sequences": max(2, micro)}):
        train_step = (built := session({**settings, **more})).train_step
        train_step.parallel.prepare(step, 24)
        found.append(gradients(built, step))
    assert len(train_step.prepare(step)[0]) > 2
    (whole_loss, expected), (loss, replicated) = found
    assert torch.get_num_threads() == 2 and whole_loss.item() == pytest.approx(loss.item())
    assert {name for name in expected if expected[name] is None} == {
        name for name in replicated if replicated[name] is None
    }
    compared = ({k: g for k, g in each.items() if g is not None} for each in (replicated, expected))
    torch.testing.assert_close(*compared, rtol=1e-9, atol=1e-12)


def test_an_error_in_a_replica_is_raised_once_all_have_ended(session):
    train_step, ended = session(REPLICAS).train_step, []
    (replica,) = train_step.parallel._replicas
    replica.forward = Mock(side_effect=TrainingError("broken"))
    forward = train_step.objective.forward
    train_step.objective.forward = lambda batch: (forward(batch), ended.append(batch))[0]
    with pytest.raises(TrainingError, match="broken"):
        train_step(0)
    assert ended and torch.get_num_threads() == 2


@pytest.mark.parametrize("kind", ["masked", "translation", "text", "pairs", "questions"])
def test_nothing_counts_of_a_process_without_examples(session, double, kind, monkeypatch):
    monkeypatch.setitem(FUNCTIONS, "ffn", Judged)
    train_step = session(ACCUMULATED[kind][0]).train_step
    batch = train_step.batches.batch(0, rank=99, world=100)
    assert not any(train_step.objective.all_counts(batch).values())
    totals = train_step.objective(batch)
    assert "auxiliary" in totals
    assert not any(totals.values())


def test_nothing_of_a_micro_batchs_graph_is_left_when_the_next_begins(session):
    step, graphs = session({"train.micro_batch_sequences": 2}).train_step, []
    forward = step.objective.forward

    def watched(batch):
        assert not any(graph() is not None for graph in graphs)
        totals = forward(batch)
        graphs.extend(weakref.ref(total) for total in totals.values())
        return totals

    step.objective.forward = watched
    step(0)
    assert len(graphs) == 3


@pytest.mark.parametrize("kind", [MASKED, TRANSLATION], ids=["masked", "pairs"])
def test_z_loss_moves_the_weights_and_is_in_no_number(session, kind):
    settings = {**kind, "model.dropout": 0.0}
    plain, other = session(settings), session({**settings, "objective.z_loss": 0.1})
    assert other.evaluate() == plain.evaluate()
    loss, without = gradients(plain)
    reported, found = gradients(other)
    assert reported.item() == loss.item()
    assert any(not torch.equal(found[name], value) for name, value in without.items())


def test_an_optimizer_leaves_a_head_that_is_not_trained_as_it_was(session):
    settings = {**MASKED, "optimizer.weight_decay": 0.5, "objective.sentence": "none"}
    train_step = session(settings).train_step
    before = weights(train_step)
    for step in (0, 1):
        train_step(step)
    unmoved = {name for name, value in weights(train_step).items() if value.equal(before[name])}
    assert {name.split(".")[1] for name in unmoved} == {"pooler", "sentence_head"}


def test_a_step_depends_on_seed_and_step_alone(session):
    found = []
    for number, settings in enumerate(({}, {}, {"train.seed": 1})):
        train_step = session(settings).train_step
        torch.manual_seed(number)
        before = torch.get_rng_state()
        train_step(3)
        assert torch.equal(torch.get_rng_state(), before)
        found.append(weights(train_step))
    first, second, other = found
    assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert not torch.equal(first["model.embedding.weight"], other["model.embedding.weight"])


def test_dropout_differs_between_steps_and_micro_batches(session):
    built = session({"optimizer.lr": 1e-12, "model.dropout": 0.5, "train.micro_batch_sequences": 6})
    batch, losses = micro_batches(built.train_step, 0)[0], []
    for index in (0, 1, 0):
        with torch.random.fork_rng():
            seed_dropout(0, 0, index, 0)
            losses.append(built.train_step.objective(batch)["lm"].item())
    assert losses[0] == losses[2] != losses[1]


@pytest.mark.parametrize(("kind", "vectors"), [("adamw", False), ("lamb", False), ("adamw", True)])
def test_weight_decay_spares_vectors_unless_asked(session, kind, vectors):
    settings = {"optimizer.kind": kind, "optimizer.weight_decay": 0.5}
    more = {"optimizer.decay_vectors": True} if vectors else {}
    train_step = session({**settings, **more}).train_step
    groups = [group for group in train_step.optimizer.param_groups if group["weight_decay"] > 0]
    decayed = {id(parameter) for group in groups for parameter in group["params"]}
    roles = parameter_roles(train_step.objective)
    for name, parameter in train_step.parameters.items():
        assert (id(parameter) in decayed) == (vectors or roles[name] not in VECTORS), name


def test_the_gradient_is_clipped_to_the_global_norm(session):
    plain = {"kind": "sgd", "momentum": 0.0, "schedule": "constant", "warmup_steps": 0, "lr": 1.0}
    settings = {f"optimizer.{name}": value for name, value in {**plain, "clip_norm": 0.01}.items()}
    train_step = session(settings).train_step
    before = weights(train_step)
    assert train_step(0).gradient_norm > 0.01
    moved = [(value - before[name]).norm() for name, value in weights(train_step).items()]
    assert torch.stack(moved).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_muon_clips_the_gradients_of_adamws_parameters_alone(session):
    settings = {"optimizer.kind": "muon", "optimizer.clip_norm": 0.01}
    clipped, free = session(settings), session({**settings, "optimizer.clip_norm": 0.0})
    (_, expected), found, train_step = gradients(free), {}, clipped.train_step
    train_step.before_update = lambda: found.update(
        {name: value.grad.clone() for name, value in train_step.parameters.items()}
    )
    whole = torch.stack([value.norm() for value in expected.values()]).norm().item()
    assert train_step(0).gradient_norm.item() == pytest.approx(whole, rel=1e-5)
    others = {name for name, role in train_step.parallel.roles.items() if role not in MAPS}
    assert torch.stack([found[name].norm() for name in others]).norm().item() <= 0.01
    for name in found.keys() - others:
        torch.testing.assert_close(found[name], expected[name])


MAPS = ("matrix", "stacked")
DROPPED = {f"dropout{of}": 0.1 for of in ("", "_attention", "_ffn", "_embedding")}
ROTARY = {"share": "all", "ffn": "swiglu", "positions": "rotary", "dropout": 0.1}


@pytest.mark.parametrize(("model", "precision"), [(DROPPED, "float32"), (ROTARY, "bfloat16")])
def test_blocks_computed_again_in_training_alone_give_the_same_gradients(session, model, precision):
    settings = {f"model.{name}": value for name, value in model.items()}
    settings |= {"model.n_layers": 3, "objective.auxiliary": "layers", "train.precision": precision}
    settings |= {"train.micro_batch_sequences": 4}
    built, calls = [session(settings), session({**settings, "train.recompute": "blocks"})], []
    for module in built[1].train_step.objective.modules():
        if type(module).__name__ == "Sublayer":
            module.register_forward_pre_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        for batch in micro_batches(built[1].train_step, 0):
            built[1].train_step.objective(batch)
    n_without_gradients = len(calls)
    (loss, kept), (again_loss, again) = map(gradients, built)
    assert len(calls) == 3 * n_without_gradients and torch.equal(loss, again_loss)
    assert all(torch.equal(again[name], gradient) for name, gradient in kept.items())


AFTER_SIX = {"train.steps": 6, "train.evaluate_steps": 6, "train.checkpoint_steps": 3}


def test_the_model_of_a_run_is_its_best_checkpoint(run, tmp_path):
    # A learning rate that ruins the model: the last evaluation is not the best.
    ruin = {"optimizer.schedule": "constant", "optimizer.lr": 0.5, "optimizer.warmup_steps": 5}
    best = run("run", {**ruin, "train.steps": 8, "train.evaluate_steps": 2})["valid"]["step"]
    assert best < 8
    checkpoint = tmp_path / "run" / "checkpoints" / f"step-{best:08d}"
    model, kept = (each / "model" / "model.safetensors" for each in (tmp_path / "run", checkpoint))
    assert model.read_bytes() == kept.read_bytes()


def loop_of(loaded, folder, losses):
    session, given = open_session(loaded), iter(losses)
    snapshots = Snapshots(folder, session.train_step, lambda folder: None)
    evaluate = Evaluate(lambda: {"loss": next(given)}, ("loss",))
    return Loop(session.recipe.train, session.train_step, evaluate, snapshots, LoopState())


# The checkpoint of step 20 cannot be resumed without the best one of then.
@pytest.mark.parametrize("losses, best", [([2.0, 3.0, 4.0, 1.0], 6), ([4.0, 2.0, 3.0, 1.0], 12)])
def test_the_newest_checkpoints_and_the_best_of_each_are_kept(tiny, tmp_path, losses, best):
    loop_of(tiny(), tmp_path, losses).run(SilentProgress())
    assert saved_steps(tmp_path / "checkpoints") == [best, 20, 24]


def test_a_loss_that_is_not_finite_stops_the_run_and_is_never_the_best(run, tiny, tmp_path):
    settings = {"optimizer.lr": 1e6, "optimizer.weight_decay": 0.1, "optimizer.warmup_steps": 0}
    with pytest.raises(TrainingError, match=r"finite at step \d+ of 24; there is no checkpoint"):
        run("run", settings)
    assert not (tmp_path / "run" / "checkpoints").exists()
    loop = loop_of(tiny(), tmp_path, [math.nan])
    with pytest.raises(TrainingError, match="validation loss is not finite at step 6"):
        loop.run(SilentProgress())
    assert loop.state.best is None


class Counted:
    def __init__(self, before=lambda step: None):
        self.asked, self.before = [], before

    def __call__(self, step):
        self.asked.append((step, threading.current_thread().name))
        self.before(step)
        return [], 10 * step

    def n_tokens(self, step):
        self.asked.append((f"count {step}", threading.current_thread().name))
        return 10 * step


def test_the_next_step_is_prepared_while_one_computes_and_its_error_raised_where_it_is_taken():
    begun, computed = threading.Event(), threading.Event()

    def before(step):
        if step == 1:
            begun.set()
            assert computed.wait(60), "it was not begun before step 0 ended"
            raise DataError("text.txt: line 7 is gone")

    ahead = Ahead(Counted(before), 3)
    assert ahead(0) == ([], 0) and begun.wait(60)
    computed.set()
    with pytest.raises(DataError, match="line 7 is gone"):
        ahead(1)
    assert ahead(2) == ([], 20)


def test_one_thread_reads_all_batches_in_any_order_and_none_beyond_the_last_step():
    counted = Counted()
    ahead = Ahead(counted, 7)
    assert [ahead(step)[1] for step in (0, 5, 5, 6, 2)] == [0, 50, 50, 60, 20]
    assert ahead.n_tokens(7) == 70
    steps, threads = zip(*counted.asked, strict=True)
    assert steps == (0, 1, 5, 6, 5, 6, 2, 3, "count 7")
    assert len(set(threads)) == 1 and threads[0].startswith("batches")


def test_another_length_is_that_of_what_is_prepared_ahead_too(session, monkeypatch):
    monkeypatch.setattr("sublayer.training.step.pays", lambda device: True)
    step = session({}).train_step
    step.set_length(9)
    assert step.steps == step.prepare.steps == 9


def test_a_run_resumed_ahead_equals_one_never_prepared_ahead(run, made, tmp_path, monkeypatch):
    monkeypatch.setattr("sublayer.training.step.pays", lambda device: True)
    with pytest.raises(Interrupted, match="saved at step 11"):
        run("ahead", progress=SignalAt(11))
    run("ahead", resume=True)
    assert results(tmp_path / "ahead") == results(made("causal"))


class OpenAt(SilentProgress):
    """Lets writing begin once a step has been taken, and keeps what is saved after each step."""

    def __init__(self, step, folder):
        self.step, self.folder, self.is_open, self.saved = step, folder, threading.Event(), {}

    def update(self, status):
        self.saved[status.step] = saved_steps(self.folder / "checkpoints")
        if status.step == self.step:
            self.is_open.set()

    def write(self, *given):
        assert self.is_open.wait(60)
        save_file(*given)


def test_a_checkpoint_is_of_the_step_that_it_was_taken_after(run, tmp_path, monkeypatch):
    watch = OpenAt(0, tmp_path / "waiting")
    run("waiting", {**AFTER_SIX, "train.save_in_background": False}, progress=watch)
    assert (watch.saved[3], watch.saved[6]) == ([3], [3, 6])
    slow = OpenAt(5, tmp_path / "beside")
    monkeypatch.setattr(parallel, "save_file", slow.write)
    run("beside", AFTER_SIX, progress=slow)
    assert slow.saved[4] == []
    for path in ("3/model/model", "3/training", "6/model/model", "6/training"):
        folders = (tmp_path / name / "checkpoints" for name in ("beside", "waiting"))
        ours, theirs = (folder / f"step-0000000{path}.safetensors" for folder in folders)
        assert ours.read_bytes() == theirs.read_bytes()


def test_copies_are_made_beside_the_next_pass_before_its_update(tiny, tmp_path, monkeypatch):
    train_step, copy = open_session(tiny()).train_step, checkpoints._copies
    has_gradients, done = threading.Event(), []

    def copy_late(tensors, kept):
        assert has_gradients.wait(60)
        done.append("copied")
        return copy(tensors, kept)

    monkeypatch.setattr(checkpoints, "_copies", copy_late)
    snapshots = Snapshots(tmp_path, train_step, lambda folder: None)
    train_step(0)
    expected = weights(train_step)
    snapshots.save(LoopState(1, tokens=1, seconds=1.0, step_seconds=1.0))
    wait = train_step.before_update
    monkeypatch.setattr(train_step, "before_update", lambda: (has_gradients.set(), wait()))
    train_step.optimizer.register_step_pre_hook(lambda *_: done.append("updated"))
    train_step(1)
    assert done == ["copied", "copied", "updated"]
    snapshots.wait()
    saved = load_file(checkpoint_path(snapshots.root, 1) / "model" / "model.safetensors")
    assert all(torch.equal(value, expected[f"model.{name}"]) for name, value in saved.items())


def test_averaged_weights_are_copied_before_a_step_moves_them(session):
    train_step, seen = session({"optimizer.kind": "schedule-free"}).train_step, []
    train_step(0)
    train_step(1)
    averaged = weights(train_step)
    train_step.before_update = lambda: seen.append(weights(train_step))
    train_step(2)
    before, while_computing = seen
    assert all(torch.equal(value, before[name]) for name, value in averaged.items())
    assert not torch.equal(
        while_computing["model.embedding.weight"], averaged["model.embedding.weight"]
    )


def test_copies_that_cannot_be_made_stop_the_run_and_hold_no_update(run, monkeypatch):
    monkeypatch.setattr(checkpoints, "_copies", Mock(side_effect=RuntimeError("not enough memory")))
    with pytest.raises(RuntimeError, match="not enough memory"):
        run("run")


def test_a_full_disk_stops_the_run_with_the_checkpoint_before_whole(run, tmp_path, monkeypatch):
    written = []

    def full(*given):
        written.append(given)
        if len(written) == 4:
            raise SafetensorError("No space left on device (os error 28)")
        save_file(*given)

    monkeypatch.setattr(parallel, "save_file", full)
    with pytest.raises(CheckpointError, match="No space left"):
        run("run", AFTER_SIX)
    root = tmp_path / "run" / "checkpoints"
    assert [path.name for path in root.iterdir()] == ["step-00000003"]
    verify_checkpoint(checkpoint_path(root, 3))
    monkeypatch.undo()
    run("run", AFTER_SIX, resume=True)
    run("whole", AFTER_SIX)
    assert results(tmp_path / "run") == results(tmp_path / "whole")


@given(st.data(), st.integers(2, 60), st.floats(0.1, 3.0))
def test_minutes_end_in_time_whatever_the_pace_and_a_resumed_plan_is_the_same(data, every, slow):
    """A run of a minute that was planned at 0.1 s a step; paces of so many steps are drawn."""
    paces, made = data.draw(st.lists(st.floats(0.03, 2.0), min_size=1, max_size=5)), []

    def lengths(plan, step, seconds):
        steps, found = plan.steps_at(step, 600), {}
        plan.begin(step, seconds, steps)
        while step < steps:
            step, seconds = step + 1, seconds + paces[step // 40 % len(paces)]
            for is_evaluated in (False, True):
                if (step % every == 0) == is_evaluated and step < steps:
                    seconds += slow * is_evaluated
                    steps = plan.steps(step, steps, seconds, slow, is_evaluated=is_evaluated)
            found[step] = steps, seconds
        return found

    live = lengths(MinutesPlan(1.0, every, (), made.append), 0, 0.0)
    # An evaluation at the end, and the longest step, come on top.
    assert live[max(live)][1] + slow <= 1.2 * 60 + max(paces)
    known, begun = list(made), data.draw(st.sampled_from(sorted(live)))
    seconds, paces = live[begun][1], [10.0]
    again = lengths(MinutesPlan(1.0, every, known, Mock()), begun, seconds)
    for step in range(begun + 1, known[-1].at_step + 1 if known else 0):
        assert again[step][0] == live[step][0]
