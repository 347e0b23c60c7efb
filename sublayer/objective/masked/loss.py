"""Loss of masked tokens and text pairs, and its batches.

Source: Devlin et al. 2019 (1810.04805), sec. 3.1; sentence order: Lan et al. 2020 (1909.11942),
sec. 3.1.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.config.objective import MaskedObjective
from sublayer.config.recipe import Recipe
from sublayer.config.stacks import HEADS
from sublayer.data.batches import PackedBatch
from sublayer.data.masked import Example, MaskRule, MaskVocabulary, PairSettings, pack
from sublayer.data.sentence_pairs import PairRule
from sublayer.data.tokenizers.base import Tokenizer, check_masking
from sublayer.data.translation_batches import BatchRule
from sublayer.errors import ConfigError
from sublayer.model.context import Layout
from sublayer.model.kernels.cross_entropy import Smoothing
from sublayer.model.transformer import Encoder, Transformer
from sublayer.objective.base import Objective, Synthetic


class Masked(Objective):
    """Cross-entropy of masked tokens, term ``mlm``, and of text pairs, term ``sentence``.

    Logits are computed only at predicted tokens. Terms are means over the global batch. The model
    is an encoder.

    With z-loss the trained term of masked tokens is ``trained``; ``mlm``, without weight then, is
    reported.
    """

    reported = "mlm"

    def __init__(self, model: Transformer, config: MaskedObjective) -> None:
        super().__init__(model)
        assert isinstance(model, Encoder), "masked objectives train encoders"
        self._encoder = model
        self._z_loss = config.z_loss
        self._is_probed = config.sentence_trains == "head"
        self.weights = {"mlm": 1.0}
        if self._z_loss:
            self.weights = {"trained": 1.0, "mlm": 0.0}
        if config.sentence != "none":
            self.weights["sentence"] = config.sentence_weight

    @property
    def has_unused_parameters(self) -> bool:
        """True where a sentence head is not trained, and has no gradient."""
        if "sentence" in self.weights:
            return False
        return any(HEADS[name].reads != "positions" for name in self.model.heads)

    def counts(self, batch: PackedBatch) -> dict[str, int]:
        """Count the predicted tokens and the pairs with a label."""
        n_targets = batch.n_predicted
        counts = {"mlm": n_targets}
        if self._z_loss:
            counts["trained"] = n_targets
        if "sentence" in self.weights:
            is_labelled = batch.labels >= 0
            counts["sentence"] = int(is_labelled.sum())
        return counts

    def forward(self, batch: PackedBatch) -> dict[str, Tensor]:
        """Sum the nats of masked tokens, and of pairs."""
        states = states_at(self._encoder, batch)
        smoothing = Smoothing(1.0, 0.0, self._z_loss) if self._z_loss else None
        embedded = self._encoder.to_embedding(states.masked)
        totals = self.token_totals(embedded, batch.predicted_ids, smoothing)
        if "sentence" in self.weights:
            # A probe does not change the states.
            cls = states.cls.detach() if self._is_probed else states.cls
            logits = self._encoder.sentence_logits(cls)
            totals["sentence"] = sentence_nats(logits, batch.labels.long())
        return totals | self.auxiliary_totals(states.auxiliary, batch.weights)


class States(NamedTuple):
    """Selected hidden states, in row order."""

    masked: Float[Tensor, "P D"]
    """Of the predicted positions."""
    cls: Float[Tensor, "N D"]
    """Of the first position of every example."""
    auxiliary: Float[Tensor, ""] | None
    """As of ``Hidden``."""


def states_at(encoder: Encoder, batch: PackedBatch) -> States:
    """Compute hidden states, without attention across examples, and select those needed."""
    assert batch.predicted is not None, "tokens are predicted"
    side = batch.read
    layout = Layout.bidirectional(side.tokens, side.mask, side.document_ids, side.starts)
    hidden = encoder.hidden(side.tokens, layout, segments=batch.segments)
    flat = hidden.final.flatten(0, 1)  # [R * T, D]
    masked, cls = (flat.index_select(0, places) for places in (batch.predicted, batch.places))
    return States(masked, cls, hidden.auxiliary)


def sentence_nats(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> Float[Tensor, ""]:
    """Sum the nats of labels under two logits, or a logistic one; a label of -1 does not count.

    At least in float32. A single logit is label 1's.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)
    logits = logits.to(dtype)
    n_logits = logits.shape[1]
    if n_logits == 2:
        return F.cross_entropy(logits, labels, ignore_index=-1, reduction="sum")
    is_counted = labels >= 0
    # Ignored pairs are computed as label 0, and excluded from the sum.
    targets = labels.clamp_min(0).to(logits.dtype)
    nats = F.binary_cross_entropy_with_logits(logits[:, 0], targets, reduction="none")
    return torch.where(is_counted, nats, 0.0).sum()


