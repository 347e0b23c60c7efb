"""Two hundred combinations of the axes of models: each builds, counts, learns, loads, decodes."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.span import SpanObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.data.counter_rng import Purpose, seeds
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.span.examples import CorruptionRule, Pieces, corrupted_batch
from sublayer.data.span.masks import span_mask
from sublayer.data.span.pieces import Cuts, Joined
from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters
from sublayer.model.build import build, compose
from sublayer.model.context.cache import Cache
from sublayer.model.context.layout import Layout
from sublayer.model.encoder import Encoder
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.model.kernels.cross_entropy import linear_cross_entropy
from sublayer.model.model_folder import load_weights, save_model
from sublayer.model.roles import parameter_roles
from sublayer.model.transformer import Transformer
from sublayer.objective.span.loss import SpanCorruption

from .covering import allowed_pairs
from .covering_axes import (
    ALSO_WITHOUT_MEANING,
    AXES,
    FORBIDDEN,
    ROWS,
    WITHOUT_MEANING,
    Pair,
)

VOCAB_SIZE, CONTEXT = 13, 12

REST: dict[Pair, dict[str, Any]] = {
    (("d_model", 9), ("positions", "sinusoidal")): {"n_heads": 3},
    (("d_embed", 9), ("positions", "sinusoidal")): {"embedding_projection": "sum"},
    (("n_layers", 5), ("share_inner", 2)): {"share": "all"},
    (("relative_distance", 16), ("relative_buckets", 32)): {"positions": "relative"},
}
"""What else must be said for the contradiction to be the first that is met."""

AT_LEISURE = 32
"""Tests that try fewer rows every time than one in so many try half of all at leisure."""

RECIPES = {
    "decoder": "gpt",
    "encoder": "bert-base",
    "encoder-decoder": "multi30k-tiny",
    "lstm": "gpt",
}


def each_row(every: int = 1, *, kinds: tuple[str, ...] = AXES["kind"]) -> pytest.MarkDecorator:
    """Try a test on the rows of some kinds of model, on all but one in ``every`` if slow ones run.

    What takes longest is tried on a part of the design every time, and on every other row at
    leisure.
    """
    rows = []
    for number, row in enumerate(ROWS):
        if row["kind"] in kinds:
            marks = [pytest.mark.slow] if number % every else []
            if every >= AT_LEISURE and number % 2:
                marks = [pytest.mark.explore]
            rows.append(pytest.param(row, id=f"{number:03d}", marks=marks))
    return pytest.mark.parametrize("row", rows)


each_combination = each_row()
each_combination_in_time = each_row(32)
each_translator_in_time = each_row(8, kinds=("encoder-decoder",))
each_decoder = each_row(2, kinds=("decoder", "lstm"))
each_encoder = each_row(4, kinds=("encoder",))


def config_of(row: dict[str, Any]) -> ModelConfig:
    config = ModelConfig(n_layers=4, d_model=8, n_heads=2, d_ff=6, **row)
    return resolve_model(config, vocab_size=VOCAB_SIZE, context=CONTEXT)


def loss_of(model: Transformer, tokens: Tensor) -> Tensor:
    if isinstance(model, Encoder):
        return encoder_loss_of(model, tokens)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    layout = Layout.causal(inputs)
    if isinstance(model, EncoderDecoder):
        memory = model.encode(tokens.flip(1))
        hidden = model.hidden(inputs, layout, memory=memory).final
    else:
        hidden = model.hidden(inputs, layout).final
    return token_loss_of(model, hidden, targets)


def encoder_loss_of(model: Encoder, tokens: Tensor) -> Tensor:
    """Find every third token of rows of which the second is turned round, and tell which it is."""
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


def token_loss_of(model: Transformer, hidden: Tensor, targets: Tensor) -> Tensor:
    matrix, bias = model.output_projection()
    embedded = model.to_embedding(hidden).flatten(0, 1)
    return linear_cross_entropy(embedded, matrix, bias, targets.flatten()) / targets.numel()


def scale(model: Transformer, factor: float) -> None:
    """Scale weights.

    Without norms products of products leave the range, and wide ones need more steps.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)


def test_every_pair_of_values_that_has_a_meaning_occurs() -> None:
    met = set()
    for row in ROWS:
        settings = [(name, values.index(row[name])) for name, values in AXES.items()]
        met |= {frozenset(pair) for pair in combinations(settings, 2)}
    assert met == set(allowed_pairs(AXES, FORBIDDEN))


