"""What a GPU computes, against formulas and the CPU; nothing that waits, ahead, compiled."""

import json
import math
import subprocess
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import AttentionForm
from sublayer.data.batches import sequence_starts
from sublayer.decode.sample import GREEDY, Sampling, generate
from sublayer.model.context import Keys, Layout, Queries
from sublayer.model.kernels import attention
from sublayer.model.kernels.attention import attend
from sublayer.model.kernels.elementwise import add_branch, constants, dropout
from sublayer.model.kernels.products import linear_cross_entropy
from sublayer.model.transformer import build
from tests.breadth import TRIES_ALL, rows
from tests.gpu.compiled_together import CASES
from tests.gpu.kinds import KINDS, NothingWaits, chosen, gradients, open_session
from tests.made import WORDS
from tests.torchrun import in_processes
from tests.training.runs import OPTIMIZERS, weights

pytestmark = pytest.mark.usefixtures("own_cache")
TOLERANCE, DOCUMENTS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}, torch.arange(17) // 5
MASKS = {"all": Keys(False, None), "causal": Keys(True, None)}
MASKS |= {"documents": Keys(True, (DOCUMENTS[:, None] == DOCUMENTS).tril()[None, None])}
MASKS |= {"padding": Keys(False, torch.arange(17)[None, None, None] < 13)}
ATTENTIONS = [("documents", True, torch.float32, None), ("causal", False, torch.bfloat16, None)]
ATTENTIONS += [("all", True, torch.bfloat16, None), ("padding", False, torch.float32, None)]
ATTENTIONS += [("causal", True, torch.float32, 0.5), ("padding", False, torch.bfloat16, 0.5)]
MODELS = {
    "learned": {}, "rotary": {"positions": "rotary", "norm": "rms", "ffn": "swiglu"},
    "relative": {"positions": "relative"}, "alibi": {"positions": "alibi"},
}  # fmt: skip
READ = torch.tensor([3 * [0] + 4 * [1] + 2 * [2] + 2 * [-1], 11 * [0], [0] + 10 * [-1]])
WRITTEN = torch.tensor([[0, 0, 1, 2, 2, 2, -1], [0, 0, 0, 0, 0, -1, -1], [0, 0, 0, 0, 0, 0, 0]])
ONE_A_ROW = torch.tensor([8 * [0] + 3 * [-1], 11 * [0], [0] + 10 * [-1]])
READERS = torch.tensor([4 * [0] + 3 * [-1], 7 * [0], 6 * [0] + [-1]])
RAGGED = ("masked", "translation", "questions", "pair")
"""Kinds with padding or several sequences in a row, and no bias of scores."""
WHOLE = {"train.batch_sequences": 24, "train.micro_batch_sequences": 24}
LOSS, GRADIENT, MOVED = 1e-5, 1e-3, 0.05
"""Greatest relative difference: of a loss; of a parameter's gradient, and of all changes, in L2."""
GPU = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """The GPU; or the CPU by the operators that a GPU takes, instead of by kernels of its own."""
    if request.param == "cpu":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    else:
        monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return torch.device(request.param)


@pytest.fixture(scope="session")
def texts(workshop):
    return workshop.path


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def softmax_attention(q, k, v, keys, bias, scale, cap, sinks):
    scores = scale * q @ k.mT if cap is None else cap * (scale * q @ k.mT / cap).tanh()
    scores = scores + (0.0 if bias is None else bias)
    causal = torch.ones(scores.shape[2:], dtype=torch.bool).tril() if keys.is_causal else None
    mask = causal if keys.mask is None else keys.mask
    powers = (scores if mask is None else scores.masked_fill(~mask, -math.inf)).exp()
    beside = 0.0 if sinks is None else sinks[:, None, None].exp()
    return powers / (powers.sum(-1, keepdim=True) + beside) @ v


