"""Masked tokens and pairs cost their cross-entropy, however examples are packed."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.masked import MaskedObjective
from sublayer.config.resolve_train import resolve_train
from sublayer.data.batches import Batches, Windows
from sublayer.data.masked.batches import PairBatches
from sublayer.data.masked.masking import MaskRule
from sublayer.data.masked.packing import Example, pack
from sublayer.data.masked.segments import PairRule
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.split import Split
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from sublayer.errors import ConfigError
from sublayer.model.encoder import Encoder
from sublayer.objective.families import family_of
from sublayer.objective.masked.batches import pair_settings
from sublayer.objective.masked.loss import Masked, predicts_negative, sentence_nats, states_at
from tests.breadth import rows
from tests.encoders import encoder_of, with_known_logits
from tests.packed_rows import masked_rows
from tests.stories import Numbers, numbered

CONTEXT = 16
LENGTHS = [np.random.default_rng(n).integers(1, 7, 12).tolist() for n in range(4)]
SPLIT = numbered(LENGTHS)
VOCAB_SIZE = SPLIT.tokenizer.vocab_size


def make_batch(n: int = 11, **fields: Any) -> PackedBatch:
    objective = MaskedObjective.model_validate({"sentence": "sop", "mask_share": 0.3, **fields})
    settings = pair_settings(objective, SPLIT.tokenizer, context=CONTEXT)
    return PairBatches(SPLIT, settings, context=CONTEXT, batch_sequences=n, seed=3).batch(0)


def make_objective(encoder: Encoder | None = None, **fields: Any) -> Masked:
    config = MaskedObjective.model_validate({"sentence": "sop", **fields})
    return Masked(encoder or encoder_of(VOCAB_SIZE, CONTEXT), config)


def loss_of(objective: Masked, batch: PackedBatch, size: int) -> Tensor:
    """Accumulate the loss of a batch in micro-batches of so many rows, as training does."""
    parts = [batch[start : start + size] for start in range(0, len(batch), size)]
    counts = [objective.counts(part) for part in parts]
    loss = torch.zeros((), dtype=torch.float64)
    for part in parts:
        for term, total in objective(part).items():
            share = objective.weights[term] * total / sum(count[term] for count in counts)
            share.backward(retain_graph=True)
            loss += share.detach()
    return loss


def gradients(objective: Masked) -> dict[str, Tensor]:
    found = {
        name: value.grad for name, value in objective.named_parameters() if value.grad is not None
    }
    objective.zero_grad(set_to_none=True)
    return found


def test_by_hand_the_terms_of_known_logits() -> None:
    # Logits 0, log 2, log 3, log 4: shares of 1, 2, 3 and 4 tenths. Pairs: shares of 1 and 3
    # quarters.
    encoder = with_known_logits(
        encoder_of(4, CONTEXT, head="linear"),
        [0.0, math.log(2), math.log(3), math.log(4)],
        [0.0, math.log(3)],
    )
    ids, segments = np.array([1, 2, 3, 0, 1]), np.array([0, 0, 0, 1, 1])
    batch = pack(
        [
            Example(ids, segments, np.array([1, 3]), np.array([3, 0]), 1),
            Example(ids, segments, np.array([4]), np.array([2]), 0),
            Example(ids, segments, np.array([2]), np.array([1]), -1),
        ],
        width=CONTEXT,
        pad_id=0,
    )
    objective = make_objective(encoder, sentence_weight=0.5)
    assert objective.counts(batch) == {"mlm": 4, "sentence": 2}
    totals = objective(batch)
    assert totals["mlm"].item() == pytest.approx(-math.log(0.4 * 0.1 * 0.3 * 0.2), rel=1e-12)
    assert totals["sentence"].item() == pytest.approx(-math.log(0.75 * 0.25), rel=1e-12)
    assert loss_of(objective, batch, 9).item() == pytest.approx(
        -math.log(0.4 * 0.1 * 0.3 * 0.2) / 4 - 0.5 * math.log(0.75 * 0.25) / 2, rel=1e-12
    )


def test_the_sentence_term_is_there_where_it_is_asked_for() -> None:
    assert dict(make_objective(sentence="nsp", sentence_weight=0.25).weights) == {
        "mlm": 1.0,
        "sentence": 0.25,
    }
    alone = make_objective(sentence="none")
    batch = make_batch(sentence="none")
    assert dict(alone.weights) == {"mlm": 1.0}
    assert alone.counts(batch) == {"mlm": len(batch.predicted_ids)}
    assert alone(batch).keys() == {"mlm"}
    assert alone.training_only() == {}


def test_z_loss_of_hidden_tokens_is_trained_and_not_reported() -> None:
    plain, objective = make_objective(), make_objective(z_loss=0.2)
    objective.load_state_dict(plain.state_dict())
    batch = make_batch()
    assert dict(objective.weights) == {"trained": 1.0, "mlm": 0.0, "sentence": 1.0}
    assert objective.counts(batch)["trained"] == plain.counts(batch)["mlm"]
    encoder = objective.model
    states = states_at(encoder, batch).masked
    matrix, bias = encoder.output_projection()
    log_z = F.linear(encoder.to_embedding(states), matrix, bias).logsumexp(-1)
    totals, expected = objective(batch), plain(batch)
    assert totals["mlm"].item() == expected["mlm"].item()
    assert totals["sentence"].item() == expected["sentence"].item()
    z_loss = 0.2 * log_z.square().sum().item()
    assert totals["trained"].item() == pytest.approx(expected["mlm"].item() + z_loss, rel=1e-10)


@pytest.mark.parametrize(
    ("positions", "fields"),
    [
        (positions, {"norm_order": "post", "embedding_norm": True} if number % 2 else {})
        for number, positions in enumerate(rows(POSITIONS, 4))
    ],
    ids=str,
)
def test_packed_examples_have_the_states_that_they_have_alone(
    positions: str, fields: dict[str, Any]
) -> None:
    encoder = encoder_of(VOCAB_SIZE, CONTEXT, positions=positions, **fields)
    batch = make_batch(21, p_short=0.8)
    assert batch.read.mask is not None and batch.read.document_ids is not None
    alone = [
        pack([Example(*map(np.array, row[:4]), row[4][0])], width=CONTEXT, pad_id=0)
        for row in masked_rows(batch)
    ]
    with torch.no_grad():
        together = states_at(encoder, batch)
        apart = [states_at(encoder, each) for each in alone]
    for name in ("masked", "cls"):
        expected = torch.cat([getattr(each, name) for each in apart])
        torch.testing.assert_close(getattr(together, name), expected, rtol=0, atol=1e-9)
    assert all(each.read.mask is None and each.read.document_ids is None for each in alone)


def test_logits_at_hidden_places_are_those_of_the_full_forward_pass() -> None:
    encoder, batch = encoder_of(VOCAB_SIZE, CONTEXT), make_batch()
    nats, sentence = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        for ids, segments, places, targets, (label,) in masked_rows(batch):
            output = encoder(torch.tensor([ids]), segments=torch.tensor([segments]))
            nats += F.cross_entropy(
                output.logits[0, list(places)], torch.tensor(targets), reduction="sum"
            )
            assert output.sentence_logits is not None
            sentence += -output.sentence_logits[0].log_softmax(-1)[label] if label >= 0 else 0.0
        totals = make_objective(encoder)(batch)
    torch.testing.assert_close(totals["mlm"], nats, rtol=1e-12, atol=0)
    torch.testing.assert_close(totals["sentence"], sentence, rtol=1e-12, atol=0)


def test_one_logistic_output_is_the_difference_of_two() -> None:
    logits = torch.tensor([0.3, -2.0, 40.0, 0.0, -40.0], dtype=torch.float64)
    labels = torch.tensor([1, 0, 1, -1, 1])
    two = torch.stack([torch.zeros_like(logits), logits], dim=1)
    one = logits[:, None]
    # -log sigmoid(0.3), -log sigmoid(2), nothing, nothing, 40.
    by_hand = math.log1p(math.exp(-0.3)) + math.log1p(math.exp(-2.0)) + 40.0
    assert sentence_nats(one, labels).item() == pytest.approx(by_hand, rel=1e-12)
    torch.testing.assert_close(
        sentence_nats(two, labels), sentence_nats(one, labels), rtol=1e-12, atol=0
    )
    assert (
        predicts_negative(one).tolist()
        == predicts_negative(two).tolist()
        == [True, False, True, False, False]
    )


def test_a_pair_without_a_label_does_not_count() -> None:
    logits = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    sentence_nats(logits, torch.tensor([-1, 1, -1, 0])).backward()
    assert logits.grad is not None
    assert (logits.grad != 0).any(1).tolist() == [False, True, False, True]
    assert sentence_nats(logits, torch.full((4,), -1)).item() == 0.0


def test_a_head_that_is_not_trained_has_no_gradient() -> None:
    objective, batch = make_objective(sentence="none"), make_batch(sentence="none")
    assert objective.has_unused_parameters
    loss_of(objective, batch, len(batch))
    without = dict(objective.named_parameters()).keys() - gradients(objective).keys()
    assert {name.split(".")[1] for name in without} == {"pooler", "sentence_head"}
    assert not make_objective(sentence="nsp").has_unused_parameters
    headless = encoder_of(VOCAB_SIZE, CONTEXT, pooler="none", sentence_classes=0)
    assert not make_objective(headless, sentence="none").has_unused_parameters


def test_a_probe_trains_its_head_and_leaves_the_model_as_without_it() -> None:
    batch = make_batch()
    probed = make_objective(sentence_trains="head")
    alone = make_objective(probed.model, sentence="none")
    loss_of(probed, batch, len(batch))
    with_probe = gradients(probed)
    loss_of(alone, batch, len(batch))
    without = gradients(alone)
    only = with_probe.keys() - without.keys()
    assert only
    assert all(".heads." in name or "sentence" in name or "pooler" in name for name in only)
    for name, gradient in without.items():
        assert torch.equal(with_probe[name], gradient), name
    trained = make_objective(probed.model)
    loss_of(trained, batch, len(batch))
    changed = gradients(trained)
    assert any(not torch.equal(changed[name], without[name]) for name in without)


def test_a_batch_without_hidden_tokens_costs_nothing() -> None:
    empty = np.array([], dtype=np.int64)
    batch = pack(
        [Example(np.array([2, 3]), np.zeros(2, dtype=np.int64), empty, empty, -1)],
        width=CONTEXT,
        pad_id=0,
    )
    objective = make_objective()
    assert objective.counts(batch) == {"mlm": 0, "sentence": 0}
    totals = objective(batch)
    sum(totals.values(), torch.zeros(())).backward()
    assert [total.item() for total in totals.values()] == [0.0, 0.0]
    assert all(value.grad is None or not value.grad.any() for value in objective.parameters())


FEW = numbered([[4, 5, 6, 3, 2], [3, 7, 2, 6]])


def batches_of(name: str, split: Split, **settings: Any) -> Batches:
    given = {"train.steps": 3, "train.batch_sequences": 2, "data.context": 16, "train.seed": 5}
    given |= settings
    recipe = load_recipe(name, given).recipe
    train = resolve_train(recipe, steps=3, valid_tokens=None, is_gpu=False, threads=1)
    return family_of(recipe.objective).batches(recipe.model_copy(update={"train": train}), split)


def test_each_kind_of_objective_has_its_batches() -> None:
    masked = batches_of("albert-small", FEW, **{"data.vocab_size": FEW.tokenizer.vocab_size})
    assert isinstance(masked, PairBatches)
    assert (masked.context, masked.batch_sequences) == (16, 2)
    settings = pair_settings(
        MaskedObjective(masking="ngram", sentence="sop"), FEW.tokenizer, context=16
    )
    same = PairBatches(FEW, settings, context=16, batch_sequences=2, seed=5).batch(4)
    assert same.read.tokens.tolist() == masked.batch(4).read.tokens.tolist()
    assert isinstance(batches_of("gpt", FEW), Windows)


def test_every_field_is_handed_on() -> None:
    objective = MaskedObjective(
        masking="ngram",
        mask_share=0.2,
        mask_base="maskable",
        max_predictions=20,
        max_ngram=4,
        ngram_favours="long",
        p_mask=0.7,
        p_random=0.2,
        predict_first=True,
        static_copies=40,
        sentence="nsp",
        p_short=0.3,
        short_per="document",
        single_sentence="negative",
    )
    settings = pair_settings(objective, Numbers(9), context=64)
    assert settings.pairs == PairRule("nsp", 64, 0.3, "document", "negative")
    assert settings.masks == MaskRule("ngram", 0.2, 20, 4, "long", 0.7, 0.2, "maskable", True)
    assert settings.static_copies == 40
    assert settings.unit == "chunks"
    assert (
        pair_settings(MaskedObjective(pairs="sentences"), Numbers(9), context=64).unit
        == "sentences"
    )


@pytest.mark.parametrize(
    ("fields", "low", "spared"),
    [({}, 5, 5), ({"random_ids": "all"}, 0, 5), ({"spared_ids": 2}, 5, 7)],
    ids=str,
)
def test_special_and_spared_ids_are_never_hidden(
    fields: dict[str, Any], low: int, spared: int
) -> None:
    vocabulary = pair_settings(
        MaskedObjective.model_validate(fields), Numbers(9), context=64
    ).vocabulary
    assert np.flatnonzero(vocabulary.is_maskable).tolist() == list(range(spared, 14))
    assert (vocabulary.random_low, vocabulary.mask_id, vocabulary.vocab_size) == (
        low,
        Numbers.mask_id,
        14,
    )


def test_tokenizers_without_words_or_special_ids_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"objective\.masking = ngram needs a tokenizer"):
        pair_settings(MaskedObjective(masking="ngram"), ByteTokenizer(), context=64)
    with pytest.raises(ConfigError, match=r"kind characters, has no \[PAD\], no \[CLS\]"):
        pair_settings(MaskedObjective(), CharacterTokenizer("one tw"), context=64)
