"""What a GPU takes for attention, losses and dropout, against the formulas."""

import math

import pytest
import torch
import torch.nn.functional as F

from sublayer.model.context.keys import Keys
from sublayer.model.kernels.attention import attend
from sublayer.model.kernels.constants import constants
from sublayer.model.kernels.cross_entropy import linear_cross_entropy
from sublayer.model.kernels.dropout import add_branch, dropout

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def document_mask(n_tokens):
    documents = torch.arange(n_tokens) // 5
    return (documents[:, None] == documents).tril()[None, None]


MASKS = {
    "all": Keys(False, None),
    "causal": Keys(True, None),
    "documents": Keys(True, document_mask(17)),
    "padding": Keys(False, torch.arange(17)[None, None, None] < 13),
}


def softmax_attention(q, k, v, keys, bias, scale):
    scores = scale * q @ k.mT
    if bias is not None:
        scores = scores + bias
    mask = keys.mask
    if mask is None and keys.is_causal:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_attention_and_its_gradients_are_those_of_the_formula(name, has_bias, dtype, device):
    keys = MASKS[name]
    q, k, v, weight = (draw(3, 2, 17, 8, seed=seed) for seed in range(4))
    bias = draw(1, 2, 17, 17, seed=4) if has_bias else None
    expected_inputs = [x.double().requires_grad_() for x in (q, k, v)]
    wide_bias = None if bias is None else bias.double()
    expected = softmax_attention(*expected_inputs, keys, wide_bias, 0.3)
    expected.backward(weight.double())
    inputs = [x.to(device, dtype).requires_grad_() for x in (q, k, v)]
    there = Keys(keys.is_causal, None if keys.mask is None else keys.mask.to(device))
    own_bias = None if bias is None else bias.to(device, dtype)
    found = attend(*inputs, there, own_bias, scale=0.3)
    found.backward(weight.to(device, dtype))
    # Next to the largest, as rounding of bfloat16 is.
    limit = TOLERANCE[dtype]
    pairs = [(found, expected)]
    pairs += [(x.grad, y.grad) for x, y in zip(inputs, expected_inputs, strict=True)]
    for own, reference in pairs:
        difference = (own.detach().double().cpu() - reference.detach()).abs().max()
        assert difference < limit * (1 + reference.abs().max())


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


def test_dropout_keeps_the_share_that_it_says_and_the_mean(device):
    torch.manual_seed(0)
    ones = torch.ones(400, 500, device=device)
    dropped = dropout(ones, 0.2, True)
    assert float((dropped == 0).float().mean()) == pytest.approx(0.2, abs=0.005)
    assert float(dropped.max()) == pytest.approx(1.25, rel=1e-4)
    added = add_branch(ones, ones, step=0.5, p=0.2, training=True)
    assert float(added.min()) == 1.0 and float(added.mean()) == pytest.approx(1.5, abs=0.01)


def test_constants_are_filled_in_on_the_device(device):
    beside = torch.zeros(1, device=device)
    found = constants((1, 2, 30), torch.int64, beside)
    assert found.device.type == device.type and found.tolist() == [1, 2, 30]
