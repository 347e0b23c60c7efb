"""Encoders are scored alike whatever the batch, and known answers have known accuracies."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sublayer.config.objectives.masked import MaskedObjective
from sublayer.data.masked.batches import PairBatches
from sublayer.data.split import Split
from sublayer.model.encoder import Encoder
from sublayer.objective.masked.batches import pair_settings
from sublayer.objective.masked.pair_scores import PairScore, Task, score_pairs
from sublayer.objective.masked.scored_batches import SEED, Scoring
from sublayer.objective.masked.scores import MaskedScore, encoder_scores, score_masked
from tests.encoders import encoder_of, with_known_logits
from tests.stories import Numbers, numbered

CONTEXT = 16
LENGTHS = [np.random.default_rng(n).integers(1, 7, 40).tolist() for n in range(4)]
SPLIT = numbered(LENGTHS)
ALL = Scoring(CONTEXT, 8)


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
def test_who_always_says_apart_is_right_about_the_pairs_that_are(
    task: Task, sentence_logits: list[float]
) -> None:
    labels = labels_of(SPLIT, task)
    found = score_pairs(decided(SPLIT, sentence_logits), SPLIT, settings_of(), ALL, task)
    assert found == PairScore(len(labels), sum(labels), len(labels))
    assert 0.35 < found.accuracy < 0.65
    negated = score_pairs(
        decided(SPLIT, [-each for each in sentence_logits]), SPLIT, settings_of(), ALL, task
    )
    assert negated == PairScore(len(labels), len(labels) - sum(labels), len(labels))


def test_who_always_names_one_token_is_right_where_it_was_hidden() -> None:
    # Three tokens by turns: sentences of 1 to 6 of them.
    split = numbered([[3] * 30, [4] * 20])
    split.store.ids[:] = 5 + np.arange(len(split.ids)) % 3
    counts = Counter(targets_of(split))
    for token in (5, 6, 7):
        found = score_masked(
            decided(split, [0.0, 0.0], favourite=token), split, settings_of(split), ALL
        )
        assert found.n_tokens == counts.total()
        assert found.n_correct == counts[token]
        assert found.n_majority == max(counts.values())
        # One token's logit is 1, those of all others are 0.
        partition = math.log(split.tokenizer.vocab_size - 1 + math.e)
        assert found.nats == pytest.approx(counts.total() * partition - counts[token], rel=1e-12)
        assert found.loss == pytest.approx(found.nats / counts.total(), rel=1e-12)


def test_an_encoder_that_is_trained_on_one_task_is_judged_by_both() -> None:
    found = [
        encoder_scores(encoder_for(), SPLIT, objective_of(sentence=task), ALL)
        for task in ("sop", "nsp", "none")
    ]
    names = {
        f"{task}_{what}" for task in ("nsp", "sop") for what in ("accuracy", "pairs", "interval")
    }
    assert all(
        each.keys() == {"loss", "mlm_accuracy", "majority_accuracy", "mlm_tokens"} | names
        for each in found
    )
    assert found[0]["nsp_accuracy"] == found[1]["nsp_accuracy"] == found[2]["nsp_accuracy"]
    for each in found:
        low, high = each["sop_interval"]
        assert low < each["sop_accuracy"] < high
    headless = encoder_for(pooler="none", sentence_classes=0)
    scores = encoder_scores(headless, SPLIT, objective_of(sentence="none"), ALL)
    assert scores.keys() == {"loss", "mlm_accuracy", "majority_accuracy", "mlm_tokens"}


def test_negatives_of_a_single_document_are_from_elsewhere_in_it() -> None:
    fields = {"single_sentence": "negative"}
    split = numbered([LENGTHS[0] * 3])
    labels = labels_of(split, "nsp")
    assert set(labels) == {0, 1}
    scores = encoder_scores(decided(split, [0.0, 1.0]), split, objective_of(**fields), ALL)
    assert scores["nsp_pairs"] == len(labels)
    assert scores["nsp_accuracy"] == pytest.approx(sum(labels) / len(labels), rel=1e-12)


@pytest.mark.parametrize(
    "lengths",
    [[[3], [5], [4]], [[40, 30], [50, 20, 60]]],
    ids=["a sentence a document", "sentences longer than the context"],
)
def test_a_text_without_pairs_is_scored_by_its_tokens_alone(
    lengths: Sequence[Sequence[int]],
) -> None:
    split = numbered(lengths)
    scores = encoder_scores(encoder_for(split), split, objective_of(p_short=0.0), ALL)
    assert scores.keys() == {"loss", "mlm_accuracy", "majority_accuracy", "mlm_tokens"}
    assert scores["mlm_tokens"] == len(targets_of(split, p_short=0.0)) > 0


def test_a_share_of_the_examples_is_scored_or_all_of_them_once() -> None:
    encoder, settings = decided(SPLIT, [0.0, 1.0]), settings_of()
    part, whole, more = (
        score_pairs(encoder, SPLIT, settings, Scoring(CONTEXT, 4, n), "sop")
        for n in (10, None, 10_000)
    )
    assert part.n_pairs == 10
    assert whole == more
    assert whole.n_pairs == len(labels_of(SPLIT, "sop"))
    tokens = [
        score_masked(encoder, SPLIT, settings, Scoring(CONTEXT, 4, n)).n_tokens
        for n in (10, None, 10_000)
    ]
    assert tokens[0] < tokens[1] == tokens[2] == len(targets_of(SPLIT))


def test_scoring_reports_its_progress_and_leaves_mode_and_gradients_as_they_were() -> None:
    told: list[tuple[str, int, int]] = []
    encoder = encoder_for(dropout=0.5)
    scores = []
    for mode in (True, False):
        encoder.train(mode)
        scoring = Scoring(CONTEXT, 8, 20)
        report = lambda *each: told.append(each)  # noqa: E731
        scores.append(encoder_scores(encoder, SPLIT, objective_of(), scoring, report))
        assert encoder.training is mode
    assert scores[0] == scores[1]
    assert all(value.grad is None for value in encoder.parameters())
    assert told[:3] == [
        ("masked tokens", 8, 20),
        ("masked tokens", 16, 20),
        ("masked tokens", 20, 20),
    ]
    assert {what for what, _, _ in told} == {"masked tokens", "nsp pairs", "sop pairs"}


@pytest.mark.parametrize(
    ("n_correct", "n_pairs", "low", "high"),
    # Published tables and, at the ends, z^2 / (n + z^2).
    [(8, 10, 0.4902, 0.9433), (50, 100, 0.4038, 0.5962), (0, 10, 0.0, 0.2775)],
)
def test_the_interval_is_wilsons(n_correct: int, n_pairs: int, low: float, high: float) -> None:
    found = PairScore(n_pairs, n_correct, n_pairs).interval
    assert found == pytest.approx((low, high), abs=5e-5)
    # Its ends p solve (p - accuracy)^2 = z^2 p (1 - p) / n.
    for p in found:
        gap = (p - n_correct / n_pairs) ** 2 - 1.959963984540054**2 * p * (1 - p) / n_pairs
        assert abs(gap) < 1e-14
    assert 0.0 <= found[0] <= found[1] <= 1.0


def test_nothing_scored_is_not_a_number() -> None:
    nothing = MaskedScore(0.0, 0, 0, 0)
    assert all(math.isnan(each) for each in (nothing.loss, nothing.accuracy, nothing.majority))
    assert all(
        math.isnan(each) for each in (PairScore(0, 0, 0).accuracy, *PairScore(0, 0, 0).interval)
    )
