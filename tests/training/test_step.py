import math
import weakref

import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.optimizers.kinds import OPTIMIZERS
from sublayer.model.roles import parameter_roles
from sublayer.objective.translation.batches import translation_batches
from sublayer.runs.resolution import resolve
from sublayer.runs.session import Place, assemble, prepare_data
from sublayer.system.machine import choose_device
from sublayer.training.optimizers.build import optimizer_tensors
from sublayer.training.processes.world import World
from tests.in_time import some_in_time
from tests.made import MASKED, TINY, TRANSLATION

ALONE = Place(torch.device("cpu"), World(rank=0, size=1))


def open_session(loaded):
    data = prepare_data(loaded.recipe)
    return assemble(resolve(loaded.recipe, data, ALONE), data, ALONE)


@pytest.fixture
def session(tiny):
    return lambda settings=None: open_session(tiny(settings))


def weights(session):
    return {name: value.detach().clone() for name, value in session.train_step.parameters.items()}


def gradients(session, step=0):
    train_step = session.train_step
    loss = train_step._accumulate(step, train_step.prepare(step))
    return loss, {name: value.grad.clone() for name, value in train_step.parameters.items()}


def micro_batches(train_step, step):
    train = train_step.recipe.train
    parts = train_step.parallel.micro_batches(
        train_step.batches, step, train.micro_batch_sequences, train_step.recipe.data.context
    )
    return [part.batch for part in parts]


@pytest.mark.parametrize("micro", [1, 2, 4, 5])
@pytest.mark.parametrize(
    ("boundaries", "reduction"), [("ignore", "mean"), ("respect", "mean"), ("respect", "sum")]
)
def test_accumulated_gradients_equal_the_large_batchs(
    session, tmp_path, micro, boundaries, reduction
):
    # Many short documents make the counts of the micro-batches ragged where boundaries are
    # respected.
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(
            f"document {number} says {'word ' * (number % 7 + 3)}"
        )
    settings = {
        "data.path": str(tmp_path),
        "data.boundaries": boundaries,
        "objective.position_reduction": reduction,
        "model.dropout": 0.0,
        "data.context": 16,
    }
    torch.set_default_dtype(torch.float64)
    try:
        whole_loss, whole = gradients(session({**settings, "train.micro_batch_sequences": 6}))
        loss, parts = gradients(session({**settings, "train.micro_batch_sequences": micro}))
    finally:
        torch.set_default_dtype(torch.float32)
    assert loss.item() == pytest.approx(whole_loss.item(), rel=1e-6)
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-9, atol=1e-12)


def test_summed_positions_change_the_norm_and_neither_the_logged_loss_nor_a_clipped_step(session):
    settings = {"model.dropout": 0.0, "optimizer.kind": "sgd", "optimizer.clip_norm": 0.01}
    results, moved = [], []
    for reduction in ("mean", "sum"):
        each = session({**settings, "objective.position_reduction": reduction})
        results.append(each.train_step(3))
        moved.append(weights(each))
    of_mean, of_sum = results
    assert of_sum.loss.item() == pytest.approx(of_mean.loss.item(), rel=1e-6)
    context = each.recipe.data.context
    expected = context * of_mean.gradient_norm.item()
    assert of_sum.gradient_norm.item() == pytest.approx(expected, rel=1e-4)
    for name, value in moved[0].items():
        torch.testing.assert_close(moved[1][name], value, rtol=1e-4, atol=1e-7)


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


