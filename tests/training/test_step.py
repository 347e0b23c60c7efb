"""One optimizer step: exact denominators, accumulation, dropout, decay, clipping, recomputation."""

import weakref

import pytest
import torch

from sublayer.model.roles import parameter_roles
from sublayer.training.dropout_seed import seed_dropout
from tests.made import MASKED, PAIR, QUESTIONS, SPAN, TEXT, TRANSLATION, TRAVERSAL
from tests.training.runs import open_session, weights


@pytest.fixture
def session(tiny):
    return lambda settings=None: open_session(tiny(settings))


def gradients(session, step=0):
    train_step = session.train_step
    loss = train_step._accumulate(step, train_step.prepare(step))
    return loss, {
        name: None if value.grad is None else value.grad.clone()
        for name, value in train_step.parameters.items()
    }


def micro_batches(train_step, step):
    train = train_step.recipe.train
    parts = train_step.parallel.micro_batches(
        train_step.batches, step, train.micro_batch_sequences, train_step.recipe.data.context
    )
    return [part.batch for part in parts]


DOCUMENTS = {"data.boundaries": "respect", "data.context": 16}
AUXILIARY = {"model.n_layers": 3, "objective.auxiliary": "layers", "objective.targets": 3}
ACCUMULATED = {
    "windows": ({}, 4, 0),
    "documents": ({**DOCUMENTS, "objective.position_reduction": "sum"}, 5, 0),
    "some auxiliary losses": (AUXILIARY, 4, 20),
    # Rows of single examples and of several, with as many predictions as they have tokens for.
    "masked": ({**MASKED, "train.batch_sequences": 11, "objective.p_short": 0.6}, 2, 0),
    "translation": ({**TRANSLATION, "train.recompute": "blocks"}, 1, 3),
    "span": (SPAN, 2, 0),
    "text": (TEXT, 1, 0),
    "pairs": ({**PAIR, "objective.dropout": 0.0}, 1, 0),
    "traversals": ({**TRAVERSAL, "objective.dropout": 0.0}, 1, 0),
    "questions": ({**QUESTIONS, "objective.dropout": 0.0, "data.tasks": "squad2"}, 1, 0),
}
"""Settings, sequences of a micro-batch, and the step."""


@pytest.mark.parametrize("kind", ACCUMULATED)
def test_accumulated_gradients_equal_the_large_batchs(session, tmp_path, double, kind):
    settings, micro, step = ACCUMULATED[kind]
    if kind == "documents":
        # Many short documents make the counts of the micro-batches ragged.
        for number in range(40):
            text = f"document {number} says {'word ' * (number % 7 + 3)}"
            (tmp_path / f"{number}.txt").write_text(text)
        settings = {**settings, "data.path": str(tmp_path)}
    found = []
    for size in (settings.get("train.batch_sequences", 6), micro):
        parted = session({**settings, "model.dropout": 0.0, "train.micro_batch_sequences": size})
        parted.train_step.objective.begin(step, 24)
        found.append(gradients(parted, step))
    (whole_loss, whole), (loss, parts) = found
    counts = [
        tuple(parted.train_step.objective.counts(each).values())
        for each in micro_batches(parted.train_step, step)
    ]
    assert len(counts) > 1
    assert len(set(counts)) > 1 or not kind.startswith(("documents", "masked", "translation"))
    assert loss.item() == pytest.approx(whole_loss.item(), rel=1e-6)
    for name, gradient in whole.items():
        if gradient is None:
            assert parts[name] is None
        else:
            torch.testing.assert_close(parts[name], gradient, rtol=1e-9, atol=1e-12)


def test_summed_positions_change_the_norm_and_neither_the_logged_loss_nor_a_clipped_step(session):
    settings = {"model.dropout": 0.0, "optimizer.kind": "sgd", "optimizer.clip_norm": 0.01}
    built = [session({**settings, "objective.position_reduction": how}) for how in ("mean", "sum")]
    of_mean, of_sum = (each.train_step(3) for each in built)
    assert of_sum.loss.item() == pytest.approx(of_mean.loss.item(), rel=1e-6)
    expected = built[0].recipe.data.context * of_mean.gradient_norm.item()
    assert of_sum.gradient_norm.item() == pytest.approx(expected, rel=1e-4)
    one, other = (weights(each.train_step) for each in built)
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)


def test_nothing_of_a_micro_batchs_graph_is_left_when_the_next_begins(session):
    step = session({"train.micro_batch_sequences": 2}).train_step
    forward, graphs = step.objective.forward, []

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
    decay = {"optimizer.weight_decay": 0.5}
    train_step = session({**MASKED, **decay, "objective.sentence": "none"}).train_step
    before = weights(train_step)
    train_step(0)
    train_step(1)
    unmoved = {name for name, value in weights(train_step).items() if value.equal(before[name])}
    assert {name.split(".")[1] for name in unmoved} == {"pooler", "sentence_head"}


def test_the_tokens_of_a_masked_step_are_counted_without_padding(session):
    settings = {"train.micro_batch_sequences": 6, "objective.p_short": 0.6}
    train_step = session({**MASKED, **settings}).train_step
    (batch,) = micro_batches(train_step, 5)
    assert train_step.n_tokens(5) == sum(batch.read.lengths) < batch.read.tokens.numel()


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
    batch = micro_batches(built.train_step, 0)[0]
    losses = []
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
        assert (id(parameter) in decayed) == (vectors or roles[name] != "vector"), name


def test_the_gradient_is_clipped_to_the_global_norm(session):
    plain = {"kind": "sgd", "momentum": 0.0, "schedule": "constant", "warmup_steps": 0, "lr": 1.0}
    settings = {f"optimizer.{name}": value for name, value in plain.items()}
    train_step = session({**settings, "optimizer.clip_norm": 0.01}).train_step
    before = weights(train_step)
    assert train_step(0).gradient_norm > 0.01
    moved = [(value - before[name]).norm() for name, value in weights(train_step).items()]
    assert torch.stack(moved).norm().item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        ({f"dropout{of}": 0.1 for of in ("", "_attention", "_ffn", "_embedding")}, "float32"),
        ({"share": "all", "ffn": "swiglu", "positions": "rotary", "dropout": 0.1}, "bfloat16"),
    ],
    ids=str,
)
def test_blocks_computed_again_give_the_same_gradients(session, model, precision):
    settings = {f"model.{name}": value for name, value in model.items()}
    settings |= {"model.n_layers": 3, "objective.auxiliary": "layers", "train.precision": precision}
    settings |= {"train.micro_batch_sequences": 4}
    loss, kept = gradients(session(settings))
    again_loss, again = gradients(session({**settings, "train.recompute": "blocks"}))
    assert torch.equal(loss, again_loss)
    for name, gradient in kept.items():
        assert torch.equal(again[name], gradient), name


def test_blocks_are_computed_again_in_training_alone(session):
    train_step = session({"train.recompute": "blocks", "model.n_layers": 3}).train_step
    modules = train_step.objective.modules()
    blocks = [each for each in modules if type(each).__name__ == "Sublayer"]
    calls = []
    for block in blocks:
        block.register_forward_pre_hook(lambda *_: calls.append(1))
    train_step(0)
    assert len(calls) == 2 * len(blocks) * len(micro_batches(train_step, 0))
    calls.clear()
    with torch.no_grad():
        train_step.objective(train_step.batches.batch(0))
    assert len(calls) == len(blocks)
