"""Every field of a masked objective reaches the examples; a lacking tokenizer is refused."""

from typing import Any

import numpy as np
import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.config.objectives.masked import MaskedObjective
from sublayer.config.resolve_train import resolve_train
from sublayer.data.batches import Batches, Windows
from sublayer.data.masked.batches import PairBatches
from sublayer.data.masked.masking import MaskRule
from sublayer.data.masked.segments import PairRule
from sublayer.data.split import Split
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import ConfigError
from sublayer.objective.families import family_of
from sublayer.objective.masked.batches import pair_settings
from tests.stories import Numbers, numbered

SPLIT = numbered([[4, 5, 6, 3, 2], [3, 7, 2, 6]])


def batches_of(name: str, split: Split, **settings: Any) -> Batches:
    given = {
        "train.steps": 3,
        "train.batch_sequences": 2,
        "data.context": 16,
        "train.seed": 5,
        **settings,
    }
    recipe = load_recipe(name, given).recipe
    train = resolve_train(recipe, steps=3, valid_tokens=None, is_gpu=False, threads=1)
    return family_of(recipe.objective).batches(recipe.model_copy(update={"train": train}), split)


def test_each_kind_of_objective_has_its_batches() -> None:
    masked = batches_of("albert-small", SPLIT, **{"data.vocab_size": SPLIT.tokenizer.vocab_size})
    assert isinstance(masked, PairBatches)
    assert (masked.context, masked.batch_sequences) == (16, 2)
    settings = pair_settings(
        MaskedObjective(masking="ngram", sentence="sop"), SPLIT.tokenizer, context=16
    )
    same = PairBatches(SPLIT, settings, context=16, batch_sequences=2, seed=5).batch(4)
    assert same.read.tokens.tolist() == masked.batch(4).read.tokens.tolist()
    assert isinstance(batches_of("gpt", SPLIT), Windows)


def test_the_defaults_are_those_of_bert() -> None:
    settings = pair_settings(MaskedObjective(), Numbers(9), context=64)
    assert settings.pairs == PairRule("none", max_len=64)
    assert settings.masks == MaskRule()
    assert settings.static_copies is None


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


def test_special_ids_of_a_trained_vocabulary_are_never_hidden(words: Tokenizer) -> None:
    vocabulary = pair_settings(MaskedObjective(masking="word"), words, context=64).vocabulary
    assert np.flatnonzero(~vocabulary.is_maskable).tolist() == list(words.special_ids)
    assert vocabulary.mask_id == words.mask_id
    assert vocabulary.random_low == 5


@pytest.mark.parametrize("masking", ["word", "ngram"])
def test_words_of_a_tokenizer_without_words_are_refused(masking: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        pair_settings(MaskedObjective(masking=masking), ByteTokenizer(), context=64)
    assert str(caught.value) == (
        f"objective.masking = {masking} needs a tokenizer with word boundaries, which "
        "data.tokenizer = bytes has not: "
        "use token, or data.tokenizer = unigram or wordpiece"
    )


@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe"])
def test_a_tokenizer_without_special_ids_is_refused(kind: str) -> None:
    tokenizer = train_tokenizer(kind, [b"one two three"], vocab_size=260)
    with pytest.raises(ConfigError) as caught:
        pair_settings(MaskedObjective(), tokenizer, context=64)
    assert str(caught.value).startswith(
        f"the tokenizer, of kind {kind}, has no [PAD], no [CLS], no [SEP], no [MASK], which masked "
        "objectives need: "
    )
