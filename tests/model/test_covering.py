"""Seventy combinations of axes of models: each builds, counts, saves, loads, decodes, learns."""

import random
from collections import Counter, defaultdict
from functools import partial
from itertools import chain, combinations, product

import numpy as np
import pytest
import torch

from sublayer.config.load import load_recipe
from sublayer.config.messages import choices_of
from sublayer.config.model import BLOCKS, POSITIONS, ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.decode.beam import BeamSettings, search
from sublayer.decode.step import PlainStepper, Stepper
from sublayer.errors import ConfigError
from sublayer.model.blocks import FUNCTIONS
from sublayer.model.cache import Cache
from sublayer.model.context import Layout, Rotation, Rotations
from sublayer.model.estimates import count_parameters
from sublayer.model.kernels.products import linear_cross_entropy
from sublayer.model.model_folder import load_weights, save_model
from sublayer.model.parameters import parameter_roles
from sublayer.model.positions import RotaryPositions
from sublayer.model.transformer import Encoder, EncoderDecoder, Lstm, build, compose
from tests.breadth import TRIES_ALL

NAMES = """kind n_decoder_layers decoder_block block ffn gelu norm norm_order parallel_norm
    norm_affine norm_bias final_norm positions sinusoids first_position relative_buckets
    relative_distance share share_groups share_inner d_embed embedding_projection
    project_embeddings embedding_norm segments head softmax head_activation pooler
    sentence_classes tie_embeddings embedding_scale output_scale logit_cap attention_scale
    attention_window window_pattern rotary_local_base position_pattern score_cap sinks n_kv_heads
    qk_norm qk_norm_over qk_norm_place qk_norm_gain bias head_bias dropout dropout_attention
    dropout_ffn dropout_embedding dropout_embedding_of dropout_final init zero_padding
    vocab_multiple
    rotary_fraction rotary_layout residual_scale attention_gate value_residual first_norm"""
HALVES, OTHER = ("ffn*0.5", "attention", "cross", "ffn*0.5"), ("cross*0.5", "ffn:swiglu")
PARALLEL, WITH_CROSS = ("ffn:relu*0.5+attention", "ffn"), ("attention+cross*0.5+ffn",)
OF_BLOCKS = """block norm norm_order parallel_norm norm_affine norm_bias final_norm positions
    share embedding_norm attention_scale attention_window window_pattern rotary_local_base
    position_pattern score_cap sinks n_kv_heads qk_norm qk_norm_over qk_norm_place qk_norm_gain
    dropout_attention dropout_ffn dropout_final
    residual_scale attention_gate value_residual first_norm"""
"""What an LSTM has not."""
VOCAB_SIZE, CONTEXT = 13, 12
RECIPES = {"decoder": "gpt", "encoder": "bert-base", "encoder-decoder": "multi30k-tiny"}
close = partial(torch.testing.assert_close, rtol=0, atol=1e-9)
SCHEMES = ("sinusoidal", "relative", "learned", "rotary")
IN_ATTENTION = ("rotary", "relative", "alibi")


def cover(axes, barred, n_rows):
    """Choose combinations without barred pairs, greedily, the rarest pairs first."""
    counts = Counter(dict.fromkeys(allowed_pairs(axes, barred), 0))
    conflicts, chooser, rows = conflicts_of(barred), random.Random(0), []
    for _ in range(n_rows):
        row = choose_row(axes, conflicts, counts, chooser)
        counts.update(frozenset(pair) for pair in combinations(row.items(), 2))
        rows.append({name: axes[name][number] for name, number in row.items()})
    return rows


