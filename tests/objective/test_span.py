"""Span corruption: its loss by hand, and scores that are the same for every arm, seed and step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sublayer.config.layering.layers import load_recipe
from sublayer.config.model import ModelConfig
from sublayer.config.objectives.span import SpanObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_model import resolve_model
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.span.batches import ScoredPieces
from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.split_work import ALONE
from sublayer.model.build import build
from sublayer.model.encoder_decoder import EncoderDecoder
from sublayer.objective.families import FAMILIES
from sublayer.objective.span.batches import (
    corruption_rule,
    span_batches,
    span_epoch,
    synthetic_spans,
)
from sublayer.objective.span.evaluation import frequency_loss
from sublayer.objective.span.loss import SpanCorruption
from sublayer.runs.session import prepare_data

VOCAB_SIZE = 60


class Numbers(ByteTokenizer):
    """Ids up to 59, of which the last twenty are sentinels; nothing is encoded."""

    vocab_size = VOCAB_SIZE
    pad_id = 0
    sep_id = 1
    sentinel_ids = tuple(range(59, 39, -1))


def a_split(n_tokens: int = 900) -> Split:
    ids = np.random.default_rng(3).integers(3, 40, size=n_tokens)
    store = TokenStore(
        ids.astype(np.uint16),
        document_starts=np.array([0, 400, 410]),
        source_starts=np.zeros(1, dtype=np.int64),
        n_bytes=n_tokens,
        sha256="0" * 64,
        is_lossless=True,
    )
    return Split("train", store, Numbers(), ("text",))


TINY = {"model.n_layers": 1, "model.d_model": 8, "model.n_heads": 2, "model.d_ff": 16}
TINY |= {"data.context": 32, "data.sentinels": 20, "data.vocab_size": 400, "train.steps": 3}


def a_recipe(**settings: Any) -> Recipe:
    return load_recipe("t5-mini", {**TINY, **settings}).recipe


def a_model(recipe: Recipe) -> EncoderDecoder:
    model = build(resolve_model(recipe.model, vocab_size=VOCAB_SIZE, context=32), seed=1)
    assert isinstance(model, EncoderDecoder)
    return model


def an_objective(**fields: Any) -> SpanCorruption:
    config = ModelConfig(kind="encoder-decoder", n_layers=2, d_model=16, n_heads=2, init_std=0.4)
    model = build(resolve_model(config, vocab_size=VOCAB_SIZE, context=32), seed=1).double()
    return SpanCorruption(model, SpanObjective(**fields))


def a_batch(**settings: Any) -> PackedBatch:
    return span_batches(a_recipe(**settings), a_split()).batch(0)


@pytest.mark.parametrize(("z", "noise"), [(0.3, "spans"), (0.0, "iid")])
def test_the_loss_is_that_of_the_targets_and_z_loss_is_not_reported(z, noise):
    batch = a_batch(**{"objective.noise": noise})
    objective = an_objective(z_loss=z)
    logits = objective.model(batch.read.tokens, batch.read.mask, target=batch.written.tokens).logits
    counted = batch.targets >= 0
    nats = -logits.log_softmax(-1)[counted].gather(1, batch.targets[counted][:, None]).sum()
    totals = objective(batch)
    assert totals["nll"].item() == pytest.approx(nats.item(), rel=1e-10)
    assert objective.counts(batch) == dict.fromkeys(totals, int(counted.sum()))
    if z:
        log_z = logits.logsumexp(-1)[counted]
        expected = nats + z * log_z.square().sum()
        assert totals["trained"].item() == pytest.approx(expected.item(), rel=1e-10)
        assert objective.weights == {"trained": 1.0, "nll": 0.0}


def test_every_arm_seed_and_step_is_scored_on_one_corruption():
    split, plain = a_split(), a_recipe()
    model = a_model(plain)

    def found(**settings: Any) -> tuple[Any, str]:
        score = FAMILIES["span"].score(model, split, a_recipe(**settings), "test", ALONE)
        assert score.items is not None
        return score.scores, score.items.tables["pieces"].digest

    scores, digest = found()
    others: list[dict[str, Any]] = [
        {"train.seed": 5, "train.batch_sequences": 3, "train.steps": 7},
        {"model.ffn": "geglu", "objective.z_loss": 0.5, "optimizer.lr": 0.1},
    ]
    for settings in others:
        assert found(**settings) == (scores, digest)
    assert found(**{"objective.noise_density": 0.3})[1] != digest


def test_a_test_scores_every_token_that_was_cut_out_of_the_whole_text():
    recipe = a_recipe()
    found = FAMILIES["span"].score(a_model(recipe), a_split(), recipe, "test", ALONE)
    # 900 tokens are 26 pieces of 34, of which 5 are noise in 2 spans, and one of 16 (2 in 1).
    assert found.scores["tokens"] == 26 * (5 + 2 + 1) + 2 + 1 + 1
    assert found.items is not None
    table = found.items.tables["pieces"]
    assert table.n_items == 27
    assert found.scores["loss"] == pytest.approx(table.columns["nats"].sum() / 212, rel=1e-12)
    along = a_recipe(**{"train.evaluate_tokens": 3 * 34 + 5})
    sample = FAMILIES["span"].score(a_model(along), a_split(), along, "training", ALONE)
    pieces = table.columns["nats"][[0, 13, 26]].sum() / table.columns["tokens"][[0, 13, 26]].sum()
    assert sample.scores["loss"] == pytest.approx(pieces, rel=1e-6)


def test_a_constant_prediction_costs_the_entropy_of_the_targets():
    rule = corruption_rule(SpanObjective(), Numbers(), context=32, starts_with_pad=True)
    pieces = ScoredPieces(a_split(), rule, batch_sequences=4, boundaries="ignore")
    labels = [pieces.batch(number).targets.flatten() for number in range(pieces.n_batches)]
    targets = torch.cat(labels)
    targets = targets[targets >= 0]
    shares = targets.bincount().double() / len(targets)
    expected = torch.special.entr(shares).sum().item()
    assert frequency_loss(pieces) == pytest.approx(expected, rel=1e-12)
    # Of 8 tokens one is the first sentinel, one the second, one the end.
    assert shares[[59, 58, 1]].tolist() == pytest.approx([27 / 212, 26 / 212, 27 / 212])


def test_an_epoch_is_counted_by_its_pieces_and_random_batches_are_as_long_as_real_ones():
    recipe = a_recipe()
    assert span_epoch(recipe, a_split()) == 26 * 32
    synthetic = synthetic_spans(recipe, VOCAB_SIZE).batch(0)
    real = span_batches(recipe, a_split()).batch(0)
    assert synthetic.read.tokens.shape == real.read.tokens.shape
    assert synthetic.targets.shape == real.targets.shape


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


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "text.txt"


def write_lines(path: Path, n: int) -> None:
    path.write_text("".join(f"the {i % 7} cats sat on {i % 5} mats.\n" for i in range(n)))


@pytest.mark.parametrize("settings, message", [
    ({}, "fewer than objective.raw_length = 568"),
    ({"objective.noise": "prefix"}, "fewer than objective.raw_length = 512"),
])  # fmt: skip
def test_a_text_shorter_than_a_piece_is_refused_before_a_run_is_begun(settings, message, text):
    write_lines(text, 22)
    given = {"data.path": str(text), "data.context": 512, "data.vocab_size": 140, **settings}
    recipe = load_recipe("t5-mini", {"train.steps": 1, **given}).recipe
    with pytest.raises(DataError, match=message):
        prepare_data(recipe)
