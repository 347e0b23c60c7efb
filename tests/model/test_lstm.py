"""LSTMs against PyTorch's and against the equations; what they see, and what they keep."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.model.build import build
from sublayer.model.context.cache import Cache
from sublayer.model.context.layout import Layout
from sublayer.model.layers.lstm import LstmLayer

VOCAB_SIZE, N_TOKENS = 17, 11


def config_of(**fields):
    given = {"n_layers": 2, "d_model": 7, **fields}
    return resolve_model(ModelConfig(kind="lstm", **given), vocab_size=VOCAB_SIZE, context=N_TOKENS)


def model_of(**fields):
    model = build(config_of(**fields), seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    return model


def tokens_of(n_rows, n_tokens=N_TOKENS):
    generator = torch.Generator().manual_seed(2)
    return torch.randint(VOCAB_SIZE, (n_rows, n_tokens), generator=generator)


def layers_of(model):
    layers = [model.stack.block(layer)[0] for layer in range(model.config.n_layers)]
    assert all(isinstance(layer, LstmLayer) for layer in layers)
    return layers


def close(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_model_equals_an_embedding_an_lstm_and_a_tied_output_of_pytorch():
    model = model_of()
    table = nn.Embedding(VOCAB_SIZE, 7).double()
    lstm = nn.LSTM(7, 7, num_layers=2, batch_first=True).double()
    with torch.no_grad():
        table.weight.copy_(model.embedding.weight)
        for number, layer in enumerate(layers_of(model)):
            for name, value in layer.function.named_parameters():
                getattr(lstm, name.replace("l0", f"l{number}")).copy_(value)
    tokens = tokens_of(3)
    theirs = lstm(table(tokens))[0] @ table.weight.T
    ours = model(tokens).logits
    close(ours, theirs)
    ours.square().mean().backward()
    theirs.square().mean().backward()
    assert model.embedding.weight.grad is not None and table.weight.grad is not None
    close(model.embedding.weight.grad, table.weight.grad)
    for number, layer in enumerate(layers_of(model)):
        for name, value in layer.function.named_parameters():
            theirs_grad = getattr(lstm, name.replace("l0", f"l{number}")).grad
            close(value.grad, theirs_grad)


def test_rows_of_a_cache_continue_apart():
    model, tokens = model_of(), tokens_of(3)
    cache = Cache(model.config, 3, N_TOKENS, torch.float64)
    model(tokens[:, :5], cache=cache)
    rows = torch.tensor([2, 0, 0, 1])
    cache.take_rows(rows)
    further = tokens_of(4, 3)
    joined = torch.cat([tokens[rows, :5], further], dim=1)
    close(model(further, cache=cache).logits, model(joined).logits[:, 5:])


def test_padding_anywhere_changes_nothing_cached_or_not():
    model, tokens = model_of(), tokens_of(4)
    mask = torch.ones(4, N_TOKENS, dtype=torch.bool)
    mask[0, 8:] = False
    mask[1, :3] = False
    mask[2, 4:6] = False
    mask[3, :5] = False  # all of the first piece
    padded = model(tokens, mask).logits
    for row in range(4):
        real = tokens[row][mask[row]][None]
        close(padded[row][mask[row]], model(real).logits[0])
    cache = Cache(model.config, 4, N_TOKENS, torch.float64)
    first = model(tokens[:, :5], mask[:, :5], cache=cache).logits
    second = model(tokens[:, 5:], mask[:, 5:], cache=cache).logits
    close(torch.cat([first, second], dim=1)[mask], padded[mask])


@pytest.mark.parametrize("lengths", [(11, 6, 9, 0), (11, 2, 1, 0)], ids=["whole", "packed"])
def test_padding_behind_changes_nothing_and_gets_no_gradient(lengths):
    model, tokens = model_of(), tokens_of(4)
    mask = torch.arange(N_TOKENS) < torch.tensor(lengths)[:, None]
    layout = Layout.causal(tokens, mask)
    assert layout.runs is not None and layout.runs.is_one_a_row
    assert (layout.runs.real_share >= 0.5) == (lengths[1] == 6)
    final = model.hidden(tokens, layout).final
    assert not final[~mask].any()
    final.square().sum().backward()
    gradients = {name: each.grad for name, each in model.named_parameters()}
    model.zero_grad()
    for row, length in enumerate(lengths[:3]):
        own = tokens[row : row + 1, :length]
        alone = model.hidden(own, Layout.causal(own)).final
        close(final[row, :length], alone[0])
        alone.square().sum().backward()
    for name, each in model.named_parameters():
        found = gradients[name]
        assert (found is None) == (each.grad is None)
        if found is not None and each.grad is not None:
            close(found, each.grad)


def test_documents_of_a_row_are_read_apart_and_packed_as_pytorch_packs_them():
    model, tokens = model_of(), tokens_of(2)
    ids = torch.tensor([[0] * 4 + [1] * 7, [3, 2, 2, 2, 5, 5, 5, 5, 5, 6, 6]])
    layout = Layout.causal(tokens, document_ids=ids)
    packed = model.hidden(tokens, layout).final
    lengths = []
    for row in range(2):
        for number in ids[row].unique():
            document = tokens[row][ids[row] == number][None]
            alone = model.hidden(document, Layout.causal(document)).final[0]
            close(packed[row][ids[row] == number], alone)
            lengths.append(document.shape[1])
    packing = layout.runs.packing()
    lengths.sort(reverse=True)
    theirs = pack_sequence([torch.arange(length) for length in lengths])
    assert torch.equal(packing.batch_sizes, theirs.batch_sizes)
    assert sorted(packing.tokens.tolist()) == list(range(2 * N_TOKENS))
