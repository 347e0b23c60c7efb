"""Attention without padding: what SDPA computes under a mask, forward and backward."""

from dataclasses import replace

import pytest
import torch

from sublayer.data.starts import sequence_starts
from sublayer.model.context.layout import Layout
from sublayer.model.context.queries import Queries
from sublayer.model.kernels import attention, attention_ragged
from sublayer.model.kernels.attention import attend
from tests.gpu.kinds import KINDS, gradients, open_session
from tests.made import WORDS

READ = torch.tensor(
    [[0, 0, 0, 1, 1, 1, 1, 2, 2, -1, -1], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0] + 10 * [-1]]
)
WRITTEN = torch.tensor([[0, 0, 1, 2, 2, 2, -1], [0, 0, 0, 0, 0, -1, -1], [0, 0, 0, 0, 0, 0, 0]])
ONE_A_ROW = torch.tensor([8 * [0] + 3 * [-1], 11 * [0], [0] + 10 * [-1]])
READERS = torch.tensor([4 * [0] + 3 * [-1], 7 * [0], 6 * [0] + [-1]])


def by_the_formula(q, k, v, ragged, *, longest, is_causal, scale):
    """What ``varlen_attn`` computes, a sequence at a time; it has no CPU kernel."""
    mixed = []
    bounds = [each.tolist() for each in (ragged.query_starts, ragged.key_starts)]
    assert bounds[0][-1] == len(q) and bounds[1][-1] == len(k)
    for n in range(len(bounds[0]) - 1):
        mine, theirs = (slice(each[n], each[n + 1]) for each in bounds)
        assert mine.stop - mine.start <= longest[0] and theirs.stop - theirs.start <= longest[1]
        scores = scale * torch.einsum("thk,shk->hts", q[mine], k[theirs])
        if is_causal:
            is_seen = torch.ones(scores.shape[1:], dtype=torch.bool, device=q.device).tril()
            scores = scores.masked_fill(~is_seen, -torch.inf)
        mixed.append(torch.einsum("hts,shk->thk", scores.softmax(-1), v[theirs]))
    return torch.cat(mixed)


@pytest.fixture
def ragged_on_a_cpu(device, monkeypatch):
    """On a CPU, the choice that a GPU has, and the formula in the place of its kernel."""
    used = []
    if device.type == "cpu":

        def is_supported(q, k, *, has_bias, p_dropout):
            return not has_bias and p_dropout == 0.0

        monkeypatch.setattr(attention, "is_supported", is_supported)
        monkeypatch.setattr(attention_ragged, "attend_sequences", by_the_formula)
    kernel = attention.attend_ragged

    def noted(*args, **kwargs):
        used.append(args[0].shape)
        return kernel(*args, **kwargs)

    monkeypatch.setattr(attention, "attend_ragged", noted)
    return used


def layouts(name):
    """The layout of a name with where sequences begin, and which queries count."""
    if name == "causal":
        (starts,) = sequence_starts(READ)
        return Layout.causal(READ, READ >= 0, READ, starts=starts), READ >= 0
    if name == "padded":
        (starts,) = sequence_starts(ONE_A_ROW)
        return Layout.bidirectional(ONE_A_ROW, ONE_A_ROW >= 0, starts=starts), ONE_A_ROW >= 0
    if name == "packed":
        (starts,) = sequence_starts(READ)
        return Layout.bidirectional(READ, READ >= 0, READ, starts), READ >= 0
    read, written = (READ, WRITTEN) if name == "cross, packed" else (ONE_A_ROW, READERS)
    starts = sequence_starts(read, written)
    ids = (read, written) if name == "cross, packed" else (None, None)
    return Layout.reading(read, read >= 0, *ids, *starts), written >= 0


def moved(keys, device, *, is_ragged):
    ragged = None
    if is_ragged:
        ragged = replace(
            keys.ragged,
            query_starts=keys.ragged.query_starts.to(device),
            key_starts=keys.ragged.key_starts.to(device),
        )
    return replace(keys, mask=keys.mask.to(device), ragged=ragged)


