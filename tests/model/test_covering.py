"""Sixty combinations of the axes of models: each builds, counts, saves, loads, decodes, learns."""

from itertools import combinations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings
from sublayer.decode.lstm_step import LstmStepper
from sublayer.decode.step import Stepper
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.model.build import build, compose
from sublayer.model.context.cache import Cache
from sublayer.model.context.layout import Layout
from sublayer.model.encoder import Encoder
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.kernels.cross_entropy import linear_cross_entropy
from sublayer.model.lstm import Lstm
from sublayer.model.model_folder import load_weights, save_model
from sublayer.model.roles import parameter_roles
from tests.breadth import TRIES_ALL

from .covering import allowed_pairs
from .covering_axes import AXES, FORBIDDEN, ROWS, WITHOUT_MEANING

VOCAB_SIZE, CONTEXT = 13, 12
PART = ROWS if TRIES_ALL else ROWS[:60]
"""The design is greedy: its first rows have more pairs of values than any others of its rows."""

RECIPES = {"decoder": "gpt", "encoder": "bert-base", "encoder-decoder": "multi30k-tiny"}


def pairs_in(rows):
    met: set[frozenset[tuple[str, int]]] = set()
    for row in rows:
        settings = [(name, values.index(row[name])) for name, values in AXES.items()]
        met |= {frozenset(pair) for pair in combinations(settings, 2)}
    return met


def test_the_design_has_every_pair_of_values_and_its_part_nearly_all():
    allowed = set(allowed_pairs(AXES, FORBIDDEN))
    assert pairs_in(ROWS) == allowed
    part = pairs_in(PART)
    assert len(part) > 0.98 * len(allowed)
    values = {setting for pair in part for setting in pair}
    assert values == {(name, number) for name in AXES for number in range(len(AXES[name]))}


def make_config(row):
    config = ModelConfig(n_layers=4, d_model=8, n_heads=2, d_ff=6, **row)
    return resolve_model(config, vocab_size=VOCAB_SIZE, context=CONTEXT)