def predicts_negative(logits: Float[Tensor, "N C"]) -> Tensor:
    """Predict which text pairs are negative, ``[N]``: those with label 1 likelier."""
    n_logits = logits.shape[1]
    if n_logits == 1:
        return logits[:, 0] > 0
    return logits[:, 1] > logits[:, 0]


@dataclass(frozen=True)
class SyntheticPairs(Synthetic):
    """Batches of random text pairs, of context length."""

    context: int
    n_predictions: int
    """Tokens that are hidden in each row."""

    def draw(self, generator: np.random.Generator, n_rows: int) -> PackedBatch:
        """Draw a batch of so many rows."""
        predicted = np.arange(self.n_predictions)
        examples = [
            Example(
                ids=generator.integers(self.vocab_size, size=self.context),
                segments=generator.integers(2, size=self.context),
                positions=predicted,
                targets=generator.integers(self.vocab_size, size=len(predicted)),
                label=int(generator.integers(2)),
            )
            for _ in range(n_rows)
        ]
        return pack(examples, width=self.context, pad_id=0)

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a batch."""
        return self.n_rows * self.context


def step_rule(recipe: Recipe, batch_tokens: int) -> BatchRule:
    """Return the batching rule of single-sentence pairs for steps of ``batch_tokens``."""
    data = recipe.data
    part_tokens = max(batch_tokens // data.batch_parts, data.context)
    return BatchRule(part_tokens, multiple=data.batch_multiple, parts=data.batch_parts)


def pair_settings(
    objective: MaskedObjective, tokenizer: Tokenizer, *, context: int
) -> PairSettings:
    """Return the example settings of a masked objective.

    Raises ConfigError where the tokenizer lacks a required id.
    """
    if objective.masking != "token" and not tokenizer.has_words:
        raise ConfigError(
            f"objective.masking = {objective.masking} needs a tokenizer with word boundaries, "
            f"which data.tokenizer = {tokenizer.kind} has not: "
            "use token, or data.tokenizer = unigram or wordpiece"
        )
    check_masking(tokenizer, f"the tokenizer, of kind {tokenizer.kind},")
    pairs = PairRule(
        task=objective.sentence,
        max_len=context,
        p_short=objective.p_short,
        target_per=objective.short_per,
        alone=objective.single_sentence,
    )
    masks = MaskRule(
        unit=objective.masking,
        share=objective.mask_share,
        most=objective.max_predictions,
        longest=objective.max_ngram,
        favours=objective.ngram_favours,
        p_mask=objective.p_mask,
        p_random=objective.p_random,
        counts=objective.mask_base,
        predicts_first=objective.predict_first,
    )
    vocabulary = _vocabulary(objective, tokenizer)
    return PairSettings(
        pairs, masks, vocabulary, unit=objective.pairs, static_copies=objective.static_copies
    )


def _vocabulary(objective: MaskedObjective, tokenizer: Tokenizer) -> MaskVocabulary:
    is_maskable = np.ones(tokenizer.vocab_size, dtype=np.bool_)
    is_maskable[list(tokenizer.special_ids)] = False
    # Special ids come first in a vocabulary, except those added later.
    first = int(np.flatnonzero(is_maskable)[0])
    is_maskable[first : first + objective.spared_ids] = False
    assert tokenizer.mask_id is not None, "the vocabulary was checked"
    low = 0 if objective.random_ids == "all" else first
    return MaskVocabulary(tokenizer.mask_id, is_maskable, random_low=low)
