"""Masked tokens and pairs: their cross-entropy, however packed, and scores, whatever the batch."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sublayer.config.load import load_recipe
from sublayer.config.objective import MaskedObjective
from sublayer.data.masked import Example, MaskRule, PairBatches, pack
from sublayer.data.sentence_pairs import PairRule
from sublayer.data.tokenizers.base import ByteTokenizer, CharacterTokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.objective import masked
from sublayer.objective.masked import Masked, PairScore, Scoring, encoder_scores, pair_settings
from sublayer.runs.session import prepare_data
from tests.encoders import encoder_of, with_known_logits
from tests.made import MASKED
from tests.packed_rows import masked_rows
from tests.stories import Numbers, numbered

CONTEXT, LENGTHS = 16, [np.random.default_rng(n).integers(1, 7, 40).tolist() for n in range(4)]
SPLIT = numbered(LENGTHS)
VOCAB_SIZE, ALL = SPLIT.tokenizer.vocab_size, Scoring(CONTEXT, 8)
OF_TOKENS = {"loss", "mlm_accuracy", "majority_accuracy", "mlm_tokens"}


def make_batch(n=11, **fields):
    settings = settings_of(**{"mask_share": 0.3, **fields})
    return PairBatches(SPLIT, settings, context=CONTEXT, batch_sequences=n, seed=3).batch(0)


def objective_of(**fields):
    return MaskedObjective.model_validate({"sentence": "sop", **fields})


def make_objective(encoder=None, **fields):
    return Masked(encoder or encoder_of(VOCAB_SIZE, CONTEXT), objective_of(**fields))


def loss_of(objective, batch, size):
    """Accumulate the loss of a batch in micro-batches of so many rows, as training does."""
    parts = [batch[start : start + size] for start in range(0, len(batch), size)]
    counts, loss = [objective.counts(part) for part in parts], 0.0
    for part in parts:
        for term, total in objective(part).items():
            share = objective.weights[term] * total / sum(count[term] for count in counts)
            share.backward(retain_graph=True)
            loss += share.item()
    return loss


def gradients(objective):
    found = {n: each.grad for n, each in objective.named_parameters() if each.grad is not None}
    objective.zero_grad(set_to_none=True)
    return found


def test_by_hand_the_terms_of_known_logits():
    # Shares of 1, 2, 3 and 4 tenths. Pairs: of 1 and 3 quarters.
    logits = ([math.log(n) for n in (1, 2, 3, 4)], [0.0, math.log(3)])
    encoder = with_known_logits(encoder_of(4, CONTEXT, head="linear"), *logits)
    ids, segments = np.array([1, 2, 3, 0, 1]), np.array([0, 0, 0, 1, 1])
    hidden = (([1, 3], [3, 0], 1), ([4], [2], 0), ([2], [1], -1))
    examples = [Example(ids, segments, np.array(at), np.array(was), label)
                for at, was, label in hidden]  # fmt: skip
    batch = pack(examples, width=CONTEXT, pad_id=0)
    objective = make_objective(encoder, sentence_weight=0.5)
    assert objective.counts(batch) == {"mlm": 4, "sentence": 2}
    totals = {term: total.item() for term, total in objective(batch).items()}
    mlm, sentence = -math.log(0.4 * 0.1 * 0.3 * 0.2), -math.log(0.75 * 0.25)
    assert totals == pytest.approx({"mlm": mlm, "sentence": sentence}, rel=1e-12)
    assert loss_of(objective, batch, 9) == pytest.approx(mlm / 4 + 0.5 * sentence / 2, rel=1e-12)


@torch.no_grad()
def test_logits_at_hidden_places_are_those_of_the_full_forward_pass():
    encoder, batch = encoder_of(VOCAB_SIZE, CONTEXT), make_batch()
    nats = sentence = torch.zeros((), dtype=torch.float64)
    for ids, segments, places, targets, (label,) in masked_rows(batch):
        output = encoder(torch.tensor([ids]), segments=torch.tensor([segments]))
        logits, wanted = output.logits[0, list(places)], torch.tensor(targets)
        nats = nats + F.cross_entropy(logits, wanted, reduction="sum")
        if label >= 0:
            sentence = sentence - output.sentence_logits[0].log_softmax(-1)[label]
    found, expected = make_objective(encoder)(batch), {"mlm": nats, "sentence": sentence}
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_one_logistic_output_is_the_difference_of_two():
    logits = torch.tensor([0.3, -2.0, 40.0, 0.0, -40.0], dtype=torch.float64)
    labels = torch.tensor([1, 0, 1, -1, 1])
    two = torch.stack([torch.zeros_like(logits), logits], dim=1)
    # -log sigmoid(0.3), -log sigmoid(2), nothing, nothing, 40.
    by_hand = math.log1p(math.exp(-0.3)) + math.log1p(math.exp(-2.0)) + 40.0
    for outputs in (logits[:, None], two):
        assert masked.sentence_nats(outputs, labels).item() == pytest.approx(by_hand, rel=1e-12)
        assert masked.predicts_negative(outputs).tolist() == [True, False, True, False, False]
    two.requires_grad_()
    masked.sentence_nats(two, labels).backward()
    assert (two.grad != 0).any(1).tolist() == [1, 1, 1, 0, 1]
    assert masked.sentence_nats(two, torch.full((5,), -1)).item() == 0.0


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
    batch, model, found = make_batch(), encoder_of(VOCAB_SIZE, CONTEXT), []
    for fields in ({"sentence_trains": "head"}, {"sentence": "none"}, {}):
        objective = make_objective(model, **fields)
        loss_of(objective, batch, len(batch))
        found.append(gradients(objective))
    probed, without, trained = found
    only = probed.keys() - without.keys()
    assert only and all(re.search(r"\.heads\.|sentence|pooler", name) for name in only)
    assert all(torch.equal(probed[name], without[name]) for name in without)
    assert not all(torch.equal(trained[name], without[name]) for name in without)


def test_a_batch_without_hidden_tokens_costs_nothing():
    empty = np.array([], dtype=np.int64)
    example = Example(np.array([2, 3]), np.zeros(2, dtype=np.int64), empty, empty, -1)
    objective, batch = make_objective(), pack([example], width=CONTEXT, pad_id=0)
    assert objective.counts(batch) == {"mlm": 0, "sentence": 0}
    totals = objective(batch)
    sum(totals.values(), torch.zeros(())).backward()
    assert [total.item() for total in totals.values()] == [0.0, 0.0]
    assert all(value.grad is None or not value.grad.any() for value in objective.parameters())


def test_every_field_is_handed_on():
    masks = {"masking": "ngram", "mask_share": 0.2, "mask_base": "maskable", "max_predictions": 20}
    masks |= {"max_ngram": 4, "ngram_favours": "long", "p_mask": 0.7, "p_random": 0.2}
    pairs = {"sentence": "nsp", "p_short": 0.3, "short_per": "document"}
    pairs |= {"predict_first": True, "static_copies": 40, "single_sentence": "negative"}
    settings = pair_settings(MaskedObjective(**masks, **pairs), Numbers(9), context=64)
    assert settings.pairs == PairRule("nsp", 64, 0.3, "document", "negative")
    assert settings.masks == MaskRule("ngram", 0.2, 20, 4, "long", 0.7, 0.2, "maskable", True)
    assert (settings.static_copies, settings.unit) == (40, "chunks")
    sentences = MaskedObjective(pairs="sentences")
    assert pair_settings(sentences, Numbers(9), context=64).unit == "sentences"


@pytest.mark.parametrize("fields, low, spared", [
    ({"random_ids": "all"}, 0, 5), ({"spared_ids": 2}, 5, 7),
])  # fmt: skip
def test_special_and_spared_ids_are_never_hidden(fields, low, spared):
    objective = MaskedObjective.model_validate(fields)
    vocabulary = pair_settings(objective, Numbers(9), context=64).vocabulary
    assert np.flatnonzero(vocabulary.is_maskable).tolist() == list(range(spared, 14))
    found = vocabulary.random_low, vocabulary.mask_id, len(vocabulary.is_maskable)
    assert found == (low, Numbers.mask_id, 14)


def test_tokenizers_without_words_or_special_ids_are_refused():
    with pytest.raises(ConfigError, match=r"objective\.masking = ngram needs a tokenizer"):
        pair_settings(MaskedObjective(masking="ngram"), ByteTokenizer(), context=64)
    with pytest.raises(ConfigError, match=r"kind characters, has no \[PAD\], no \[CLS\]"):
        pair_settings(MaskedObjective(), CharacterTokenizer("one tw"), context=64)


def settings_of(split=SPLIT, **fields):
    return pair_settings(objective_of(**fields), split.tokenizer, context=CONTEXT)


def encoder_for(split=SPLIT, **fields):
    return encoder_of(split.tokenizer.vocab_size, CONTEXT, **fields)


def decided(split, sentence_logits):
    """An encoder that names one token everywhere, and says one thing of all pairs."""
    logits = [float(id_ == Numbers.first) for id_ in range(split.tokenizer.vocab_size)]
    encoder = encoder_for(split, head="linear", sentence_classes=len(sentence_logits))
    return with_known_logits(encoder, logits, sentence_logits)


def pass_of(split, settings):
    batches = PairBatches(split, settings, context=CONTEXT, batch_sequences=1, seed=masked.SEED)
    return batches.examples(range(batches.n_in_passes(1)))


def labels_of(split, task):
    """The labels of a pass of pairs, those of a text of one document from anywhere in it."""
    settings = settings_of(split)
    rule = replace(settings.pairs, task=task, alone="drop", negatives="anywhere")
    labels = pass_of(split, replace(settings, pairs=rule)).labels.tolist()
    return [label for label in labels if label >= 0]


@pytest.mark.parametrize("task, sentence_logits", [("nsp", [0.0, 0.5]), ("sop", [0.5])])
def test_who_always_says_apart_is_right_about_the_pairs_that_are(task, sentence_logits):
    labels = labels_of(SPLIT, task)
    found, negated = (
        masked.score_pairs(decided(SPLIT, [sign * each for each in sentence_logits]), SPLIT,
                    settings_of(), ALL, task) for sign in (1, -1)
    )  # fmt: skip
    n, n_apart = len(labels), sum(labels)
    assert (found, negated) == (PairScore(n, n_apart, n), PairScore(n, n - n_apart, n))
    assert 0.35 < found.accuracy < 0.65


def test_an_encoder_that_is_trained_on_one_task_is_judged_by_both():
    tasks = ("sop", "nsp", "none")
    found = [encoder_scores(encoder_for(), SPLIT, objective_of(sentence=t), ALL) for t in tasks]
    assert found[0]["nsp_accuracy"] == found[1]["nsp_accuracy"] == found[2]["nsp_accuracy"]
    low, high = found[0]["sop_interval"]
    assert low < found[0]["sop_accuracy"] < high
    headless = encoder_for(pooler="none", sentence_classes=0)
    scores = encoder_scores(headless, SPLIT, objective_of(sentence="none"), ALL)
    assert scores.keys() == OF_TOKENS < found[0].keys()
    split, negative = numbered([LENGTHS[0] * 3]), objective_of(single_sentence="negative")
    labels = labels_of(split, "nsp")
    scores = encoder_scores(decided(split, [0.0, 1.0]), split, negative, ALL)
    assert (scores["nsp_pairs"], set(labels)) == (len(labels), {0, 1})
    assert scores["nsp_accuracy"] == pytest.approx(sum(labels) / len(labels), rel=1e-12)


@pytest.mark.parametrize("lengths", [
    [[3], [5], [4]], [[40, 30], [50, 20, 60]],
], ids=["a sentence a document", "sentences longer than the context"])  # fmt: skip
def test_a_text_without_pairs_is_scored_by_its_tokens_alone(lengths):
    split = numbered(lengths)
    scores = encoder_scores(encoder_for(split), split, objective_of(p_short=0.0), ALL)
    assert scores.keys() == OF_TOKENS
    targets = pass_of(split, settings_of(split, p_short=0.0)).predicted_ids
    assert scores["mlm_tokens"] == len(targets) > 0


# Published tables and, at the ends, z^2 / (n + z^2).
@pytest.mark.parametrize("n_correct, low, high", [(8, 0.4902, 0.9433), (0, 0.0, 0.2775)])
def test_the_interval_is_wilsons(n_correct, low, high):
    found = PairScore(10, n_correct, 10).interval
    assert found == pytest.approx((low, high), abs=5e-5)
    # Its ends p solve (p - accuracy)^2 = z^2 p (1 - p) / n.
    for p in found:
        gap = (p - n_correct / 10) ** 2 - 1.959963984540054**2 * p * (1 - p) / 10
        assert abs(gap) < 1e-14 and 0.0 <= p <= 1.0
    pairs = PairScore(0, 0, 0)
    assert all(map(math.isnan, (pairs.accuracy, *pairs.interval)))


def test_one_document_to_train_on_is_refused_before_a_tokenizer_is_trained(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "books").mkdir()
    for number in range(3):
        (tmp_path / "books" / f"{number}.txt").write_text(f"a book {number}\nof lines\n" * 50)
    books = {**MASKED, "objective.sentence": "nsp", "data.path": str(tmp_path / "books")}
    recipe = load_recipe("gpt", {**books, "data.split": "90/5/5", "train.steps": 2}).recipe
    with pytest.raises(DataError, match="training split has 1 of the text's 3"):
        prepare_data(recipe)
    assert not (tmp_path / "cache" / "tokenizers").exists()