def close(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def draw_tokens(length):
    return torch.randint(VOCAB_SIZE, (2, length), generator=torch.Generator().manual_seed(0))


def randomised(model):
    """Draw all weights from N(0, 0.2), biases and gains too, so that every term matters."""
    model, generator = model.double().eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
    return model


def saved_and_loaded(model, folder):
    save_model(folder / "model", model, {})
    config, tensors = load_weights(folder / "model")
    loaded = compose(config).double().eval()
    loaded.load_state_dict(tensors)
    return loaded


def check_counts(model):
    names = {name for name, _ in model.named_parameters()}
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert n_parameters == count_parameters(model.config).total
    assert parameter_roles(model).keys() == names
    assert model.state_dict().keys() == names


def check_decoder(model, loaded):
    """Logits of pieces behind a cache, and of steps of a token, are those of a forward pass."""
    tokens = draw_tokens(CONTEXT)
    logits = model(tokens).logits
    assert torch.equal(loaded(tokens).logits, logits)
    cache = Cache(model.config, 2, CONTEXT, torch.float64)
    pieces = [loaded(piece, cache=cache).logits for piece in tokens.split([5, 1, 1, 5], dim=1)]
    close(torch.cat(pieces, dim=1), logits)
    cache = Cache(model.config, 2, CONTEXT, torch.float64)
    is_lstm = isinstance(loaded, Lstm)
    step = (LstmStepper if is_lstm else Stepper)(loaded, 2)
    found = [loaded.last_logits(tokens[:, :1], cache)]
    found += [step(tokens[:, place], cache) for place in range(1, CONTEXT)]
    n_tokens = found[0].shape[1]
    close(torch.stack(found, dim=1), logits[..., :n_tokens])


def check_encoder(model, loaded):
    """Padding changes no logits of tokens or of sentences."""
    tokens, n_real = draw_tokens(CONTEXT), CONTEXT - 3
    positions = torch.arange(CONTEXT)
    segments = (positions > 4).long().expand(2, -1)
    mask = (positions < n_real).expand(2, -1)
    alone = model(tokens[:, :n_real], segments=segments[:, :n_real])
    padded, again = model(tokens, mask, segments), loaded(tokens, mask, segments)
    assert torch.equal(again.logits, padded.logits)
    close(padded.logits[:, :n_real], alone.logits)
    assert (padded.sentence_logits is None) == (model.config.sentence_classes == 0)
    if padded.sentence_logits is not None:
        assert torch.equal(again.sentence_logits, padded.sentence_logits)
        close(padded.sentence_logits, alone.sentence_logits)


def check_translator(model, loaded):
    """Padding changes no logits, pieces behind a cache have the same, and so does a beam."""
    source, target = draw_tokens(7), draw_tokens(CONTEXT)
    n_source, n_target = 4, CONTEXT - 3
    mask = (torch.arange(7) < n_source).expand(2, -1)
    target_mask = (torch.arange(CONTEXT) < n_target).expand(2, -1)
    logits = model(source, target=target).logits
    assert torch.equal(loaded(source, target=target).logits, logits)
    cache, memory = Cache(model.config, 2, CONTEXT, torch.float64), loaded.encode(source)
    pieces = target.split([5, 1, 1, 5], dim=1)
    close(torch.cat([loaded.decode(each, memory, cache) for each in pieces], dim=1), logits)
    alone = model(source[:, :n_source], target=target[:, :n_target]).logits
    padded = model(source, target=target, mask=mask, target_mask=target_mask).logits
    close(padded[:, :n_target], alone)
    rng, (end, pad) = np.random.default_rng(0), (2, 1)
    sources = [rng.integers(3, VOCAB_SIZE, length) for length in (7, 2, 5)]
    settings = BeamSettings(3, max_length_offset=4)
    # Fewer at a time than there are, so that the third begins where another ends.
    found = dict(search(model, sources, settings, end_id=end, pad_id=pad, sentences=2))
    assert {number: len(each) for number, each in found.items()} == {0: 3, 1: 3, 2: 3}
    for number, ids in enumerate(sources):
        given = torch.tensor([[*ids, end]])
        for each in found[number]:
            read = torch.tensor([[end, *each.ids]])
            log_p = model(given, target=read).logits[0].log_softmax(-1)
            total = log_p[range(read.shape[1]), [*each.ids, end]].sum().item()
            assert each.log_p == pytest.approx(total, abs=1e-9)


def loss_of(model, tokens):
    if isinstance(model, Encoder):
        return encoder_loss_of(model, tokens)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    is_translator = isinstance(model, EncoderDecoder)
    rest = {"memory": model.encode(tokens.flip(1))} if is_translator else {}
    return token_loss_of(model, model.hidden(inputs, Layout.causal(inputs), **rest).final, targets)


def encoder_loss_of(model, tokens):
    """Predict every third token of rows of which the second is reversed, and which that is."""
    tokens = torch.stack([tokens[0], tokens[1].flip(0), tokens[2]])
    is_wrong = torch.tensor([0, 1, 0])
    positions = torch.arange(tokens.shape[1])
    is_hidden = positions % 3 == 1
    segments = (positions > 5).long().expand_as(tokens)
    inputs = tokens.masked_fill(is_hidden, VOCAB_SIZE - 1)
    hidden = model.hidden(inputs, Layout.bidirectional(inputs), segments=segments).final
    loss = token_loss_of(model, hidden[:, is_hidden], tokens[:, is_hidden])
    first = hidden[:, 0]
    if model.sentence_head is None:
        # No matter what a vector of the text is for.
        return loss + model.pool(first).square().mean()
    logits = model.sentence_logits(first)
    if logits.shape[1] == 1:
        return loss + F.binary_cross_entropy_with_logits(logits[:, 0], is_wrong.to(logits.dtype))
    return loss + F.cross_entropy(logits, is_wrong)


def token_loss_of(model, hidden, targets):
    matrix, bias = model.output_projection()
    embedded = model.to_embedding(hidden).flatten(0, 1)
    return linear_cross_entropy(embedded, matrix, bias, targets.flatten()) / targets.numel()


def check_learning(model, row):
    if row["kind"] == "lstm":
        # Of so few units four layers leave next to nothing at a standard deviation of 0.02.
        scale(model, 1.0 if row["init"] == "xavier" else 20.0)
    elif row["norm"] == "none" or row["init"] == "kaiming":
        # Without norms products of products leave the range.
        scale(model, 0.3)
    tokens = torch.arange(11).repeat(3, 1)
    before = after = loss_of(model.eval(), tokens).item()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    torch.manual_seed(0)
    n_steps = 0
    # Most learn within a few steps; the loss of some rises before it falls.
    while after >= before and n_steps < 40:
        model.train()
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(model, tokens).backward()
            optimizer.step()
        n_steps += 5
        after = loss_of(model.eval(), tokens).item()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    assert after < before


def scale(model, factor):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)


@pytest.mark.parametrize("row", PART, ids=range(len(PART)))
def test_it_builds_counts_saves_loads_decodes_and_learns(row, tmp_path):
    model = build(make_config(row), seed=0)
    check_counts(model)
    check_learning(model, row)
    model = randomised(model)
    loaded = saved_and_loaded(model, tmp_path)
    with torch.no_grad():
        if isinstance(model, EncoderDecoder) and isinstance(loaded, EncoderDecoder):
            check_translator(model, loaded)
        elif isinstance(model, Encoder):
            check_encoder(model, loaded)
        else:
            check_decoder(model, loaded)


def refused_pairs():
    """List one pair of values for each pair of fields that contradict each other, or all."""
    pairs = {(one[0], other[0]): (one, other) for one, other in WITHOUT_MEANING}
    return WITHOUT_MEANING if TRIES_ALL else list(pairs.values())


@pytest.mark.parametrize("pair", refused_pairs(), ids=str)
def test_a_combination_without_meaning_is_refused_by_both_names(pair):
    given = {f"model.{name}": value for name, value in pair}
    with pytest.raises(ConfigError) as caught:
        load_recipe(RECIPES.get(dict(pair).get("kind", "decoder"), "gpt"), given)
    assert all(name in str(caught.value) for name in given)
