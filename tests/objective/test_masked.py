"""Masked tokens and pairs: their cross-entropy, however packed, and scores, whatever the batch."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.config.objectives.masked import MaskedObjective
from sublayer.data.masked.batches import PairBatches
from sublayer.data.masked.masking import MaskRule
from sublayer.data.masked.packing import Example, pack
from sublayer.data.masked.segments import PairRule
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.split import Split
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from sublayer.errors import ConfigError
from sublayer.model.encoder import Encoder
from sublayer.objective.masked.batches import pair_settings
from sublayer.objective.masked.loss import Masked, predicts_negative, sentence_nats
from sublayer.objective.masked.pair_scores import PairScore, Task, score_pairs
from sublayer.objective.masked.scored_batches import SEED, Scoring
from sublayer.objective.masked.scores import MaskedScore, encoder_scores
from tests.encoders import encoder_of, with_known_logits
from tests.packed_rows import masked_rows
from tests.stories import Numbers, numbered

CONTEXT = 16
LENGTHS = [np.random.default_rng(n).integers(1, 7, 40).tolist() for n in range(4)]
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


def test_by_hand_the_terms_of_known_logits():
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


def test_logits_at_hidden_places_are_those_of_the_full_forward_pass():
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


def test_one_logistic_output_is_the_difference_of_two():
    logits = torch.tensor([0.3, -2.0, 40.0, 0.0, -40.0], dtype=torch.float64)
    labels = torch.tensor([1, 0, 1, -1, 1])
    two = torch.stack([torch.zeros_like(logits), logits], dim=1)
    one = logits[:, None]
    # -log sigmoid(0.3), -log sigmoid(2), nothing, nothing, 40.
    by_hand = math.log1p(math.exp(-0.3)) + math.log1p(math.exp(-2.0)) + 40.0
    for logits_of_pairs in (one, two):
        assert sentence_nats(logits_of_pairs, labels).item() == pytest.approx(by_hand, rel=1e-12)
        apart = predicts_negative(logits_of_pairs).tolist()
        assert apart == [True, False, True, False, False]
    # A pair without a label does not count.
    two.requires_grad_()
    sentence_nats(two, labels).backward()
    assert two.grad is not None and (two.grad != 0).any(1).tolist() == [1, 1, 1, 0, 1]
    assert sentence_nats(two, torch.full((5,), -1)).item() == 0.0


def test_a_head_that_is_not_trained_has_no_gradient():
    objective, batch = make_objective(sentence="none"), make_batch(sentence="none")
    assert objective.has_unused_parameters
    loss_of(objective, batch, len(batch))
    without = dict(objective.named_parameters()).keys() - gradients(objective).keys()
    assert {name.split(".")[1] for name in without} == {"pooler", "sentence_head"}
    assert not make_objective(sentence="nsp").has_unused_parameters
    headless = encoder_of(VOCAB_SIZE, CONTEXT, pooler="none", sentence_classes=0)
    assert not make_objective(headless, sentence="none").has_unused_parameters


def test_a_probe_trains_its_head_and_leaves_the_model_as_without_it():
    batch, model = make_batch(), encoder_of(VOCAB_SIZE, CONTEXT)
    found = []
    for fields in ({"sentence_trains": "head"}, {"sentence": "none"}, {}):
        objective = make_objective(model, **fields)
        loss_of(objective, batch, len(batch))
        found.append(gradients(objective))
    probed, without, trained = found
    only = probed.keys() - without.keys()
    assert only
    assert all(".heads." in name or "sentence" in name or "pooler" in name for name in only)
    assert all(torch.equal(probed[name], without[name]) for name in without)
    assert not all(torch.equal(trained[name], without[name]) for name in without)


def test_a_batch_without_hidden_tokens_costs_nothing():
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


def test_every_field_is_handed_on():
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
    sentences = MaskedObjective(pairs="sentences")
    assert pair_settings(sentences, Numbers(9), context=64).unit == "sentences"


@pytest.mark.parametrize(
    ("fields", "low", "spared"), [({"random_ids": "all"}, 0, 5), ({"spared_ids": 2}, 5, 7)], ids=str
)
def test_special_and_spared_ids_are_never_hidden(fields, low, spared):
    objective = MaskedObjective.model_validate(fields)
    vocabulary = pair_settings(objective, Numbers(9), context=64).vocabulary
    assert np.flatnonzero(vocabulary.is_maskable).tolist() == list(range(spared, 14))
    found = vocabulary.random_low, vocabulary.mask_id, vocabulary.vocab_size
    assert found == (low, Numbers.mask_id, 14)


def test_tokenizers_without_words_or_special_ids_are_refused():
    with pytest.raises(ConfigError, match=r"objective\.masking = ngram needs a tokenizer"):
        pair_settings(MaskedObjective(masking="ngram"), ByteTokenizer(), context=64)
    with pytest.raises(ConfigError, match=r"kind characters, has no \[PAD\], no \[CLS\]"):
        pair_settings(MaskedObjective(), CharacterTokenizer("one tw"), context=64)


ALL = Scoring(CONTEXT, 8)
OF_TOKENS = {"loss", "mlm_accuracy", "majority_accuracy", "mlm_tokens"}


def objective_of(**fields: Any) -> MaskedObjective:
    return MaskedObjective.model_validate({"sentence": "sop", **fields})


def settings_of(split: Split = SPLIT, **fields: Any) -> Any:
    return pair_settings(objective_of(**fields), split.tokenizer, context=CONTEXT)


def encoder_for(split: Split = SPLIT, **fields: Any) -> Encoder:
    return encoder_of(split.tokenizer.vocab_size, CONTEXT, **fields)


def decided(split: Split, sentence_logits: list[float], favourite: int = Numbers.first) -> Encoder:
    """An encoder that names one token everywhere, and says one thing of all pairs."""
    logits = [float(id_ == favourite) for id_ in range(split.tokenizer.vocab_size)]
    encoder = encoder_for(split, head="linear", sentence_classes=len(sentence_logits))
    return with_known_logits(encoder, logits, sentence_logits)


def labels_of(split: Split, task: Task) -> list[int]:
    """The labels of a pass of pairs, those of a text of one document from anywhere in it."""
    settings = settings_of(split)
    rule = replace(settings.pairs, task=task, alone="drop", negatives="anywhere")
    batches = PairBatches(
        split, replace(settings, pairs=rule), context=CONTEXT, batch_sequences=1, seed=SEED
    )
    return [
        label
        for label in batches.examples(range(batches.n_in_passes(1))).labels.tolist()
        if label >= 0
    ]


def targets_of(split: Split, **fields: Any) -> list[int]:
    batches = PairBatches(
        split, settings_of(split, **fields), context=CONTEXT, batch_sequences=1, seed=SEED
    )
    return batches.examples(range(batches.n_in_passes(1))).predicted_ids.tolist()


@pytest.mark.parametrize(("task", "sentence_logits"), [("nsp", [0.0, 0.5]), ("sop", [0.5])])
def test_who_always_says_apart_is_right_about_the_pairs_that_are(task, sentence_logits):
    labels = labels_of(SPLIT, task)
    found = score_pairs(decided(SPLIT, sentence_logits), SPLIT, settings_of(), ALL, task)
    assert found == PairScore(len(labels), sum(labels), len(labels))
    assert 0.35 < found.accuracy < 0.65
    negated = score_pairs(
        decided(SPLIT, [-each for each in sentence_logits]), SPLIT, settings_of(), ALL, task
    )
    assert negated == PairScore(len(labels), len(labels) - sum(labels), len(labels))


def test_an_encoder_that_is_trained_on_one_task_is_judged_by_both():
    found = [
        encoder_scores(encoder_for(), SPLIT, objective_of(sentence=task), ALL)
        for task in ("sop", "nsp", "none")
    ]
    assert found[0]["nsp_accuracy"] == found[1]["nsp_accuracy"] == found[2]["nsp_accuracy"]
    low, high = found[0]["sop_interval"]
    assert low < found[0]["sop_accuracy"] < high
    headless = encoder_for(pooler="none", sentence_classes=0)
    scores = encoder_scores(headless, SPLIT, objective_of(sentence="none"), ALL)
    assert scores.keys() == OF_TOKENS < found[0].keys()
    # Negatives of a single document are from elsewhere in it.
    split = numbered([LENGTHS[0] * 3])
    labels = labels_of(split, "nsp")
    scores = encoder_scores(
        decided(split, [0.0, 1.0]), split, objective_of(single_sentence="negative"), ALL
    )
    assert (scores["nsp_pairs"], set(labels)) == (len(labels), {0, 1})
    assert scores["nsp_accuracy"] == pytest.approx(sum(labels) / len(labels), rel=1e-12)


@pytest.mark.parametrize(
    "lengths",
    [[[3], [5], [4]], [[40, 30], [50, 20, 60]]],
    ids=["a sentence a document", "sentences longer than the context"],
)
def test_a_text_without_pairs_is_scored_by_its_tokens_alone(lengths):
    split = numbered(lengths)
    scores = encoder_scores(encoder_for(split), split, objective_of(p_short=0.0), ALL)
    assert scores.keys() == OF_TOKENS
    assert scores["mlm_tokens"] == len(targets_of(split, p_short=0.0)) > 0


@pytest.mark.parametrize(
    ("n_correct", "n_pairs", "low", "high"),
    # Published tables and, at the ends, z^2 / (n + z^2).
    [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775)],
)
def test_the_interval_is_wilsons(n_correct, n_pairs, low, high):
    found = PairScore(n_pairs, n_correct, n_pairs).interval
    assert found == pytest.approx((low, high), abs=5e-5)
    # Its ends p solve (p - accuracy)^2 = z^2 p (1 - p) / n.
    for p in found:
        gap = (p - n_correct / n_pairs) ** 2 - 1.959963984540054**2 * p * (1 - p) / n_pairs
        assert abs(gap) < 1e-14
    assert 0.0 <= found[0] <= found[1] <= 1.0


def test_nothing_scored_is_not_a_number():
    nothing = MaskedScore(0.0, 0, 0, 0)
    assert all(math.isnan(each) for each in (nothing.loss, nothing.accuracy, nothing.majority))
    pairs = PairScore(0, 0, 0)
    assert all(math.isnan(each) for each in (pairs.accuracy, *pairs.interval))