def choose_row(axes, conflicts, counts, chooser):
    """Start from a rarest pair; add axes in random order, each with the value of rarest pairs."""
    fewest = min(counts.values())
    rarest = [sorted(pair) for pair, count in counts.items() if count == fewest]
    row = dict(chooser.choice(sorted(rarest)))
    names = [name for name in axes if name not in row]
    chooser.shuffle(names)
    for name in names:
        placed, gains = list(row.items()), {}
        for setting in ((name, number) for number in range(len(axes[name]))):
            is_banned = any(setting in conflicts[each] for each in placed)
            if not is_banned and not leaves_none(axes, conflicts, [*placed, setting]):
                gains[setting] = sum(4.0 ** -counts[frozenset((each, setting))] for each in placed)
        best = max(gains.values())
        row.update([chooser.choice([each for each, gain in gains.items() if gain == best])])
    return {name: row[name] for name in axes}


def allowed_pairs(axes, barred):
    settings = [[(name, number) for number in range(len(values))] for name, values in axes.items()]
    pairs = [map(frozenset, product(one, other)) for one, other in combinations(settings, 2)]
    return [pair for pair in chain(*pairs) if pair not in barred]


def with_implied(axes, forbidden):
    """Add the pairs that leave no value of some third axis, until there are no more of them."""
    barred = set(forbidden)
    while True:
        conflicts, pairs = conflicts_of(barred), allowed_pairs(axes, barred)
        implied = {pair for pair in pairs if leaves_none(axes, conflicts, pair)}
        if not implied:
            return barred
        barred |= implied


def conflicts_of(forbidden):
    found = defaultdict(set)
    for one, other in forbidden:
        found[one].add(other)
        found[other].add(one)
    return found


def leaves_none(axes, conflicts, settings):
    placed = {name for name, _ in settings}
    n_banned = Counter(name for name, _ in set().union(*(conflicts[each] for each in settings)))
    return any(n == len(axes[name]) for name, n in n_banned.items() if name not in placed)


def choices(field):
    """Return the values that a field of ``[model]`` takes, its default first."""
    info = ModelConfig.model_fields[field]
    return (info.default, *(each for each in choices_of(info.annotation) if each != info.default))


VALUES = {
    "n_decoder_layers": (None, 6),
    "decoder_block": (None, HALVES, (*OTHER, "attention", "cross"), WITH_CROSS),
    "block": (*BLOCKS, ("attention", "ffn:relu*0.5", "ffn*2", "attention*0.5"), PARALLEL),
    "first_position": (0, 2), "relative_buckets": (32, 6), "relative_distance": (128, 20),
    "attention_window": ("none", 5), "window_pattern": ("L", "LLG"),
    "position_pattern": ("P", "PN"), "rotary_local_base": ("same", 50.0), "d_embed": (6, 8, 14),
    "pooler": ("none", "tanh", "transform"),
    # Without logits there is nothing to compare.
    "head": tuple(each for each in choices("head") if each != "none"), "dropout": (0.0, 0.1),
    "n_kv_heads": (None, 1), "bias": (True, False, {"query": True, "value": True, "ffn": False}),
    "dropout_ffn": (None, 0.1), "dropout_final": (0.0, 0.2), "vocab_multiple": (1, 5),
    "output_scale": ("none", "sqrt", 2.0), "attention_scale": ("sqrt", "none", 3.0),
    "logit_cap": ("none", 2.0), "score_cap": ("none", 1.5), "rotary_fraction": (1.0, 0.5),
    "embedding_scale": ("none", "sqrt", 3.0), "residual_scale": (1.0, 0.4),
}  # fmt: skip
VALUES |= dict.fromkeys(
    ("norm_affine", "norm_bias", "tie_embeddings", "qk_norm_gain", "first_norm"), (True, False)
)
VALUES |= dict.fromkeys(("head_bias", "sinks", "zero_padding"), (False, True))
VALUES |= dict.fromkeys(("share_groups", "share_inner"), (1, 2))
VALUES |= dict.fromkeys(("dropout_attention", "dropout_embedding"), (None, 0.0, 0.2))
AXES = {name: VALUES.get(name) or choices(name) for name in NAMES.split()}


