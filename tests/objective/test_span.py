"""Span corruption and translation: losses by hand and as published, scores, beam settings."""

import numpy as np
import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.span import SpanObjective
from sublayer.config.objectives.translation import TranslationObjective
from sublayer.config.resolve_model import resolve_model
from sublayer.data.parallel.batches import TranslationBatches
from sublayer.data.span.batches import ScoredPieces
from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.decode.beam_settings import BeamSettings
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.split_work import ALONE
from sublayer.model.build import build
from sublayer.objective.families import FAMILIES
from sublayer.objective.span.batches import (
    corruption_rule,
    span_batches,
    span_epoch,
    synthetic_spans,
)
from sublayer.objective.span.evaluation import frequency_loss
from sublayer.objective.span.loss import SpanCorruption
from sublayer.objective.translation.evaluation import beam_settings
from sublayer.objective.translation.loss import Translation
from sublayer.runs.session import prepare_data
from tests.data.test_parallel import VOCAB_SIZE as PAIR_IDS
from tests.data.test_parallel import random_split

VOCAB_SIZE = 60


class Numbers(ByteTokenizer):
    """Ids up to 59, of which the last twenty are sentinels; nothing is encoded."""

    vocab_size = VOCAB_SIZE
    pad_id = 0
    sep_id = 1
    sentinel_ids = tuple(range(59, 39, -1))


def a_split(n_tokens=900):
    ids = np.random.default_rng(3).integers(3, 40, size=n_tokens).astype(np.uint16)
    starts = {"document_starts": np.array([0, 400, 410]), "source_starts": np.zeros(1, np.int64)}
    store = TokenStore(ids, **starts, n_bytes=n_tokens, sha256="0" * 64, is_lossless=True)
    return Split("train", store, Numbers(), ("text",))


TINY = {"model.n_layers": 1, "model.d_model": 8, "model.n_heads": 2, "model.d_ff": 16}
TINY |= {"data.context": 32, "data.sentinels": 20, "data.vocab_size": 400, "train.steps": 3}


def a_recipe(**settings):
    return load_recipe("t5-mini", {**TINY, **settings}).recipe


def a_model(recipe):
    return build(resolve_model(recipe.model, vocab_size=VOCAB_SIZE, context=32), seed=1)


@pytest.mark.parametrize("z, noise", [(0.3, "spans"), (0.0, "iid")])
def test_the_loss_is_that_of_the_targets_and_z_loss_is_not_reported(z, noise):
    batch = span_batches(a_recipe(**{"objective.noise": noise}), a_split()).batch(0)
    config = ModelConfig(kind="encoder-decoder", n_layers=2, d_model=16, n_heads=2, init_std=0.4)
    model = build(resolve_model(config, vocab_size=VOCAB_SIZE, context=32), seed=1).double()
    objective = SpanCorruption(model, SpanObjective(z_loss=z))
    logits = model(batch.read.tokens, batch.read.mask, target=batch.written.tokens).logits
    counted = batch.targets >= 0
    nats = -logits.log_softmax(-1)[counted].gather(1, batch.targets[counted][:, None]).sum()
    totals = objective(batch)
    assert totals["nll"].item() == pytest.approx(nats.item(), rel=1e-10)
    assert objective.counts(batch) == dict.fromkeys(totals, int(counted.sum()))
    if z:
        expected = nats + z * logits.logsumexp(-1)[counted].square().sum()
        assert totals["trained"].item() == pytest.approx(expected.item(), rel=1e-10)
        assert objective.weights == {"trained": 1.0, "nll": 0.0}


def test_every_arm_seed_and_step_is_scored_on_one_corruption():
    split, model = a_split(), a_model(a_recipe())

    def found(**settings):
        score = FAMILIES["span"].score(model, split, a_recipe(**settings), "test", ALONE)
        return score.scores, score.items.tables["pieces"].digest

    same = found()
    seed = {"train.seed": 5, "train.batch_sequences": 3, "train.steps": 7}
    arm = {"model.ffn": "geglu", "objective.z_loss": 0.5, "optimizer.lr": 0.1}
    assert found(**seed) == found(**arm) == same
    assert found(**{"objective.noise_density": 0.3})[1] != same[1]


def test_a_test_scores_every_token_that_was_cut_out_of_the_whole_text():
    recipe = a_recipe()
    found = FAMILIES["span"].score(a_model(recipe), a_split(), recipe, "test", ALONE)
    table = found.items.tables["pieces"]
    # 900 tokens are 26 pieces of 34, of which 5 are noise in 2 spans, and one of 16 (2 in 1).
    n_tokens = 26 * (5 + 2 + 1) + 2 + 1 + 1
    assert (found.scores["tokens"], table.n_items) == (n_tokens, 27)
    nats, tokens = table.columns["nats"], table.columns["tokens"]
    assert found.scores["loss"] == pytest.approx(nats.sum() / n_tokens, rel=1e-12)
    along = a_recipe(**{"train.evaluate_tokens": 3 * 34 + 5})
    sample = FAMILIES["span"].score(a_model(along), a_split(), along, "training", ALONE)
    pieces = nats[[0, 13, 26]].sum() / tokens[[0, 13, 26]].sum()
    assert sample.scores["loss"] == pytest.approx(pieces, rel=1e-6)


def test_a_constant_prediction_costs_the_entropy_of_the_targets():
    rule = corruption_rule(SpanObjective(), Numbers(), context=32, starts_with_pad=True)
    pieces = ScoredPieces(a_split(), rule, batch_sequences=4, boundaries="ignore")
    targets = torch.cat([pieces.batch(n).targets.flatten() for n in range(pieces.n_batches)])
    shares = targets[targets >= 0].bincount().double() / (targets >= 0).sum()
    expected = torch.special.entr(shares).sum().item()
    assert frequency_loss(pieces) == pytest.approx(expected, rel=1e-12)
    # Of 8 tokens one is the first sentinel, one the second, one the end.
    assert shares[[59, 58, 1]].tolist() == pytest.approx([27 / 212, 26 / 212, 27 / 212])


