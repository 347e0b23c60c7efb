"""LSTMs against PyTorch's and against the equations; what they see, and what they keep."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.model.build import build
from sublayer.model.context.cache import Cache
from sublayer.model.context.layout import Layout
from sublayer.model.context.runs import Runs
from sublayer.model.layers.lstm import LstmLayer
from sublayer.model.lstm import Lstm

VOCAB_SIZE, N_TOKENS = 17, 11


def config_of(**fields: Any) -> ResolvedModel:
    given = {"n_layers": 2, "d_model": 7, **fields}
    return resolve_model(ModelConfig(kind="lstm", **given), vocab_size=VOCAB_SIZE, context=N_TOKENS)


def model_of(**fields: Any) -> Lstm:
    model = build(config_of(**fields), seed=0).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    assert isinstance(model, Lstm)
    return model


def tokens_of(n_rows: int, n_tokens: int = N_TOKENS) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(VOCAB_SIZE, (n_rows, n_tokens), generator=generator)


def layers_of(model: Lstm) -> list[LstmLayer]:
    layers = [model.stack.block(layer)[0] for layer in range(model.config.n_layers)]
    assert all(isinstance(layer, LstmLayer) for layer in layers)
    return layers  # type: ignore[return-value]


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_model_equals_an_embedding_an_lstm_and_a_tied_output_of_pytorch() -> None:
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
            assert value.grad is not None
            close(value.grad, theirs_grad)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_computes_its_equations(bias: bool) -> None:
    model = model_of(n_layers=1, d_model=3, d_embed=2, bias=bias)
    [layer] = layers_of(model)
    gates = layer.function
    tokens = tokens_of(1, 4)
    inputs = model.embed(tokens, torch.arange(4))[0]
    output, cell = torch.zeros(3).double(), torch.zeros(3).double()
    states = []
    for x in inputs:
        total = gates.weight_ih_l0 @ x + gates.weight_hh_l0 @ output
        if bias:
            total = total + gates.bias_ih_l0 + gates.bias_hh_l0
        rows = total.split(3)
        keep, forget, new, shown = rows[0].sigmoid(), rows[1].sigmoid(), rows[2].tanh(), rows[3]
        cell = forget * cell + keep * new
        output = shown.sigmoid() * cell.tanh()
        states.append(output)
    hidden = model.hidden(tokens, Layout.causal(tokens)).final[0]
    close(hidden, torch.stack(states))
    assert model.vocabulary_head.projection is not None
    close(
        model(tokens).logits[0], model.vocabulary_head.projection(hidden) @ model.embedding.weight.T
    )


def test_a_token_changes_no_logits_before_it_and_all_behind() -> None:
    model, tokens = model_of(), tokens_of(2)
    before = model(tokens).logits
    for place in range(N_TOKENS):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % VOCAB_SIZE
        after = model(changed).logits
        assert torch.equal(after[:, :place], before[:, :place])
        assert ((after[:, place:] - before[:, place:]).abs().amax(2) > 1e-9).all()


def test_pieces_behind_a_cache_equal_the_whole() -> None:
    model, tokens = model_of(d_embed=5), tokens_of(3)
    # Room for two tokens would be too little for keys and values.
    cache = Cache(model.config, 3, 2, torch.float64)
    pieces = [model(piece, cache=cache).logits for piece in tokens.split([4, 1, 6], dim=1)]
    close(torch.cat(pieces, dim=1), model(tokens).logits)
    assert cache.length == N_TOKENS


def test_rows_of_a_cache_continue_apart() -> None:
    model, tokens = model_of(), tokens_of(3)
    cache = Cache(model.config, 3, N_TOKENS, torch.float64)
    model(tokens[:, :5], cache=cache)
    rows = torch.tensor([2, 0, 0, 1])
    cache.take_rows(rows)
    further = tokens_of(4, 3)
    joined = torch.cat([tokens[rows, :5], further], dim=1)
    close(model(further, cache=cache).logits, model(joined).logits[:, 5:])


def test_padding_anywhere_changes_nothing_cached_or_not() -> None:
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
def test_padding_behind_changes_nothing_and_gets_no_gradient(lengths: tuple[int, ...]) -> None:
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


@pytest.mark.parametrize(
    ("mask", "ids", "is_one"),
    [
        ([1, 1, 0, 0], [0, 0, 1, 1], True),
        ([0, 0, 0, 0], [0, 0, 0, 0], True),
        ([1, 0, 1, 1], [0, 0, 0, 0], False),
        ([1, 1, 1, 1], [0, 0, 1, 1], False),
    ],
)
def test_rows_of_one_document_are_recognised(mask: list[int], ids: list[int], is_one: bool) -> None:
    tokens = tokens_of(2, 4)
    masks = torch.tensor([[1, 1, 1, 1], mask], dtype=torch.bool)
    runs = Layout.causal(tokens, masks, torch.tensor([[0] * 4, ids])).runs
    assert runs is not None and runs.is_one_a_row == is_one


def test_documents_of_a_row_are_read_apart_and_packed_as_pytorch_packs_them() -> None:
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
    assert layout.runs is not None
    packing = layout.runs.packing()
    lengths.sort(reverse=True)
    theirs = pack_sequence([torch.arange(length) for length in lengths])
    assert torch.equal(packing.batch_sizes, theirs.batch_sizes)
    assert sorted(packing.tokens.tolist()) == list(range(2 * N_TOKENS))


def test_rows_without_a_real_token_have_no_sequence() -> None:
    tokens = tokens_of(3)
    mask = torch.tensor([[True] * 3, [False] * 3, [True, False, False]])
    runs = Layout.causal(tokens[:, :3], mask).runs
    assert isinstance(runs, Runs)
    packing = runs.packing()
    assert packing.tokens.tolist() == [0, 6, 1, 2]
    assert packing.batch_sizes.tolist() == [2, 1, 1]
    assert packing.sequences.tolist() == [0, 2]


def test_types_of_weights_are_computed_with_and_autocast_leaves_float32() -> None:
    model, tokens = model_of(d_model=32).float(), tokens_of(3)
    exact = model(tokens).logits
    mask = torch.ones(3, N_TOKENS, dtype=torch.bool)
    mask[1, 0] = False
    # Packed rows and others, by other kernels of float32.
    torch.testing.assert_close(model(tokens, mask).logits[::2], exact[::2], rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        final = model.hidden(tokens, Layout.causal(tokens)).final
    assert final.dtype == torch.float32
    assert torch.equal(final, model.hidden(tokens, Layout.causal(tokens)).final)
    narrow = model.to(torch.bfloat16)(tokens).logits
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(narrow.float(), exact, rtol=0.05, atol=0.1)


def test_a_layer_drops_its_output_in_training_alone() -> None:
    config = config_of(d_model=64, dropout=0.5, n_layers=1)
    model = build(config, seed=0)
    tokens = tokens_of(4)
    torch.manual_seed(0)
    dropped = model.hidden(tokens, Layout.causal(tokens)).final
    whole = model.eval().hidden(tokens, Layout.causal(tokens)).final
    is_zero = dropped == 0
    assert 0.4 < is_zero.float().mean() < 0.6
    # Of one layer the embedding is dropped too: no unit is the whole's twice, but none is left.
    assert not (whole == 0).any()


def test_initial_weights_follow_the_scheme_and_biases_are_zero() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    model = build(config_of(d_model=96, init="normal"), seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in model.state_dict().items():
        if ".bias" in name:
            assert not value.any()
        else:
            assert value.std().item() == pytest.approx(0.02, rel=0.06)
    bounded = build(config_of(d_model=96, init="xavier"), seed=0)
    bound = math.sqrt(6 / (96 + 96))
    for layer in layers_of(bounded):  # type: ignore[arg-type]
        largest = layer.function.weight_hh_l0.abs().max().item()
        assert 0.99 * bound < largest <= bound


def test_parameters_are_counted() -> None:
    # Tables 17 x 5, maps 5 x 7 + 7 and 7 x 5 + 5, two layers of 4 x (7 x 14 + 14).
    config = config_of(d_embed=5)
    assert count_parameters(config).total == 85 + 42 + 40 + 2 * 4 * (98 + 14)


@pytest.mark.parametrize("init", ["kaiming", "t5"])
def test_a_scheme_without_a_rule_for_gates_is_refused(init: str) -> None:
    with pytest.raises(ConfigError, match=f"model.init = {init} .* model.kind = lstm"):
        config_of(init=init)