@each_combination
def test_it_builds_with_the_parameters_that_were_counted(row: dict[str, Any]) -> None:
    model = build(config_of(row), seed=0)
    names = {name for name, _ in model.named_parameters()}
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert n_parameters == count_parameters(model.config).total
    assert parameter_roles(model).keys() == names
    assert model.state_dict().keys() == names


@each_combination_in_time
def test_it_learns(row: dict[str, Any]) -> None:
    model = build(config_of(row), seed=0)
    if row["kind"] == "lstm":
        # Of so few units four layers leave next to nothing at a standard deviation of 0.02.
        scale(model, 1.0 if row["init"] == "xavier" else 20.0)
    elif row["norm"] == "none" or row["init"] == "kaiming":
        scale(model, 0.3)
    tokens = torch.arange(11).repeat(3, 1)
    before = after = loss_of(model.eval(), tokens).item()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    torch.manual_seed(0)
    n_steps = 0
    # Most learn within ten steps; the loss of some rises before it falls.
    while after >= before and n_steps < 40:
        model.train()
        for _ in range(10):
            optimizer.zero_grad()
            loss_of(model, tokens).backward()
            optimizer.step()
        n_steps += 10
        after = loss_of(model.eval(), tokens).item()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    assert after < before


def gaps_of(length: int) -> PackedBatch:
    """Corrupt three pieces, the last of which is shorter, of 8 tokens; ids from 10 on stand for
    gaps."""
    ids = np.resize(np.arange(2, 10), 3 * length)
    rule = CorruptionRule(
        draw=span_mask,
        settings=SpanObjective(noise_density=0.3, mean_span=2.0),
        context=length,
        raw_length=length,
        target_length=length,
        sentinels=(12, 11, 10),
        end_id=1,
        pad_id=0,
        first_id=0,
    )
    bounds = np.array([0, len(ids)])
    cuts = Cuts(length * np.arange(3), np.array([length, length, length - 3]))
    pieces = Pieces(Joined(bounds[:1], bounds), cuts, seeds(0, Purpose.NOISE, 0, 3))
    store = TokenStore(ids, bounds[:1], bounds[:1], len(ids), "", is_lossless=True)
    return corrupted_batch(Split("train", store, ByteTokenizer(), ("",)), [pieces], rule)


@each_row(64, kinds=("encoder-decoder",))
def test_it_learns_to_fill_gaps(row: dict[str, Any]) -> None:
    model = build(config_of(row), seed=0)
    if row["norm"] == "none" or row["init"] == "kaiming":
        scale(model, 0.3)
    batch = gaps_of(11)
    assert batch.read.mask is not None
    objective = SpanCorruption(model, SpanObjective(z_loss=1e-3))
    before = objective.eval()(batch)["nll"].item()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    objective.train()
    torch.manual_seed(0)
    for _ in range(25):
        optimizer.zero_grad()
        (objective(batch)["trained"] / batch.n_predicted).backward()
        optimizer.step()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    after = objective.eval()(batch)["nll"].item()
    assert after < before
    parts = [objective(batch[row : row + 1])["nll"].item() for row in range(3)]
    assert sum(parts) == pytest.approx(after, rel=1e-4)


def close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def in_pieces(tokens: Tensor) -> tuple[Tensor, ...]:
    return tokens.split([5, 1, 1, 5], dim=1)


def randomised(row: dict[str, Any]) -> Transformer:
    model = build(config_of(row), seed=0).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        # Biases and gains too, so that every term matters.
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
    return model


def saved_and_loaded(model: Transformer, folder: Path) -> Transformer:
    save_model(folder / "model", model, {})
    config, tensors = load_weights(folder / "model")
    loaded = compose(config).double().eval()
    loaded.load_state_dict(tensors)
    return loaded


@each_decoder
def test_it_saves_loads_and_decodes_to_the_same_logits(row: dict[str, Any], tmp_path: Path) -> None:
    model = randomised(row)
    tokens = torch.randint(0, VOCAB_SIZE, (2, CONTEXT), generator=torch.Generator().manual_seed(0))
    loaded = saved_and_loaded(model, tmp_path)
    cache = Cache(model.config, 2, CONTEXT, torch.float64)
    with torch.no_grad():
        logits = model(tokens).logits
        assert torch.equal(loaded(tokens).logits, logits)
        pieces = [loaded(piece, cache=cache).logits for piece in in_pieces(tokens)]
    close(torch.cat(pieces, dim=1), logits)