@pytest.mark.parametrize("name", ["causal", "padded", "packed", "cross", "cross, packed"])
def test_attention_without_padding_is_sdpas_under_a_mask(name, device, ragged_on_a_cpu):
    layout, counts = layouts(name)
    dtype = torch.float64 if device.type == "cpu" else torch.bfloat16
    n_rows, n_queries = counts.shape
    draw = torch.Generator().manual_seed(3)
    shapes = [(n_rows, 2, n, 8) for n in (n_queries, layout.n_keys, layout.n_keys, n_queries)]
    q, k, v, weight = (torch.randn(shape, generator=draw).to(device, dtype) for shape in shapes)
    # Nothing is read of what is computed at padding.
    weight = weight * counts[:, None, :, None].to(device)
    found = []
    for is_ragged in (False, True):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        mixed = attend(*inputs, moved(layout.keys, device, is_ragged=is_ragged), scale=0.3)
        (mixed * weight).sum().backward()
        is_real = counts[:, None, :, None].to(device)
        found.append([torch.where(is_real, mixed.detach(), 0), *(x.grad for x in inputs)])
    assert len(ragged_on_a_cpu) == 1
    tolerance = {"rtol": 1e-9, "atol": 1e-12} if device.type == "cpu" else {"rtol": 0, "atol": 0.05}
    for own, masked in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(own, masked, **tolerance)


RAGGED = {
    "documents": KINDS["documents"],
    "masked": {**KINDS["masked"], "data.context": 128},
    "translation": KINDS["translation"],
    "questions": KINDS["questions"],
    "pair": KINDS["pair"],
}
"""Kinds with padding or several sequences in a row, and no bias of scores."""
WHOLE = {"train.batch_sequences": 24, "train.micro_batch_sequences": 24}
"""So many rows that some are shorter."""


@pytest.mark.parametrize("kind", RAGGED)
def test_an_objectives_gradients_are_those_under_masks(
    kind, texts, device, ragged_on_a_cpu, monkeypatch, tmp_path
):
    settings = {**RAGGED[kind], **WHOLE, "model.dropout": 0, "model.dropout_attention": 0}
    if kind == "documents":
        for number in range(40):
            (tmp_path / f"{number}.txt").write_text(" ".join(WORDS[: 3 + number % 11]))
        settings["data.path"] = str(tmp_path)
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
            ready = prepare(step)
            parts = [with_starts(each, device, is_ragged=is_ragged) for each in ready.parts]
            return type(ready)(parts, ready.n_tokens)

        monkeypatch.setattr(session.train_step, "prepare", prepared)
        found.append(gradients(session))
        assert bool(ragged_on_a_cpu) == is_ragged
    (loss, masked), (loss_ragged, own) = found
    limit = 1e-5 if device.type == "cpu" else 5e-2
    assert loss_ragged == pytest.approx(loss, rel=limit)
    largest = max(float(value.abs().max()) for value in masked.values())
    for name, value in masked.items():
        assert float((own[name] - value).abs().max()) < limit * largest, name


def with_starts(each, device, *, is_ragged):
    if is_ragged:
        batch = each.part.batch.with_starts()
        return replace(each, batch=batch if device.type == "cpu" else batch.to(device))
    batch = each.batch
    if device.type == "cpu":
        return each
    read = getattr(batch, "read", None)
    if read is None:
        return replace(each, batch=replace(batch, starts=None))
    written = None if batch.written is None else replace(batch.written, starts=None)
    return replace(each, batch=replace(batch, read=replace(read, starts=None), written=written))


@pytest.mark.parametrize("name", ["padded", "packed"])
def test_queries_at_few_places_keep_the_mask(name):
    layout, _ = layouts(name)
    places = Queries(torch.tensor([[0, 3], [5, 1], [0, 0]]))
    keys = places.keys(layout.keys, layout.n_keys)
    assert layout.keys.ragged is not None and keys.ragged is None
    assert keys.mask is not None


def test_where_sequences_begin_is_that_of_a_small_case():
    read, written = sequence_starts(READ, WRITTEN)
    assert read.tolist() == [0, 3, 7, 9, 11, 22, 22, 22, 22, 23, 23, 23, 33]
    assert written.tolist() == [0, 2, 3, 6, 7, 12, 12, 12, 14, 21, 21, 21, 21]
    (numbered,) = sequence_starts(torch.tensor([[71, 71, 4096], [4096, 4096, 4096]]))
    assert numbered.tolist() == [0, 2, 3, 3, 3, 6, 6, 6, 6]


@pytest.mark.parametrize(("has_bias", "p_dropout"), [(True, 0.0), (False, 0.1)])
def test_what_the_kernel_lacks_is_not_given_to_it(has_bias, p_dropout, device):
    q = torch.zeros(1, 2, 5, 16, device=device, dtype=torch.bfloat16)
    assert not attention_ragged.is_supported(q, q, has_bias=has_bias, p_dropout=p_dropout)
    # Of the rest a GPU has it; types, widths and a CPU not.
    has_gpu = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    assert attention_ragged.is_supported(q, q, has_bias=False, p_dropout=0.0) == has_gpu
    for other in (q.float(), q[..., :9]):
        assert not attention_ragged.is_supported(other, other, has_bias=False, p_dropout=0.0)