@pytest.mark.parametrize(("name", "has_bias", "dtype", "cap"), rows(ATTENTIONS, 3))
def test_attention_and_its_gradients_are_those_of_the_formula(name, has_bias, dtype, cap, device):
    keys = MASKS[name]
    q, k, v, weight = (draw(3, 2, 17, 8, seed=seed) for seed in range(4))
    bias = draw(1, 2, 17, 17, seed=4) if has_bias else None
    given = [q, k, v] if cap is None else [q, k, v, torch.tensor([-1.0, 3.0])]
    expected_inputs = [x.double().requires_grad_() for x in given]
    wide_bias = None if bias is None else bias.double()
    sinks = None if cap is None else expected_inputs[3]
    expected = softmax_attention(*expected_inputs[:3], keys, wide_bias, 0.3, cap, sinks)
    expected.backward(weight.double())
    inputs = [x.to(device, dtype).requires_grad_() for x in given]
    there = Keys(keys.is_causal, None if keys.mask is None else keys.mask.to(device))
    bias, sinks = None if bias is None else bias.to(device, dtype), (*inputs, None)[3]
    found = attend(*inputs[:3], there, bias, scale=0.3, cap=cap, sinks=sinks)
    found.backward(weight.to(device, dtype))
    pairs = [(found, expected)]
    pairs += [(x.grad, y.grad) for x, y in zip(inputs, expected_inputs, strict=True)]
    for own, reference in pairs:
        difference = (own.detach().double().cpu() - reference.detach()).abs().max()
        assert difference < TOLERANCE[dtype] * (1 + reference.abs().max())


def test_the_loss_of_a_vocabulary_and_its_gradients_are_those_of_the_formula(device):
    hidden, matrix, bias = draw(37, 16), draw(101, 16, seed=1), draw(101, seed=2)
    targets = torch.arange(37) * 2
    targets[3] = targets[20] = -1
    plain = [x.clone().requires_grad_() for x in (hidden, matrix, bias)]
    expected = F.cross_entropy(F.linear(*plain), targets, ignore_index=-1, reduction="sum")
    expected.backward()
    own = [x.to(device, copy=True).requires_grad_() for x in (hidden, matrix, bias)]
    found = linear_cross_entropy(*own, targets.to(device))
    found.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    for mine, reference in zip(own, plain, strict=True):
        torch.testing.assert_close(mine.grad.cpu(), reference.grad, rtol=1e-4, atol=1e-5)


def test_dropout_keeps_its_rate_and_the_mean_and_constants_are_filled_in(device):
    torch.manual_seed(0)
    ones = torch.ones(400, 500, device=device)
    dropped = dropout(ones, 0.2, True)
    assert float((dropped == 0).float().mean()) == pytest.approx(0.2, abs=0.005)
    assert float(dropped.max()) == pytest.approx(1.25, rel=1e-4)
    added = add_branch(ones, ones, step=0.5, p=0.2, training=True)
    assert float(added.min()) == 1.0 and float(added.mean()) == pytest.approx(1.5, abs=0.01)
    found = constants((1, 2, 30), torch.int64, ones)
    assert found.device.type == device.type and found.tolist() == [1, 2, 30]


def make(name, device):
    config = ModelConfig(d_model=32, n_layers=2, n_heads=2, init_std=0.3, **MODELS[name])
    return build(resolve_model(config, vocab_size=67, context=64), seed=0).to(device).eval()


def continued(model, device, n_rows=3):
    prompt = torch.randint(67, (n_rows, 5), generator=torch.Generator().manual_seed(1))
    return list(generate(model, prompt.to(device), 30, GREEDY))


@pytest.mark.parametrize("name", chosen(MODELS, "relative"))
def test_greedy_tokens_are_those_of_the_cpu(name, device, monkeypatch):
    found = torch.stack(continued(make(name, device), device)).cpu()
    monkeypatch.undo()
    assert torch.equal(found, torch.stack(continued(make(name, "cpu"), "cpu")))


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", rows([Sampling(temperature=0.8), GREEDY], 1), ids=str)
@pytest.mark.parametrize("name", chosen(MODELS, "rotary"))
def test_a_cuda_graph_writes_the_tokens_of_steps_that_are_called(name, sampling, monkeypatch):
    model, prompt = make(name, "cuda"), torch.arange(15, device="cuda").view(3, 5)
    found = []
    for is_replayed in (False, True):
        monkeypatch.setattr("sublayer.decode.sample.pays", lambda *_, it=is_replayed: it)
        tokens = generate(model, prompt, 100, sampling, seed=2, window="rolling")
        found.append(torch.stack(list(tokens)))
    assert torch.equal(*found)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", chosen(MODELS, "relative"))