@each_encoder
def test_it_saves_loads_and_pads_to_the_same_logits(row: dict[str, Any], tmp_path: Path) -> None:
    model = randomised(row)
    tokens = torch.randint(0, VOCAB_SIZE, (2, CONTEXT), generator=torch.Generator().manual_seed(0))
    n_real = CONTEXT - 3
    positions = torch.arange(CONTEXT)
    segments = (positions > 4).long().expand(2, -1)
    mask = (positions < n_real).expand(2, -1)
    loaded = saved_and_loaded(model, tmp_path)
    with torch.no_grad():
        alone = model(tokens[:, :n_real], segments=segments[:, :n_real])
        padded = model(tokens, mask, segments)
        again = loaded(tokens, mask, segments)
    assert torch.equal(again.logits, padded.logits)
    close(padded.logits[:, :n_real], alone.logits)
    assert (padded.sentence_logits is None) == (row["sentence_classes"] == 0)
    if padded.sentence_logits is not None:
        assert torch.equal(again.sentence_logits, padded.sentence_logits)
        close(padded.sentence_logits, alone.sentence_logits)


@each_translator_in_time
def test_it_saves_loads_pads_and_decodes_to_the_same_logits(
    row: dict[str, Any], tmp_path: Path
) -> None:
    model = randomised(row)
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(0, VOCAB_SIZE, (2, 7), generator=generator)
    target = torch.randint(0, VOCAB_SIZE, (2, CONTEXT), generator=generator)
    n_source, n_target = 4, CONTEXT - 3
    mask = (torch.arange(7) < n_source).expand(2, -1)
    target_mask = (torch.arange(CONTEXT) < n_target).expand(2, -1)
    loaded = saved_and_loaded(model, tmp_path)
    assert isinstance(loaded, EncoderDecoder)
    cache = Cache(model.config, 2, CONTEXT, torch.float64)
    with torch.no_grad():
        logits = model(source, target=target).logits
        assert torch.equal(loaded(source, target=target).logits, logits)
        memory = loaded.encode(source)
        pieces = [loaded.decode(piece, memory, cache) for piece in in_pieces(target)]
        alone = model(source[:, :n_source], target=target[:, :n_target]).logits
        padded = model(source, target=target, mask=mask, target_mask=target_mask).logits
    close(torch.cat(pieces, dim=1), logits)
    close(padded[:, :n_target], alone)


@each_translator_in_time
def test_a_beam_scores_hypotheses_as_a_forward_pass_does(row: dict[str, Any]) -> None:
    model, rng = randomised(row), np.random.default_rng(0)
    assert isinstance(model, EncoderDecoder)
    sources = [rng.integers(3, VOCAB_SIZE, length) for length in (7, 2, 5)]
    end, pad = 2, 1
    settings = BeamSettings(3, max_length_offset=4)
    # Fewer at a time than there are, so that the third begins where another ends.
    found = dict(search(model, sources, settings, end_id=end, pad_id=pad, sentences=2))
    for number, source in enumerate(sources):
        assert len(found[number]) == 3
        for each in found[number]:
            expected = log_p_of(model, [*source, end], [end, *each.ids, end])
            assert each.log_p == pytest.approx(expected, abs=1e-9)


def log_p_of(model: EncoderDecoder, source: list[int], target: list[int]) -> float:
    """Compute the log probability of a target's tokens, of which the first is given."""
    given, predicted = target[:-1], target[1:]
    with torch.no_grad():
        logits = model(torch.tensor([source]), target=torch.tensor([given])).logits
    log_p = logits[0].log_softmax(-1)
    return float(log_p[range(len(predicted)), predicted].sum())


@pytest.mark.parametrize("pair", [*WITHOUT_MEANING, *ALSO_WITHOUT_MEANING], ids=str)
def test_a_combination_without_meaning_is_refused_by_both_names(pair: Pair) -> None:
    given = {**REST.get(pair, {}), **dict(pair)}
    recipe = RECIPES[given.get("kind", "decoder")]
    with pytest.raises(ConfigError) as caught:
        load_recipe(recipe, {f"model.{name}": value for name, value in given.items()})
    message = str(caught.value)
    assert all(f"model.{name}" in message for name, _ in pair)
    assert "\n" not in message