def test_an_epoch_is_counted_by_its_pieces_and_random_batches_are_as_long_as_real_ones():
    recipe = a_recipe()
    assert span_epoch(recipe, a_split()) == 26 * 32
    both = synthetic_spans(recipe, VOCAB_SIZE), span_batches(recipe, a_split())
    shapes = [(each.batch(0).read.tokens.shape, each.batch(0).targets.shape) for each in both]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("settings, words", [
    ({"data.sentinels": 1}, "data.sentinels = 1 is fewer than objective.noise = spans takes"),
    ({"objective.raw_length": 40}, "objective.raw_length = 40 .* give at most 34"),
    ({"objective.target_length": 5}, "objective.target_length = 5 .* makes of 34 tokens, 8"),
    ({"data.windows": "random", "data.boundaries": "respect"}, "give shuffled"),
    ({"data.windows": "random", "objective.chunk_tokens": 9}, "objective.chunk_tokens = 9"),
    ({"model.kind": "decoder"}, "objective.kind = span trains a model.kind"),
    ({"objective.noise": "iid", "train.compile": True}, "train.compile = true"),
])  # fmt: skip
def test_contradictions_of_span_corruption_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        a_recipe(**{"data.tokenizer": "unigram", **settings})


def test_a_tokenizer_with_too_few_sentinels_is_refused_by_how_many_it_takes():
    split = a_split()
    split.tokenizer.sentinel_ids = (59,)
    with pytest.raises(ConfigError, match="up to 2 sentinels in pieces of 34 tokens, .* has 1"):
        span_batches(a_recipe(), split)


@pytest.mark.parametrize("noise, length", [("spans", 568), ("prefix", 512)])
def test_a_text_shorter_than_a_piece_is_refused_before_a_run(noise, length, tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    text = "".join(f"the {i % 7} cats sat on {i % 5} mats.\n" for i in range(22))
    (tmp_path / "text.txt").write_text(text)
    given = {"data.path": str(tmp_path / "text.txt"), "data.context": 512, "data.vocab_size": 140}
    given |= {"train.steps": 1, "objective.noise": noise}
    recipe = load_recipe("t5-mini", given).recipe
    with pytest.raises(DataError, match=f"fewer than objective.raw_length = {length}"):
        prepare_data(recipe)


def make_objective(**fields):
    size = {"n_layers": 2, "d_model": 16, "n_heads": 2}
    config = ModelConfig(kind="encoder-decoder", **size, init_std=0.4, head_bias=True)
    model = build(resolve_model(config, vocab_size=PAIR_IDS, context=32), seed=1).double()
    torch.nn.init.normal_(model.head.bias)
    return Translation(model, TranslationObjective(**fields))


def by_hand(objective, batch, share, form):
    logits = objective.model(batch.read.tokens, batch.read.mask, target=batch.written.tokens).logits
    log_p, labels = (each[batch.targets >= 0] for each in (logits.log_softmax(-1), batch.targets))
    spread = torch.full_like(log_p, share / (PAIR_IDS if form == "uniform" else PAIR_IDS - 1))
    chosen = labels[:, None]
    if form == "uniform":
        spread.scatter_add_(1, chosen, torch.full_like(chosen, 1 - share, dtype=log_p.dtype))
    else:
        spread.scatter_(1, chosen, 1 - share)
    assert spread.sum(1) == pytest.approx(np.ones(len(labels)))
    return -(spread * log_p).sum()


@pytest.mark.parametrize("form, share", [("uniform", 0.0), ("uniform", 0.1), ("others", 0.7)])
def test_the_loss_and_its_gradient_are_the_published_ones(form, share):
    batch = TranslationBatches(random_split(30), context=32, batch_tokens=200, seed=1).batch(0)
    objective = make_objective(label_smoothing=share, smoothing=form)
    expected, totals = by_hand(objective, batch, share, form), objective(batch)
    loss = sum(objective.weights[term] * total for term, total in totals.items())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    parameters = list(objective.model.parameters())
    found, wanted = (torch.autograd.grad(each, parameters) for each in (loss, expected))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10)
    # The reported loss is not smoothed.
    plain = by_hand(objective, batch, 0.0, "uniform").item()
    assert totals["nll"].item() == pytest.approx(plain, rel=1e-10)


def test_beam_settings_are_those_of_the_recipe_but_for_options_of_the_command():
    recipe = load_recipe("wmt14-base-transformer").recipe
    assert beam_settings(recipe, {}) == BeamSettings(beam=4, penalty=0.6)
    assert beam_settings(None, {}) == BeamSettings() == BeamSettings(5, "fairseq", 1.0, 0.0, 200.0)
    options = {"beam": 1, "length_penalty": 0.0, "length_rule": "gnmt"}
    given = {**options, "max_length_ratio": 0.0, "max_length_offset": 0.0}
    assert beam_settings(recipe, given) == BeamSettings(1, "gnmt", 0.0, 0.0, 0.0)
    with pytest.raises(ConfigError, match="a length penalty of inf is not a number"):
        beam_settings(None, {"length_penalty": float("inf")})


@pytest.mark.parametrize("setting", ["objective.length_penalty=nan", "objective.length_rule=none"])
def test_values_without_meaning_are_refused_before_a_run(setting):
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        load_recipe("multi30k-tiny", [setting])
