"""Gates of attention and value residuals against a plain reference, and factors of steps."""

import pytest
import torch
import torch.nn.functional as F

from sublayer.config.stacks import stacks
from sublayer.config.train import Frozen
from sublayer.estimate.memory import n_frozen_parameters
from sublayer.model.blocks import Attention
from sublayer.model.context import Context, Layout, Queries
from sublayer.model.estimates import count_parameters
from sublayer.model.transformer import EncoderDecoder
from sublayer.training.warm_start import frozen_parameters

from .conftest import VOCAB_SIZE, check_gradients, close, random_model

LEARNED, SHARED = {"value_residual": "learned", "n_layers": 4}, {"share": "all"}
TWICE = {"block": ["attention*0.5", "ffn", "attention*2"], "attention_gate": "head"}
PAIRS = {"kind": "encoder-decoder", "value_residual": "learned", "attention_gate": "head"}
MODELS = {
    "gates by head": ({"attention_gate": "head"}, 0),
    "gates by element": ({"attention_gate": "element", "bias": False}, 0),
    "fixed": ({"value_residual": "fixed", "attention_gate": "element", "n_layers": 3}, 0),
    "learned": (LEARNED, 3),
    "one block": ({**LEARNED, **SHARED}, 1),
    # The first set is the first attention's alone.
    "groups of one and three": ({**LEARNED, **SHARED, "share_inner": 2, "n_layers": 2}, 1),
    "groups": ({**LEARNED, **SHARED, "share_groups": 2}, 2),
    "two attentions": ({"value_residual": "learned", **TWICE}, 3),
    "two attentions of a block": ({"value_residual": "learned", **TWICE, "n_layers": 1}, 1),
    "networks before": ({**LEARNED, "block": "macaron", "residual_scale": 0.3}, 3),
    "encoder": ({**LEARNED, "kind": "encoder", "share": "attention", "share_inner": 2}, 2),
    "encoder-decoder": ({**PAIRS, "n_decoder_layers": 3}, 3),
}
"""Fields of a model, and its number of learned shares."""
each_model = pytest.mark.parametrize(("fields", "n_shares"), MODELS.values(), ids=MODELS)


def draw_tokens(n_tokens=9, n_rows=2):
    return torch.randint(VOCAB_SIZE, (n_rows, n_tokens), generator=torch.Generator().manual_seed(1))


def plain_states(body, tokens, memory=None):
    """Compute the final states of a stack of pre-norm blocks without positions."""
    x, first, config = body.embedding(tokens), None, body.config
    seen = torch.ones(2 * tokens.shape[1:]).tril() if body.shape.is_causal else torch.ones(1)
    for layer in range(body.shape.n_layers):
        for entry, sublayer in zip(body.shape.block, body.stack.block(layer), strict=True):
            function, normed = sublayer.function, sublayer.norm(x)
            if isinstance(function, Attention):
                maps = function.projection
                biases = maps.bias if config.bias else [None] * 3
                q, k, v = (
                    F.linear(normed, weight, bias).unflatten(-1, (config.n_heads, -1))
                    for weight, bias in zip(maps.weight, biases, strict=True)
                )
                if first is None:
                    first = v
                elif config.value_residual != "none":
                    share = function.first_share if config.value_residual == "learned" else 0.5
                    v = (1 - share) * v + share * first
                scores = torch.einsum("bihk,bjhk->bhij", q, k) / config.d_head**0.5
                weights = scores.masked_fill(seen == 0, -torch.inf).softmax(-1)
                mixed = torch.einsum("bhij,bjhk->bihk", weights, v)
                if config.attention_gate == "head":
                    mixed = mixed * function.gate(normed).sigmoid()[..., None]
                mixed = mixed.flatten(2)
                if config.attention_gate == "element":
                    mixed = mixed * function.gate(normed).sigmoid()
                branch = function.output(mixed)
            else:
                branch = function(normed, Context(Layout.causal(tokens), None, memory=memory))
            x = x + entry.step * config.residual_scale * branch
    return body.final_norm(x)