def test_the_host_never_waits_for_the_gpu_while_it_generates(name):
    model = make(name, "cuda")
    continued(model, "cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        list(generate(model, torch.ones(3, 5, dtype=torch.int64, device="cuda"), 30, GREEDY))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def by_the_formula(q, k, v, ragged, *, longest, is_causal, scale, reach):
    """What ``varlen_attn`` computes, a sequence at a time; it has no CPU kernel."""
    mixed, bounds = [], [each.tolist() for each in (ragged.query_starts, ragged.key_starts)]
    assert bounds[0][-1] == len(q) and bounds[1][-1] == len(k)
    for n in range(len(bounds[0]) - 1):
        mine, theirs = (slice(each[n], each[n + 1]) for each in bounds)
        assert mine.stop - mine.start <= longest[0] and theirs.stop - theirs.start <= longest[1]
        scores = scale * torch.einsum("thk,shk->hts", q[mine], k[theirs])
        is_seen = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device)
        is_seen = is_seen.tril() if is_causal else is_seen
        is_seen = is_seen if reach is None else is_seen.triu(-reach).tril(reach)
        scores = scores.masked_fill(~is_seen, -torch.inf)
        mixed.append(torch.einsum("hts,shk->thk", scores.softmax(-1), v[theirs]))
    return torch.cat(mixed)


@pytest.fixture
def ragged_on_a_cpu(device, monkeypatch):
    """On a CPU, the choice that a GPU has, and the formula in the place of its kernel."""
    used = []
    if device.type == "cpu":
        takes = lambda q, k, *, has_bias, p_dropout: not has_bias and p_dropout == 0.0  # noqa: E731
        monkeypatch.setattr(attention, "is_supported", takes)
        monkeypatch.setattr(attention, "attend_sequences", by_the_formula)
    kernel = attention.attend_ragged

    def noted(*args, **kwargs):
        used.append(args[0].shape)
        return kernel(*args, **kwargs)

    monkeypatch.setattr(attention, "attend_ragged", noted)
    return used


def layouts(name):
    name, _, window = name.partition(", in a window of ")
    if window:
        layout, counts = layouts(name)
        return layout.within(AttentionForm(int(window))), counts
    if name in ("causal", "padded"):
        read = READ if name == "causal" else ONE_A_ROW
        lay_out = Layout.causal if name == "causal" else Layout.bidirectional
        return lay_out(read, read >= 0, read, starts=sequence_starts(read)[0]), read >= 0
    read, written = (READ, WRITTEN) if name == "cross, packed" else (ONE_A_ROW, READERS)
    starts = sequence_starts(read, written)
    ids = (read, written) if name == "cross, packed" else (None, None)
    return Layout.reading(read, read >= 0, *ids, *starts), written >= 0


def moved(keys, device, *, is_ragged):
    names = ("query_starts", "key_starts") if is_ragged else ()
    starts = {name: getattr(keys.ragged, name).to(device) for name in names}
    ragged = replace(keys.ragged, **starts) if is_ragged else None
    return replace(keys, mask=keys.mask.to(device), ragged=ragged)


MASKED = ["causal", "padded", "causal, in a window of 3", "cross", "cross, packed"]
MASKED += ["padded, in a window of 4"]


