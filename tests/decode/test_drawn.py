"""What is drawn for a source has the probabilities of the model, and ends where a text may end."""

import numpy as np
import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings, Hypothesis
from sublayer.decode.continuations import DrawnContinuations
from sublayer.decode.sample import GREEDY, Sampling
from sublayer.model.build import build
from sublayer.model.encoder_decoder import EncoderDecoder

END, PAD, OTHER_ENDS = 2, 1, (7, 8)
SOURCE = [5, 6, 3]


def make_model(vocab_size: int = 9) -> EncoderDecoder:
    config = ModelConfig(
        kind="encoder-decoder", n_layers=1, d_model=12, n_heads=2, init="normal", init_std=0.4
    )
    model = build(resolve_model(config, vocab_size=vocab_size, context=24), seed=3).double().eval()
    assert isinstance(model, EncoderDecoder)
    return model


def drawn(
    model: EncoderDecoder, n: int, sampling: Sampling, *, seed: int = 0, longest: int = 9
) -> list[Hypothesis]:
    found = search(
        model,
        [np.array(SOURCE)] * n,
        BeamSettings(beam=1, penalty=0.0, max_length_offset=longest),
        end_id=END,
        pad_id=PAD,
        continuations=DrawnContinuations(sampling, seed, torch.device("cpu")),
        sentences=n,
    )
    by_number = dict(found)
    return [by_number[number][0] for number in range(n)]


def log_p_of(model: EncoderDecoder, written: list[int]) -> torch.Tensor:
    """The log-probabilities of all tokens, behind each of what the decoder reads."""
    source = torch.tensor([[*SOURCE, END]])
    with torch.no_grad():
        output = model(source, target=torch.tensor([[END, *written]]))
    return output.logits[0].log_softmax(-1)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(top_k=1), Sampling(temperature=1e-6)])
def test_what_is_drawn_of_the_most_probable_alone_is_greedy(sampling: Sampling) -> None:
    model = make_model()
    settings = BeamSettings(beam=1, penalty=0.0, max_length_offset=9)
    ((_, (greedy,)),) = search(model, [np.array(SOURCE)], settings, end_id=END, pad_id=PAD)
    for each in drawn(model, 2, sampling):
        assert each.ids.tolist() == greedy.ids.tolist()
        assert each.log_p == pytest.approx(greedy.log_p, abs=1e-12)


def test_what_is_drawn_scores_what_the_model_says_of_it_at_any_temperature() -> None:
    model = make_model()
    written = drawn(model, 20, Sampling(temperature=3.0, top_k=5))
    assert len({tuple(each.ids) for each in written}) > 10
    for each in written:
        ids = each.ids.tolist()
        known = log_p_of(model, ids)[range(len(ids) + 1), [*ids, END]].sum().item()
        assert each.log_p == pytest.approx(known, abs=1e-10)


def test_what_is_drawn_is_a_function_of_the_seed() -> None:
    model = make_model()
    first, again, other = (drawn(model, 5, Sampling(), seed=seed) for seed in (1, 1, 2))
    texts = [[each.ids.tolist() for each in one] for one in (first, again, other)]
    assert texts[0] == texts[1] != texts[2]


def test_first_tokens_are_drawn_as_often_as_is_probable() -> None:
    model = make_model()
    n = 2000
    tokens = [int(each.ids[0]) for each in drawn(model, n, Sampling(), longest=1)]
    expected = log_p_of(model, [])[0].exp()
    expected[[PAD, END]] = 0.0  # a text is neither padded nor empty
    expected /= expected.sum()
    shares = np.bincount(tokens, minlength=9) / n
    # Five standard deviations at a probability of one half.
    assert shares.tolist() == pytest.approx(expected.tolist(), abs=5 * 0.5 / n**0.5)
    assert expected.max() - expected.min() > 0.2


def test_whatever_ends_a_text_counts_as_its_end() -> None:
    model = make_model()
    settings = BeamSettings(beam=50, penalty=0.0, max_length_offset=2)
    ((_, found),) = search(
        model, [np.array(SOURCE)], settings, end_id=END, pad_id=PAD, other_ends=OTHER_ENDS
    )
    words = {0, 3, 4, 5, 6}
    assert len(found) == len(words) + len(words) ** 2
    for each in found:
        ids = each.ids.tolist()
        assert set(ids) <= words
        log_p = log_p_of(model, ids)
        of_ids = log_p[range(len(ids)), ids].sum()
        of_ends = log_p[-1, [END, *OTHER_ENDS]].logsumexp(-1)
        assert each.log_p == pytest.approx((of_ids + of_ends).item(), abs=1e-10)