def each_with(name, values, other, *others):
    """Pair each of an axis's values with each of another's."""
    return [((name, value), (other, each)) for value in values for each in others]


def without(values, *left_out):
    return tuple(each for each in values if each not in left_out)


ONE_STACK, NOT_ENCODERS = (without(AXES["kind"], each) for each in ("encoder-decoder", "encoder"))
NOT_DECODERS = without(AXES["kind"], "decoder")
NOT_SINUSOIDAL, NOT_RELATIVE, NOT_LEARNED, NOT_ROTARY = (
    without(POSITIONS, each) for each in SCHEMES
)
WITHOUT_MEANING = [
    *each_with("norm", ["none"], "norm_order", "post", "around", "after"),
    *each_with("norm", ["none", "dyt"], "norm_affine", False),
    *each_with("norm", ["none", "rms"], "norm_bias", False),
    *each_with("norm", ["dyt"], "final_norm", "plain"),
    *each_with("norm", ["dyt"], "embedding_norm", "plain"),
    *each_with("norm", ["none"], "parallel_norm", "separate"),
    *each_with("norm_order", ["post", "after"], "parallel_norm", "separate"),
    *each_with("norm", ["none"], "first_norm", False),
    *each_with("norm_order", ["post", "after"], "first_norm", False),
    *each_with("share", ["all", "attention", "ffn"], "first_norm", False),
    *each_with("block", without(AXES["block"], "parallel", PARALLEL), "parallel_norm", "separate"),
    *each_with("norm", ["none"], "final_norm", "affine", "plain"),
    *each_with("share", ["none"], "share_groups", 2),
    *each_with("share", ["none"], "share_inner", 2),
    *each_with("norm", ["none"], "embedding_norm", "affine", "plain"),
    *each_with("head", ["linear"], "head_activation", *without(AXES["head_activation"], "ffn")),
    *each_with("kind", NOT_ENCODERS, "segments", *without(AXES["segments"], "none")),
    *each_with("kind", NOT_ENCODERS, "pooler", *AXES["pooler"][1:]),
    *each_with("kind", NOT_ENCODERS, "sentence_classes", 1, 2),
    *each_with("kind", ["decoder", "lstm"], "zero_padding", True),
    *each_with("kind", ["lstm"], "init", "kaiming", "t5"),
    *[(("kind", "lstm"), (name, each)) for name in OF_BLOCKS.split() for each in AXES[name][1:]],
    *each_with("kind", NOT_DECODERS, "softmax", "all"),
    *each_with("positions", NOT_LEARNED, "softmax", "all"),
    *each_with("tie_embeddings", [False], "softmax", "all"),
    *each_with("d_embed", [6, 14], "softmax", "all"),
    *each_with("kind", NOT_DECODERS, "dropout_embedding_of", "matrix"),
    *each_with("positions", NOT_LEARNED, "dropout_embedding_of", "matrix"),
    *each_with("dropout_embedding", [0.0], "dropout_embedding_of", "matrix"),
    *each_with("kind", ONE_STACK, "n_decoder_layers", 6),
    *each_with("kind", ONE_STACK, "decoder_block", *AXES["decoder_block"][1:]),
    *each_with("positions", NOT_SINUSOIDAL, "sinusoids", "fairseq", "marian", "interleaved"),
    *each_with("positions", NOT_SINUSOIDAL, "first_position", 2),
    *each_with("positions", NOT_ROTARY, "rotary_fraction", 0.5),
    *each_with("positions", NOT_ROTARY, "rotary_layout", *AXES["rotary_layout"][1:]),
    *each_with("positions", NOT_RELATIVE, "relative_buckets", 6),
    *each_with("positions", NOT_RELATIVE, "relative_distance", 20),
    *each_with("positions", without(POSITIONS, *IN_ATTENTION), "position_pattern", "PN"),
    *each_with("positions", NOT_ROTARY, "rotary_local_base", 50.0),
    *each_with("attention_window", ["none"], "rotary_local_base", 50.0),
    *each_with("attention_window", ["none"], "window_pattern", "LLG"),
    *each_with("qk_norm", ["none"], "qk_norm_over", "all"),
    *each_with("qk_norm", ["none"], "qk_norm_gain", False),
    *each_with("positions", NOT_ROTARY, "qk_norm_place", "after"),
    *each_with("kind", ["lstm"], "bias", AXES["bias"][2]),
]
"""Pairs of values that contradict each other, or of which one would have no effect."""
BY_OTHERS = [
    *each_with("qk_norm", ["none"], "qk_norm_place", "after"),
    *each_with("qk_norm_gain", [False], "qk_norm_place", "after"),
]
"""Pairs that are refused with other fields at their defaults, by these."""
NUMBERED = [
    {(name, AXES[name].index(each)) for name, each in pair} for pair in WITHOUT_MEANING + BY_OTHERS
]
FORBIDDEN = with_implied(AXES, map(frozenset, NUMBERED))
ROWS = cover(AXES, FORBIDDEN, 200)
PART = ROWS if TRIES_ALL else ROWS[:70]
"""The design is greedy: its first rows have more pairs of values than any others of its rows."""