@pytest.mark.parametrize("name", rows(MASKED, 3))
def test_attention_without_padding_is_sdpas_under_a_mask(name, device, ragged_on_a_cpu):
    layout, counts = layouts(name)
    dtype = torch.float64 if device.type == "cpu" else torch.bfloat16
    is_real = counts[:, None, :, None].to(device)
    lengths = (counts.shape[1], layout.n_keys, layout.n_keys, counts.shape[1])
    drawn = (draw(len(counts), 2, n, 8, seed=seed) for seed, n in enumerate(lengths))
    q, k, v, weight = (each.to(device, dtype) for each in drawn)
    found = []
    for is_ragged in (False, True):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        mixed = attend(*inputs, moved(layout.keys, device, is_ragged=is_ragged), scale=0.3)
        (mixed * weight * is_real).sum().backward()
        found.append([torch.where(is_real, mixed.detach(), 0), *(x.grad for x in inputs)])
    assert len(ragged_on_a_cpu) == 1
    tolerance = {"rtol": 1e-9, "atol": 1e-12} if device.type == "cpu" else {"rtol": 0, "atol": 0.05}
    for own, masked in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(own, masked, **tolerance)


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_window_without_padding_takes_the_kernel_without_padding(
    is_causal, device, ragged_on_a_cpu
):
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    q, k, v = (draw(3, 2, 17, 8, seed=seed).to(device, dtype) for seed in range(3))
    keys = Keys(is_causal, None, reach=4)
    mask = keys.band(17, 17, device)[None, None].expand(3, 1, -1, -1)
    found, expected = (attend(q, k, v, each, scale=0.3) for each in (keys, Keys(False, mask)))
    assert len(ragged_on_a_cpu) == 1
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("kind", chosen(RAGGED, "translation"))
def test_gradients_under_masks(kind, texts, device, ragged_on_a_cpu, monkeypatch, tmp_path):
    settings = {**KINDS[kind], **WHOLE, "model.dropout": 0, "model.dropout_attention": 0}
    settings |= {"data.context": 128} if kind == "masked" else {}
    if kind == "translation":
        lines = [" ".join(WORDS[: 1 + number % 17]) for number in range(200)]
        (tmp_path / "pairs.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines))
        settings["data.path"] = str(tmp_path / "pairs.tsv")
    if device.type == "cuda":
        settings["train.precision"] = "bfloat16"
    found = []
    for is_ragged in (False, True):
        session = open_session(texts, settings, device)
        prepare = session.train_step.prepare

        def prepared(step, prepare=prepare, is_ragged=is_ragged):
            parts, n_tokens = prepare(step)
            return [with_starts(*part, device, is_ragged=is_ragged) for part in parts], n_tokens

        monkeypatch.setattr(session.train_step, "prepare", prepared)
        found.append(gradients(session))
        assert bool(ragged_on_a_cpu) == is_ragged
    (loss, masked), (loss_ragged, own) = found
    limit = 1e-5 if device.type == "cpu" else 5e-2
    assert loss_ragged == pytest.approx(loss, rel=limit)
    largest = max(float(value.abs().max()) for value in masked.values())
    for name, value in masked.items():
        assert float((own[name] - value).abs().max()) < limit * largest, name


def with_starts(part, batch, device, *, is_ragged):
    if is_ragged:
        batch = part.batch.with_starts()
        return part, batch if device.type == "cpu" else batch.to(device)
    if device.type == "cpu":
        return part, batch
    if getattr(batch, "read", None) is None:
        return part, replace(batch, starts=None)
    written = None if batch.written is None else replace(batch.written, starts=None)
    return part, replace(batch, read=replace(batch.read, starts=None), written=written)


def test_queries_at_few_places_keep_the_mask():
    layout, _ = layouts("causal")
    keys = Queries(torch.tensor([[0, 3], [5, 1], [0, 0]])).keys(layout.keys, layout.n_keys)
    assert layout.keys.ragged is not None and keys.ragged is None and keys.mask is not None


def test_starts_of_sequences_by_hand():
    read, written = sequence_starts(READ, WRITTEN)
    assert read.tolist() == [0, 3, 7, 9, 11, 22, 22, 22, 22, 23, 23, 23, 33]
    assert written.tolist() == [0, 2, 3, 6, 7, 12, 12, 12, 14, 21, 21, 21, 21]
    (numbered,) = sequence_starts(torch.tensor([[71, 71, 4096], [4096, 4096, 4096]]))
    assert numbered.tolist() == [0, 2, 3, 3, 3, 6, 6, 6, 6]


def test_the_kernel_is_given_only_what_it_supports(device):
    q = torch.zeros(1, 2, 5, 16, device=device, dtype=torch.bfloat16)
    for has_bias, p in ((True, 0.0), (False, 0.1)):
        assert not attention.is_supported(q, q, has_bias=has_bias, p_dropout=p)
    has_gpu = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    assert attention.is_supported(q, q, has_bias=False, p_dropout=0.0) == has_gpu
    for other in (q.float(), q[..., :9]):
        assert not attention.is_supported(other, other, has_bias=False, p_dropout=0.0)


def without_dropout(settings):
    has_own = "data.tasks" in settings and settings.get("objective.format") != "text"
    return {**settings, "model.dropout": 0.0, **({"objective.dropout": 0.0} if has_own else {})}


def differs_by(found, expected):
    return float((found - expected).norm() / expected.norm().clamp_min(1e-6))


@pytest.mark.parametrize("kind", chosen(KINDS, "documents", "masked", "span", "questions, joint"))
def test_losses_and_gradients_are_those_of_the_cpus_kernels(kind, device, texts, monkeypatch):
    settings = without_dropout(KINDS[kind])
    loss, found = gradients(open_session(texts, settings, device))
    monkeypatch.undo()
    expected_loss, expected = gradients(open_session(texts, settings, "cpu"))
    assert (loss, found.keys()) == (pytest.approx(expected_loss, rel=LOSS), expected.keys())
    largest = max(float(each.norm()) for each in expected.values())
    for name, gradient in expected.items():
        # What is nearly 0 in the one sum is so in the other.
        if float(gradient.norm()) > 1e-5 * largest:
            assert differs_by(found[name], gradient) < GRADIENT, name


@pytest.mark.parametrize("name", chosen(OPTIMIZERS, "lamb", "factored"))
def test_every_optimizer_moves_weights_as_on_the_cpu(name, device, texts, monkeypatch):
    settings = without_dropout(OPTIMIZERS[name])
    moved, losses = [], []
    for place in (device, device, "cpu"):
        if place == "cpu":
            monkeypatch.undo()
        train_step = open_session(texts, settings, place).train_step
        before = weights(train_step)
        losses.append([float(train_step(step).loss) for step in range(3)])
        pairs = zip(weights(train_step).values(), before.values(), strict=True)
        moved.append(torch.cat([(after - value).flatten().cpu() for after, value in pairs]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    # A change of Adam's first steps has the gradient's sign alone, however small it is: a few of
    # those that are nearly 0 may differ in it.
    assert differs_by(moved[0], moved[2]) < MOVED and float(moved[2].norm()) > 0


@pytest.mark.parametrize("kind", chosen(KINDS, "translation"))
def test_steps_prepared_ahead_are_the_same(kind, texts, device, monkeypatch):
    settings, found = {**KINDS[kind], "model.dropout": 0.1, "train.micro_batch_sequences": 2}, []
    for is_ahead in (False, True):
        monkeypatch.setattr("sublayer.training.step.pays", lambda _, it=is_ahead: it)
        train_step = open_session(texts, settings, device).train_step
        results = [train_step(step) for step in range(4)]
        found.append([(float(each.loss), each.n_tokens) for each in results])
    limit = 1e-4 if device.type == "cuda" else 0.0
    assert found[1] == [(pytest.approx(loss, rel=limit), n) for loss, n in found[0]]


@pytest.mark.parametrize(
    "kind", chosen(KINDS, "auxiliary", "masked", "translation", "questions, joint")
)
def test_no_pass_of_an_objective_waits(kind, texts, monkeypatch):
    train_step = open_session(texts, KINDS[kind], "cpu").train_step
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    objective = train_step.objective.train()
    objective.begin(0, train_step.recipe.train.steps)
    batch = train_step.batches.batch(0)
    with NothingWaits():
        sum(objective(batch).values()).backward()


@pytest.mark.parametrize("name", chosen(OPTIMIZERS, "lamb", "factored"))
def test_no_update_waits(name, texts):
    train_step = open_session(texts, OPTIMIZERS[name], "cpu").train_step
    train_step(0)
    train_step._accumulate(1, train_step.prepare(1)[0])
    with NothingWaits():
        train_step.optimizer.step()


def test_operators_that_wait_are_noticed():
    with pytest.raises(AssertionError, match="lift_fresh"), NothingWaits():
        torch.tensor([1, 2])
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NothingWaits():
        torch.ones(1).item()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("name", chosen({**KINDS, **OPTIMIZERS}, "decoder"))
def test_the_host_never_waits_for_the_gpu_in_a_step(name, texts):
    train_step = open_session(texts, {**KINDS, **OPTIMIZERS}[name], "cuda").train_step
    for step in range(3):
        train_step(step)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for step in range(3, 6):
            train_step(step)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def compiled(n_processes, place, texts, *names):
    # In processes of their own: annotations that are checked cannot be compiled.
    words = (place, texts({}), *names)
    command = in_processes(n_processes, "tests.gpu.compiled_together", *words)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert found.keys() == set(names)
    return found.items()


@pytest.mark.parametrize("place", ["cpu", GPU])
def test_a_compiled_objective_computes_the_same_in_one_graph(place, texts):
    kinds = ["auxiliary", *("decoder", "documents", "alibi", "span")[: 4 * TRIES_ALL]]
    for kind, found in compiled(1, place, texts, *kinds):
        assert found["worst"] < 1e-4, (kind, found)
        assert (found["breaks"], found["graphs"]) == (0, 1), (kind, found)


@pytest.mark.parametrize("place", ["cpu", GPU] if TRIES_ALL else [GPU])
def test_two_processes_compute_compiled_the_same(place, texts):
    if place == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("one GPU alone")
    for name, found in compiled(2, place, texts, *CASES):
        assert found["worst"] < 1e-4, (name, found)
        assert found["attentions"] > 0, (name, found)
