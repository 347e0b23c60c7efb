"""The beam finds the best of all translations, whatever is translated beside them."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings, Hypothesis
from sublayer.decode.vocabulary_scores import top
from sublayer.errors import ConfigError
from sublayer.model.build import build
from sublayer.model.encoder_decoder import EncoderDecoder
from tests.in_time import some_in_time

END, PAD, LONGEST = 2, 1, 4
MODELS: list[dict[str, Any]] = [
    {},
    {"positions": "sinusoidal", "block": "macaron", "ffn": "swiglu", "norm": "rms", "bias": False},
    {"ffn": "swiglu", "swish_beta": "learned"},
    {
        "positions": "rotary",
        "norm_order": "post",
        "share": "all",
        "d_embed": 6,
        "n_decoder_layers": 3,
    },
    {
        "positions": "learned-per-layer",
        "tie_embeddings": False,
        "head_bias": True,
        "head": "transform",
    },
    {"decoder_block": ["cross", "ffn", "attention*0.5", "cross*0.5"], "positions": "none"},
]


def make_model(vocab_size: int, **fields: Any) -> EncoderDecoder:
    given = {
        "n_layers": 2,
        "d_model": 12,
        "n_heads": 2,
        "init": "normal",
        "init_std": 0.5,
        **fields,
    }
    config = ModelConfig(kind="encoder-decoder", **given)
    model = build(resolve_model(config, vocab_size=vocab_size, context=24), seed=3).double().eval()
    assert isinstance(model, EncoderDecoder)
    return model


def translated(
    model: EncoderDecoder, sources: list[list[int]], settings: BeamSettings, **rest: Any
) -> list[list[Hypothesis]]:
    arrays = [np.array(source) for source in sources]
    found = dict(search(model, arrays, settings, end_id=END, pad_id=PAD, **rest))
    return [found[number] for number in range(len(sources))]


def every_hypothesis(
    model: EncoderDecoder, source: list[int], settings: BeamSettings
) -> dict[tuple[int, ...], float]:
    words = [word for word in range(model.embedding.weight.shape[0]) if word not in (END, PAD)]
    scores = {}
    for length in range(1, LONGEST + 1):
        every = list(product(words, repeat=length))
        sources, targets = (
            torch.tensor([[*source, END]] * len(every)),
            torch.tensor([[END, *ids] for ids in every]),
        )
        with torch.no_grad():
            log_p = model(sources, target=targets).logits.log_softmax(-1)
        for ids, each in zip(every, log_p, strict=True):
            total = each[range(length + 1), [*ids, END]].sum().item()
            scores[ids] = settings.score(total, length + 1)
    return scores


RULES = [("fairseq", 1.0), ("fairseq", 0.0), ("gnmt", 0.6)]
"""Every rule is tried on a model every time, and on every model with the slow tests."""
OFTEN = [(0, 0), (2, 2), (4, 1)]
WIDE = [
    pytest.param(
        fields,
        *rule,
        marks=[] if (number, place) in OFTEN else pytest.mark.slow,
        id=f"{fields}-{rule}",
    )
    for number, fields in enumerate(MODELS)
    for place, rule in enumerate(RULES)
]


@pytest.mark.parametrize(("fields", "rule", "penalty"), WIDE)
def test_a_wide_beam_finds_the_best_of_all_hypotheses(
    fields: dict[str, Any], rule: Any, penalty: float
) -> None:
    model = make_model(5, **fields)
    settings = BeamSettings(beam=130, rule=rule, penalty=penalty, max_length_offset=LONGEST)
    for source in ([3, 4, 0], [4]):
        known = every_hypothesis(model, source, settings)
        (found,) = translated(model, [source], settings)
        assert {tuple(each.ids): pytest.approx(each.score, abs=1e-12) for each in found} == known
        assert tuple(found[0].ids) == max(known, key=lambda ids: known[ids])


BIASED = ({"positions": "relative"}, {"positions": "alibi"})
BESIDE_OTHERS = some_in_time([(each, beam) for each in BIASED for beam in (1, 3)], 4)
BESIDE_OTHERS += some_in_time([(each, 3) for each in MODELS], 3)


@pytest.mark.parametrize(("fields", "beam"), BESIDE_OTHERS, ids=str)
def test_a_translation_does_not_depend_on_what_is_translated_beside_it(
    fields: dict[str, Any], beam: int
) -> None:
    model = make_model(30, **fields)
    rng = np.random.default_rng(1)
    sources = [rng.integers(3, 30, rng.integers(1, 12)).tolist() for _ in range(10)]
    settings = BeamSettings(beam=beam, max_length_ratio=1.5, max_length_offset=2)
    alone = [translated(model, [source], settings)[0] for source in sources]
    for sentences in (3, 64):
        together = translated(model, sources, settings, sentences=sentences)
        for one, other in zip(alone, together, strict=True):
            assert [each.ids.tolist() for each in one] == [each.ids.tolist() for each in other]
            assert [each.score for each in one] == pytest.approx(
                [each.score for each in other], abs=1e-10
            )


GREEDY = [(fields, 1) for fields in (*MODELS, {"positions": "relative"})]


@pytest.mark.parametrize(("fields", "sentences"), [({}, 3), *GREEDY], ids=str)
def test_a_beam_of_one_is_greedy(fields: dict[str, Any], sentences: int) -> None:
    # One row alone is a vector, of several each is a row of a matrix.
    model = make_model(30, **fields)
    sources = [[5, 6, 7], [8]]
    settings = BeamSettings(beam=1, penalty=0.0, max_length_offset=6)
    found = translated(model, sources, settings, sentences=sentences)
    for source, hypotheses in zip(sources, found, strict=True):
        ids, log_p = greedy(model, source, 6)
        assert hypotheses[0].ids.tolist() == ids
        assert hypotheses[0].log_p == pytest.approx(log_p, abs=1e-10)


def greedy(model: EncoderDecoder, source: list[int], longest: int) -> tuple[list[int], float]:
    ids = [END]
    total = 0.0
    while True:
        with torch.no_grad():
            target = torch.tensor([ids])
            logits = model(torch.tensor([[*source, END]]), target=target).logits[0, -1]
        log_p = logits.log_softmax(-1)
        logits[[PAD, END] if len(ids) == 1 else [PAD]] = -torch.inf
        chosen = END if len(ids) > longest else int(logits.argmax())
        total += float(log_p[chosen])
        if chosen == END:
            return ids[1:], total
        ids.append(chosen)


def test_lengths_are_kept() -> None:
    model = make_model(30)
    sources = [[4] * n for n in (1, 3, 9)]
    for share, more in ((0.0, 3.0), (1.0, 0.0), (2.0, 1.0)):
        for source, found in zip(
            sources,
            translated(
                model, sources, BeamSettings(2, max_length_ratio=share, max_length_offset=more)
            ),
            strict=True,
        ):
            assert all(
                1 <= len(each.ids) <= int(share * (len(source) + 1) + more) for each in found
            )
    (found,) = translated(model, [[4, 5]], BeamSettings(2))
    assert all(len(each.ids) <= 23 for each in found)


def test_scores_follow_their_rule() -> None:
    assert BeamSettings(penalty=1.0).score(-6.0, 3) == -2.0
    assert BeamSettings(penalty=0.5).score(-6.0, 4) == -3.0
    assert BeamSettings(rule="gnmt", penalty=1.0).score(-6.0, 7) == -3.0
    assert BeamSettings(penalty=0.0).score(-6.0, 9) == -6.0


@pytest.mark.parametrize(
    "given", [{"beam": 0}, {"penalty": float("nan")}, {"max_length_ratio": -1.0}], ids=str
)
def test_settings_without_meaning_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        BeamSettings(**given)


def test_a_model_in_training_is_refused() -> None:
    with pytest.raises(ConfigError, match="training mode"):
        translated(make_model(9).train(), [[4]], BeamSettings())


@pytest.mark.parametrize("n_tokens", [40, 2000, 2001, 2063])
@pytest.mark.parametrize("count", [1, 2, 10])
def test_the_best_of_pieces_are_the_best_of_all(n_tokens: int, count: int) -> None:
    scores = torch.randn(7, n_tokens, generator=torch.Generator().manual_seed(count))
    scores[2] = -torch.inf
    scores[2, -1] = 0.0  # behind the last whole piece, alone
    scores[3, : n_tokens // 2] = 5.0  # equal ones
    values, indices = top(scores, count)
    assert torch.equal(values, scores.topk(count, -1).values)
    assert torch.equal(scores.gather(1, indices), values)
    assert all(len(set(row.tolist())) == count for row in indices)


def test_what_pads_may_be_the_end() -> None:
    model, settings = make_model(9), BeamSettings(beam=2, max_length_offset=LONGEST)
    source = np.array([4, 5, 3])
    ((_, found),) = search(model, [source], settings, end_id=END, pad_id=END)
    every = every_hypothesis(model, source.tolist(), settings)
    known = [each for each in found if PAD not in each.ids]
    assert len(found) == 2 and known
    for hypothesis in known:
        assert hypothesis.score == pytest.approx(every[tuple(hypothesis.ids.tolist())])