def both(fields, tokens):
    """Build a model; return it, its states and those of the reference."""
    model, memory = random_model(positions="none", **fields), None
    if isinstance(model, EncoderDecoder):
        memory, source = model.encode(tokens.flip(1)), model.source
        source.embedding, source.config = model.embedding, model.config
        close(memory.states, plain_states(source, tokens.flip(1)))
        del source.embedding
    lay_out = Layout.causal if model.shape.is_causal else Layout.bidirectional
    found = model.hidden(tokens, lay_out(tokens), memory=memory).final
    return model, found, plain_states(model, tokens, memory)


@each_model
def test_states_and_gradients_are_those_of_a_plain_reference(fields, n_shares):
    model, found, expected = both(fields, draw_tokens())
    parameters = [value for name, value in model.named_parameters() if "head." not in name]
    check_gradients(found, expected, [each for each in parameters if each.requires_grad])
    names = {name for name, _ in model.named_parameters() if name.endswith("first_share")}
    assert len(names) == n_shares
    n_parameters = sum(each.numel() for each in model.parameters())
    assert n_parameters == count_parameters(model.config).total


@each_model
def test_recomputed_blocks_sum_the_same_gradients_over_micro_batches(fields, n_shares):
    model, tokens = random_model(**fields), draw_tokens(n_rows=4)
    found = []
    for recomputes in (False, True):
        for stack in model.stacks:
            stack.recomputes = recomputes
        model.zero_grad()
        for rows in tokens.split(2 if recomputes else 4):
            given = {"target": rows.flip(1)} if isinstance(model, EncoderDecoder) else {}
            model(rows, **given).logits.square().sum().backward()
        found.append({name: value.grad for name, value in model.named_parameters()})
    for name, gradient in found[0].items():
        if gradient is not None:
            close(found[1][name], gradient, 1e-10)
    shares = [value for name, value in found[0].items() if name.endswith("first_share")]
    assert len(shares) == n_shares and all(each.abs() > 1e-6 for each in shares)


@pytest.mark.parametrize("fields", [
    {"attention_gate": "head"}, {**LEARNED, "positions": "rotary", "rotary_fraction": 0.5},
    {"value_residual": "fixed", **TWICE, "n_layers": 1, "positions": "alibi"},
], ids=str)  # fmt: skip
def test_states_at_some_positions_are_those_of_a_full_pass(fields):
    model, tokens = random_model(**{"d_model": 12, **fields}), draw_tokens()
    places, rows = torch.tensor([[8, 3], [0, 5]]), torch.arange(2)[:, None]
    final = model.hidden(tokens, Layout.causal(tokens)).final
    close(
        model.hidden(tokens, Layout.causal(tokens), queries=Queries(places)).final,
        final[rows, places],
    )


def test_a_residual_scale_is_a_factor_of_each_step_and_an_embedding_scale_of_the_table():
    tokens, block = draw_tokens(), ["ffn*0.5", "attention", "ffn*-2"]
    scaled = random_model(block=block, residual_scale=0.25, embedding_scale=3.0)
    plain = random_model(block=["ffn*0.125", "attention*0.25", "ffn*-0.5"], tie_embeddings=False)
    plain.load_state_dict(scaled.state_dict() | {"head.weight": scaled.embedding.weight})
    plain.embedding.weight.data.mul_(3.0)
    close(scaled(tokens).logits, plain(tokens).logits)
    roots = [random_model(embedding_scale=each)(tokens).logits for each in ("sqrt", 6**0.5)]
    assert torch.equal(*roots)


@pytest.mark.parametrize("fields, layers", [
    ({**LEARNED, "attention_gate": "head"}, 2), ({**LEARNED, **SHARED, "share_groups": 2}, 2),
    ({"value_residual": "learned", **TWICE}, 1), ({"first_norm": False}, 1),
])  # fmt: skip
def test_frozen_blocks_count_their_shares_gates_and_norms(fields, layers):
    model, frozen = random_model(**fields), Frozen(n_layers=layers)
    kept = {id(each): each.numel() for each in frozen_parameters(model, frozen)}
    assert n_frozen_parameters(model.config, frozen) == sum(kept.values())
    assert len(stacks(model.config)) == 1