def pairs_in(rows):
    met = set()
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


def draw_tokens(length):
    return torch.randint(VOCAB_SIZE, (2, length), generator=torch.Generator().manual_seed(0))


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
    step = (PlainStepper if isinstance(loaded, Lstm) else Stepper)(loaded, 2)
    found = [loaded.last_logits(tokens[:, :1], cache)]
    found += [step(tokens[:, place], cache) for place in range(1, CONTEXT)]
    close(torch.stack(found, dim=1), logits[..., : found[0].shape[1]])


def check_encoder(model, loaded):
    """Padding changes no logits of tokens or of sentences."""
    tokens, n_real = draw_tokens(CONTEXT), CONTEXT - 3
    positions = torch.arange(CONTEXT).expand(2, -1)
    segments, mask = (positions > 4).long(), positions < n_real
    alone = model(tokens[:, :n_real], segments=segments[:, :n_real])
    padded, again = model(tokens, mask, segments), loaded(tokens, mask, segments)
    assert torch.equal(again.logits, padded.logits)
    close(padded.logits[:, :n_real], alone.logits)
    if model.config.sentence_classes:
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


CHECKS = {"decoder": check_decoder, "lstm": check_decoder, "encoder": check_encoder}
CHECKS |= {"encoder-decoder": check_translator}


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
    positions = torch.arange(tokens.shape[1])
    is_hidden, segments = positions % 3 == 1, (positions > 5).long().expand_as(tokens)
    inputs = tokens.masked_fill(is_hidden, VOCAB_SIZE - 1)
    hidden = model.hidden(inputs, Layout.bidirectional(inputs), segments=segments).final
    loss = token_loss_of(model, hidden[:, is_hidden], tokens[:, is_hidden])
    if model.sentence_head is None:
        # No matter what a vector of the text is for.
        return loss + model.pool(hidden[:, 0]).square().mean()
    judged = model.sentence_logits(hidden[:, 0])[:, -1]
    return loss + (judged - torch.tensor([0, 1, 0])).square().mean()


def token_loss_of(model, hidden, targets):
    matrix, bias, cap = model.output_projection()
    embedded = model.to_embedding(hidden).flatten(0, 1)
    nats = linear_cross_entropy(embedded, matrix, bias, targets.flatten(), cap=cap)
    return nats / targets.numel()


