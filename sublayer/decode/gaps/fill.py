"""Fill the gaps of a text with a model of span corruption; continue one as a prefix model does.

Source: Raffel et al. 2020 (1910.10683), sec. 3.1.4.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.decode.beam import search
from sublayer.decode.beam_settings import BeamSettings, Hypothesis
from sublayer.decode.continuations import Continue, DrawnContinuations, best_continuations
from sublayer.decode.gaps.completion import Completion, FillSettings, Gap
from sublayer.decode.gaps.prompt import Prompt, prompt_to_go_on, prompt_with_gaps
from sublayer.decode.gaps.token_scores import TokenScores
from sublayer.decode.gaps.written import complete, find_fills, find_unplaced
from sublayer.errors import ConfigError
from sublayer.model.build import EncoderDecoder


@torch.inference_mode()
def fill_gaps(
    model: EncoderDecoder, text: str, settings: FillSettings | None = None
) -> list[Completion]:
    """Fill the gaps of a text, ``<extra_id_0>``, ``<extra_id_1>`` ... in their order.

    Returns the completions of a beam, the most probable first, or those that were drawn. What is
    written ends at a sentinel that stands for no gap as it does at the end. A function of weights,
    text and settings. Unknown characters are read as the unknown.

    Raises ConfigError where the model or the text is not one with gaps, the text is longer than the
    model reads, or the model would drop units out; DataError as the tokenizer does.
    """
    tokenizer = _tokenizer_of(model)
    if not tokenizer.sentinel_ids:
        raise ConfigError(
            f"the model's tokenizer, of kind {tokenizer.kind}, has no sentinels, which stand for "
            "gaps: name a run of objective.kind = span"
        )
    prompt = prompt_with_gaps(tokenizer, text)
    return _completions(model, tokenizer, prompt, settings or FillSettings())


@torch.inference_mode()
def go_on(
    model: EncoderDecoder, text: str, settings: FillSettings | None = None
) -> list[Completion]:
    """Continue a text, as a model of ``objective.noise = prefix`` does: one gap is its end.

    Returns and raises as ``fill_gaps`` does.
    """
    tokenizer = _tokenizer_of(model)
    prompt = prompt_to_go_on(tokenizer, text)
    return _completions(model, tokenizer, prompt, settings or FillSettings())


def _tokenizer_of(model: EncoderDecoder) -> Tokenizer:
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ConfigError("the model has no tokenizer: name one that reads text")
    if isinstance(tokenizer, BilingualTokenizer):
        raise ConfigError("the model translates, and fills no gaps: use `sublayer translate`")
    if tokenizer.sep_id is None or tokenizer.pad_id is None:
        raise ConfigError(
            f"the model's tokenizer, of kind {tokenizer.kind}, has no end of a text or no padding, "
            "which an encoder-decoder needs: name another model"
        )
    assert isinstance(tokenizer, Tokenizer), "a model's tokenizer is one"
    return tokenizer


def _completions(
    model: EncoderDecoder, tokenizer: Tokenizer, prompt: Prompt, settings: FillSettings
) -> list[Completion]:
    _check_length(len(prompt.source) + 1, model.config.max_len)
    end_id, pad_id = tokenizer.sep_id, tokenizer.pad_id
    assert end_id is not None and pad_id is not None, "the tokenizer was checked"
    first_id = pad_id if model.config.decoder_start == "pad" else end_id
    device = model.embedding.weight.device
    continuations: Continue = best_continuations
    if settings.sampling is not None:
        continuations = DrawnContinuations(settings.sampling, settings.seed, device)
    results = search(
        model,
        [np.array(prompt.source, dtype=np.int64)] * settings.n_drawn,
        BeamSettings(settings.beam, penalty=0.0, max_length_offset=settings.most_tokens),
        end_id=end_id,
        pad_id=pad_id,
        start_id=first_id,
        other_ends=tokenizer.sentinel_ids[len(prompt.sentinels) :],
        continuations=continuations,
        sentences=settings.n_drawn,
    )
    hypotheses = [each for _, found in sorted(results, key=_number) for each in found]
    scores = TokenScores(model, [*prompt.source, end_id], first_id)
    completions = []
    for hypothesis in hypotheses:
        log_p = scores.log_p(hypothesis.ids.tolist())
        completions.append(_completion(tokenizer, prompt, hypothesis, log_p))
    return completions


def _check_length(n_read: int, longest: int) -> None:
    if n_read > longest:
        raise ConfigError(
            f"the prompt has {n_read:,} tokens, its end included, more than the {longest:,} that "
            "the model reads: shorten it"
        )


def _number(result: tuple[int, list[Hypothesis]]) -> int:
    return result[0]


def _completion(
    tokenizer: Tokenizer, prompt: Prompt, hypothesis: Hypothesis, log_p: Sequence[float]
) -> Completion:
    written = hypothesis.ids.tolist()
    found = find_fills(written, prompt)
    fills = [[] if place is None else written[place] for place in found]
    filled = complete(tokenizer, prompt, fills)
    gaps = []
    for tokens, fill, place in zip(found, fills, filled.places, strict=True):
        score = None if tokens is None else math.fsum(log_p[tokens])
        gaps.append(Gap(filled.text[place], score, len(fill), place))
    unplaced = tokenizer.decode(find_unplaced(written, prompt, found)).decode("utf-8", "replace")
    return Completion(filled.text, gaps, hypothesis.log_p, len(written), unplaced.strip())