@pytest.mark.parametrize("recompute", ["none", "blocks"])
def test_accumulated_translations_equal_the_large_batch(session, recompute):
    settings = {**TRANSLATION, "model.dropout": 0.0, "train.recompute": recompute}
    torch.set_default_dtype(torch.float64)
    try:
        (whole_loss, whole), (loss, parts) = (
            gradients(session({**settings, "train.micro_batch_sequences": micro}), step=3)
            for micro in (6, 1)
        )
    finally:
        torch.set_default_dtype(torch.float32)
    assert loss.item() == pytest.approx(whole_loss.item(), rel=1e-6)
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("step", [0, 7, 20])
def test_accumulated_auxiliary_losses_equal_the_large_batchs(session, step):
    settings = {
        "model.dropout": 0.0,
        "model.n_layers": 3,
        "objective.auxiliary": "layers",
        "objective.targets": 3,
    }
    torch.set_default_dtype(torch.float64)
    try:
        parts = []
        for micro in (6, 4):
            each = session({**settings, "train.micro_batch_sequences": micro}).train_step
            each.objective.begin(step, 24)
            each._accumulate(step, each.prepare(step))
            parts.append({name: value.grad for name, value in each.parameters.items()})
    finally:
        torch.set_default_dtype(torch.float32)
    for name, gradient in parts[0].items():
        torch.testing.assert_close(parts[1][name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("micro", [1, 2])
def test_accumulated_masked_losses_equal_the_large_batchs(session, micro):
    # Rows of single examples and of several, with as many predictions as they have tokens for.
    settings = {
        **MASKED,
        "model.dropout": 0.0,
        "train.batch_sequences": 11,
        "objective.p_short": 0.6,
    }
    torch.set_default_dtype(torch.float64)
    try:
        whole_loss, whole = gradients(session({**settings, "train.micro_batch_sequences": 11}))
        parted = session({**settings, "train.micro_batch_sequences": micro})
        loss, parts = gradients(parted)
    finally:
        torch.set_default_dtype(torch.float32)
    counts = [
        tuple(parted.train_step.objective.counts(each).values())
        for each in micro_batches(parted.train_step, 0)
    ]
    assert len(set(counts)) > 1
    assert loss.item() == pytest.approx(whole_loss.item(), rel=1e-6)
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [{}, MASKED, TRANSLATION], ids=["causal", "masked", "pairs"])
def test_z_loss_moves_the_weights_and_is_in_no_number(session, kind):
    settings = {**kind, "model.dropout": 0.0}
    plain, other = session(settings), session({**settings, "objective.z_loss": 0.1})
    assert other.evaluate() == plain.evaluate()
    loss, without = gradients(plain)
    reported, found = gradients(other)
    assert reported.item() == loss.item()
    assert any(not torch.equal(found[name], value) for name, value in without.items())


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizer_leaves_a_head_that_is_not_trained_as_it_was(session, kind):
    settings = {
        **MASKED,
        "objective.sentence": "none",
        "optimizer.kind": kind,
    }
    if has_decay(kind):
        settings["optimizer.weight_decay"] = 0.5
    built = session(settings)
    before = weights(built)
    for step in range(2):
        built.train_step(step)
    moved = {name for name, value in weights(built).items() if not torch.equal(value, before[name])}
    unmoved = {name.split(".")[1] for name in before.keys() - moved}
    assert unmoved == {"pooler", "sentence_head"}


def test_the_tokens_of_a_masked_step_are_counted_without_padding(session):
    built = session({**MASKED, "train.micro_batch_sequences": 6, "objective.p_short": 0.6})
    for step in (0, 5):
        (batch,) = micro_batches(built.train_step, step)
        assert (
            built.train_step.n_tokens(step) == sum(batch.read.lengths) < batch.read.tokens.numel()
        )


@pytest.mark.slow
def test_documents_without_sentences_of_one_and_of_endless_ones_are_trained_on(
    session, stories, tmp_path
):
    endless = " ".join(stories[0])
    texts = [
        "",
        "  \n \n",
        "one.\n",
        f"{endless * 3}\n",
        *("\n".join(story) for story in stories[:20]),
    ]
    for number, text in enumerate(texts * 2):
        (tmp_path / f"{number:02}.txt").write_text(text)
    built = session(
        {
            **MASKED,
            "objective.sentence": "nsp",
            "data.path": str(tmp_path),
            "train.batch_sequences": 50,
        }
    )
    # Files without a byte are passed over, and those of spaces counted.
    assert sum(sizes.get("empty_documents", 0) for sizes in built.data.sizes().values()) == 2
    for step in range(4):
        assert math.isfinite(built.train_step(step).loss)
    assert math.isfinite(built.evaluate()["loss"])


@pytest.mark.slow
def test_minutes_become_as_many_steps_each_time(tiny):
    loaded = tiny({**MASKED, "train.minutes": 0.1, "train.evaluate_tokens": 64})
    data = prepare_data(loaded.recipe)
    first, second = (resolve(loaded.recipe, data, ALONE).train for _ in range(2))
    assert first == second
    assert first.steps is not None and first.steps > 1
    assert first.batch_sequences == 6


def test_the_loss_of_an_untrained_model_is_that_of_guessing(session):
    loss, _ = gradients(session({"model.init_std": 1e-4}))
    assert loss.item() == pytest.approx(math.log(256), abs=1e-2)


def test_a_step_depends_on_seed_and_step_alone(session):
    first, second, other = session(), session(), session({"train.seed": 1})
    for each in (first, second, other):
        torch.manual_seed(torch.seed())  # whatever the state of the global generator
        each.train_step(3)
    assert all(torch.equal(value, weights(second)[name]) for name, value in weights(first).items())
    assert not torch.equal(
        weights(first)["model.embedding.weight"], weights(other)["model.embedding.weight"]
    )


def test_training_leaves_the_global_generator_alone(session):
    built = session()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    built.train_step(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_differs_between_steps_and_micro_batches(session):
    built = session({"optimizer.lr": 1e-12, "model.dropout": 0.5, "train.micro_batch_sequences": 6})
    batch = micro_batches(built.train_step, 0)[0]
    losses = []
    for index in (0, 1, 0):
        from sublayer.training.dropout_seed import seed_dropout

        with torch.random.fork_rng():
            seed_dropout(0, 0, index, 0)
            losses.append(built.train_step.objective(batch)["lm"].item())
    assert losses[0] == losses[2] != losses[1]


def has_decay(kind):
    return "weight_decay" in OPTIMIZERS[kind].model_fields


def has_decay_of_vectors(kind):
    return "decay_vectors" in OPTIMIZERS[kind].model_fields


@pytest.mark.parametrize(
    ("kind", "vectors"),
    [
        *((kind, False) for kind in OPTIMIZERS if has_decay(kind)),
        *((kind, True) for kind in OPTIMIZERS if has_decay_of_vectors(kind)),
    ],
)
def test_weight_decay_spares_vectors_unless_asked(session, kind, vectors):
    built = session(
        {"optimizer.kind": kind, "optimizer.weight_decay": 0.5}
        | ({"optimizer.decay_vectors": True} if vectors else {})
    )
    roles = parameter_roles(built.train_step.objective)
    decayed = {
        id(parameter)
        for group in built.train_step.optimizer.param_groups
        if group["weight_decay"] > 0
        for parameter in group["params"]
    }
    for name, parameter in built.train_step.parameters.items():
        assert (id(parameter) in decayed) == (vectors or roles[name] != "vector"), name


def test_the_gradient_is_clipped_to_the_global_norm(session):
    plain = {"optimizer.kind": "sgd", "optimizer.momentum": 0.0, "optimizer.schedule": "constant"}
    built = session(
        {**plain, "optimizer.clip_norm": 0.01, "optimizer.lr": 1.0, "optimizer.warmup_steps": 0}
    )
    before = weights(built)
    result = built.train_step(0)
    assert result.gradient_norm > 0.01
    moved = torch.stack(
        [(value - before[name]).norm() for name, value in weights(built).items()]
    ).norm()
    assert moved.item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    "settings",
    some_in_time(
        [
            {"kind": "sgd", "lr": 0.3},
            *({"kind": kind} for kind in OPTIMIZERS if kind != "sgd"),
            {"kind": "adamw", "bias_correction": False},
            {"kind": "adamw", "form": "gpt1", "warmup": "gpt1"},
            {"kind": "lamb", "form": "published"},
            {"kind": "adafactor", "lr": 0.1, "min_factored": 8},
            {"kind": "adamw", "lr": 0.1, "parameter_scale": True},
        ],
        3,
    ),
    ids=str,
)
def test_every_optimizer_learns(session, settings):
    settings = {"lr": 1e-2, **settings}
    built = session(
        {**{f"optimizer.{name}": value for name, value in settings.items()}, "model.dropout": 0.0}
    )
    losses = [built.train_step(step).loss.item() for step in range(24)]
    assert losses[-1] < losses[0] - 0.5


T5_SMALL = {
    "model.n_layers": 1,
    "model.d_model": 32,
    "model.ffn": "geglu",
    "model.norm": "rms",
    "model.bias": False,
    "optimizer.schedule": "inverse-sqrt",
    "optimizer.warmup": "constant",
    "optimizer.warmup_steps": 50,
    "optimizer.cooldown_share": 0.1,
    "train.steps": 500,
    "train.batch_sequences": 2,
    "train.precision": "bfloat16",
}
"""T5's network and schedule, small: the peak of 50 updates, and the line over the last 50."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "adafactor", "min_factored": 16},
        {"kind": "adamw", "lr": 0.02, "parameter_scale": True},
    ],
    ids=str,
)
def test_500_updates_in_bfloat16_are_finite_and_learn(session, settings):
    of_optimizer = {f"optimizer.{name}": value for name, value in settings.items()}
    built = session({**T5_SMALL, **of_optimizer})
    losses = [built.train_step(step).loss.item() for step in range(500)]
    assert all(math.isfinite(loss) for loss in losses)
    assert sum(losses[-20:]) / 20 < sum(losses[:20]) / 20 - 1.0
    kept = optimizer_tensors(built.train_step.optimizer, built.train_step.parameters)
    for each in (*built.train_step.parameters.values(), *kept.values()):
        assert each.dtype == torch.float32
        assert torch.isfinite(each).all()


def test_the_device_is_the_cpu_where_it_is_asked_for():
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "model",
    [
        {"dropout": 0.1, "dropout_attention": 0.1, "dropout_ffn": 0.1, "dropout_embedding": 0.1},
        {"share": "all", "ffn": "swiglu", "norm": "rms", "positions": "rotary", "dropout": 0.1},
        {"share": "all", "ffn": "swiglu", "swish_beta": "learned"},
        {"block": "macaron", "positions": "learned-per-layer", "norm_order": "post"},
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
    blocks = [
        each
        for name, each in train_step.objective.named_modules()
        if type(each).__name__ == "Sublayer"
    ]
    calls = []
    for block in blocks:
        block.register_forward_pre_hook(lambda *_: calls.append(1))
    train_step(0)
    n_micro = len(micro_batches(train_step, 0))
    assert len(calls) == 2 * len(blocks) * n_micro
    calls.clear()
    with torch.no_grad():
        train_step.objective(train_step.batches.batch(0))
    assert len(calls) == len(blocks)


def test_batches_of_pairs_hold_no_more_tokens_than_are_asked_for(pairs_path):
    given = {name: value for name, value in TINY.items() if name != "train.batch_sequences"}
    given |= {
        **TRANSLATION,
        "data.path": str(pairs_path),
        "data.context": 32,
        "train.batch_tokens": 50,
    }
    recipe = load_recipe("gpt", given).recipe
    batches = translation_batches(recipe, prepare_data(recipe).train)
    sizes = [
        max(batch.read.tokens.numel(), batch.written.tokens.numel())
        for batch in map(batches.batch, range(60))
    ]
    assert 40 < max(sizes) <= 50