def check_learning(model, row):
    # Of so few units four layers of an LSTM leave next to nothing at a standard deviation of 0.02;
    # without norms products of products leave the range.
    if row["kind"] == "lstm":
        factor = 1.0 if row["init"] == "xavier" else 20.0
    elif row["norm"] == "none" and row["head_activation"] == "relu2" and row["init"] == "truncated":
        factor = 10.0  # squares of small states are lost in rounding
    else:
        factor = 0.3 if row["norm"] == "none" or row["init"] == "kaiming" else 1.0
    for parameter in model.parameters():
        parameter.data.mul_(factor)
    tokens = torch.arange(11).repeat(3, 1)
    before = loss_of(model.eval(), tokens).item()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    torch.manual_seed(0)
    # Most learn within a few steps; the loss of some rises before it falls.
    for _ in range(8):
        model.train()
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(model, tokens).backward()
            optimizer.step()
        after = loss_of(model.eval(), tokens).item()
        if after < before:
            break
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert after < before


@pytest.mark.parametrize("row", PART, ids=range(len(PART)))
def test_it_builds_counts_saves_loads_decodes_and_learns(row, tmp_path):
    config = ModelConfig(n_layers=4, d_model=8, n_heads=2, d_ff=6, **row)
    model = build(resolve_model(config, vocab_size=VOCAB_SIZE, context=CONTEXT), seed=0)
    check_counts(model)
    check_learning(model, row)
    # Biases and gains too, so that every term matters.
    model, generator = model.double().eval(), torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.2, generator=generator)
    save_model(tmp_path / "model", model, {})
    config, tensors = load_weights(tmp_path / "model")
    loaded = compose(config).double().eval()
    loaded.load_state_dict(tensors)
    with torch.no_grad():
        CHECKS[row["kind"]](model, loaded)


def small_model(kind, **fields):
    sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_ff": 6, "init_std": 0.4}
    config = ModelConfig(kind=kind, **sizes, **fields)
    model = build(resolve_model(config, vocab_size=VOCAB_SIZE, context=CONTEXT), seed=0)
    return model.double().eval()


@pytest.mark.parametrize("kind", RECIPES)
@torch.no_grad()
def test_any_function_of_each_token_decodes(kind, monkeypatch):
    class Sine(torch.nn.Module):
        def __init__(self, config, entry):
            super().__init__()

        def forward(self, x, context):
            return x.sin()

    monkeypatch.setitem(FUNCTIONS, "ffn", Sine)
    model = small_model(kind)
    CHECKS[kind](model, model)


@pytest.mark.parametrize("kind", RECIPES)
@torch.no_grad()
def test_queries_and_keys_may_turn_each_in_its_way(kind, monkeypatch):
    model, tokens = small_model(kind, positions="rotary"), draw_tokens(CONTEXT)
    given = {"target": tokens} if kind == "encoder-decoder" else {}
    alike, plain = model(tokens, **given).logits, RotaryPositions.rotations

    def decaying(self, positions, dtype):
        """As xPos, whose scores fall with the distance: Sun et al. 2022 (2212.10554), sec. 2.2."""
        turn = plain(self, positions, dtype).queries
        # By head where each row has positions of its own.
        decay = (0.9 ** positions.to(dtype))[..., None]
        decay = decay if decay.dim() == 2 else decay[:, None]
        queries, keys = (Rotation(turn.cos * f, turn.sin * f) for f in (decay, 1 / decay))
        return Rotations(queries, keys)

    monkeypatch.setattr(RotaryPositions, "rotations", decaying)
    assert not torch.allclose(model(tokens, **given).logits, alike)
    CHECKS[kind](model, model)


# One pair of values for each pair of fields that contradict each other, or all.
REFUSED = list({(one[0], other[0]): (one, other) for one, other in WITHOUT_MEANING}.values())


@pytest.mark.parametrize("pair", WITHOUT_MEANING if TRIES_ALL else REFUSED, ids=str)
def test_a_combination_without_meaning_is_refused_by_both_names(pair):
    given = {f"model.{name}": value for name, value in pair}
    with pytest.raises(ConfigError) as caught:
        load_recipe(RECIPES.get(dict(pair).get("kind", "decoder"), "gpt"), given)
    assert all(name in str(caught.value) for name in given)
