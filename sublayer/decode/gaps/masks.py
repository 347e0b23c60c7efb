"""The likeliest fillings of a text's masks, with their probabilities: by an encoder, or by a T5."""

import math
import re
from dataclasses import replace

import torch

from sublayer.data.tokenizers.base import SPECIAL_NAMES, Tokenizer
from sublayer.data.tokenizers.sentinels import sentinel_name, split_at_gaps
from sublayer.data.tokenizers.shown import special_names
from sublayer.decode.gaps.completion import FillSettings
from sublayer.decode.gaps.fill import fill_gaps
from sublayer.decode.gaps.prompt import Prompt, encode_before_gap
from sublayer.decode.gaps.written import complete
from sublayer.errors import ConfigError
from sublayer.model.build import Encoder, EncoderDecoder
from sublayer.model.context import Layout
from sublayer.model.eval_mode import evaluating
from sublayer.model.output import Filling
from sublayer.model.transformer import Transformer

MOST_FILLINGS = 1000


def fill_masks(model: Transformer, text: str, n: int = 5) -> list[list[Filling]]:
    """Return the ``n`` likeliest fillings of each mask of a text, the likeliest first.

    A mask is written ``[MASK]``, ``<mask>`` or as the model's vocabulary calls it. An encoder
    fills each with one token, given all others masked (Devlin et al. 2019, sec. 3.1), never with a
    special one. A T5 (Raffel et al. 2020, sec. 3.1.4) fills each with any number of tokens, also
    where the text has ``<extra_id_0>`` and so on: a beam of ``n`` is searched, and the
    probability is that of all its hypotheses that fill the gap so.

    Raises ConfigError where the text has no mask or is longer than the model reads, the model is of
    another kind, has no tokenizer or its tokenizer no mask, or predicts no tokens.
    """
    tokenizer: Tokenizer | None = model.tokenizer
    if not isinstance(text, str):
        raise ConfigError(f"the text is {type(text).__name__}: give one text")
    if not isinstance(model, Encoder | EncoderDecoder):
        raise ConfigError(
            f"the model is a {model.config.kind}, which fills no masks: use generate, or name an "
            "encoder or a T5"
        )
    if tokenizer is None:
        raise ConfigError(
            "the model has no tokenizer, so it cannot read a text: import it from a folder that "
            "has one"
        )
    if not 1 <= n <= MOST_FILLINGS:
        raise ConfigError(f"{n} fillings cannot be listed: ask for 1 to {MOST_FILLINGS:,}")
    with evaluating(model):
        if isinstance(model, EncoderDecoder):
            return _by_gaps(model, tokenizer, text, n)
        return _by_masks(model, tokenizer, text, n)


def _mask_names(tokenizer: Tokenizer) -> re.Pattern[str]:
    names = {*SPECIAL_NAMES["mask_id"]}
    if tokenizer.mask_id is not None:
        names.add(special_names(tokenizer)[tokenizer.mask_id])
    return re.compile("|".join(map(re.escape, sorted(names))))


def _by_gaps(model: EncoderDecoder, tokenizer: Tokenizer, text: str, n: int) -> list[list[Filling]]:
    _, given = split_at_gaps(text.encode("utf-8", "surrogateescape"))
    if not given:
        parts = _mask_names(tokenizer).split(text)
        gaps = [sentinel_name(number) for number in range(len(parts) - 1)]
        if not gaps:
            raise ConfigError(_no_mask("<extra_id_0>"))
        text = parts[0] + "".join(map("".join, zip(gaps, parts[1:], strict=True)))
    completions = fill_gaps(model, text, FillSettings(beam=n))
    found: list[dict[str, Filling]] = [{} for _ in completions[0].gaps]
    for completion in completions:  # the likeliest first
        for fillings, gap in zip(found, completion.gaps, strict=True):
            if gap.score is None:
                continue
            filling = fillings.get(gap.text.strip())
            if filling is None:
                filling = Filling(gap.text.strip(), 0.0, completion.text)
            probability = filling.probability + math.exp(completion.score)
            fillings[filling.text] = replace(filling, probability=probability)
    return [sorted(each.values(), key=lambda filling: -filling.probability) for each in found]


@torch.inference_mode()
def _by_masks(model: Encoder, tokenizer: Tokenizer, text: str, n: int) -> list[list[Filling]]:
    mask_id, cls_id, sep_id = tokenizer.mask_id, tokenizer.cls_id, tokenizer.sep_id
    if mask_id is None or cls_id is None or sep_id is None:
        raise ConfigError(
            f"the model's tokenizer, of kind {tokenizer.kind}, has no [MASK], [CLS] or [SEP], by "
            "which an encoder fills: name another model"
        )
    prompt = _masked_prompt(tokenizer, text, mask_id)
    ids = [cls_id, *prompt.source, sep_id]
    longest = model.config.max_len
    if len(ids) > longest:
        raise ConfigError(
            f"the text has {len(ids):,} tokens, its ends included, more than the {longest:,} that "
            "the model reads: shorten it"
        )
    tokens = torch.tensor([ids], device=model.embedding.weight.device)
    hidden = model.hidden(tokens, Layout.bidirectional(tokens)).final[0, tokens[0] == mask_id]
    probabilities = model.logits(hidden)[:, : tokenizer.vocab_size].double().softmax(-1)
    ranked = probabilities.clone()
    ranked[:, list(tokenizer.special_ids)] = -1.0
    best = ranked.topk(min(n, int((ranked[0] >= 0).sum())), -1).indices
    firsts = [[int(row[0])] for row in best]
    found = []
    for mask, row in enumerate(best.tolist()):
        fillings = []
        for id_ in row:
            fills = [*firsts[:mask], [id_], *firsts[mask + 1 :]]
            filled = complete(tokenizer, prompt, fills)
            place = filled.places[mask]
            fillings.append(
                Filling(filled.text[place], float(probabilities[mask, id_]), filled.text)
            )
        found.append(fillings)
    return found


def _masked_prompt(tokenizer: Tokenizer, text: str, mask_id: int) -> Prompt:
    """Read a text around its masks, each part apart, as transformers does.

    White space before a mask is a part of what fills it.
    """
    parts = _mask_names(tokenizer).split(text)
    if len(parts) == 1:
        raise ConfigError(_no_mask(special_names(tokenizer)[mask_id]))
    data = [part.encode("utf-8", "surrogateescape") for part in parts]
    ids = [encode_before_gap(tokenizer, part) for part in data[:-1]]
    ids.append(tokenizer.encode(data[-1]).tolist())
    return Prompt(parts, ids, (mask_id,) * (len(parts) - 1))


def _no_mask(name: str) -> str:
    return f"the text has nothing to fill: write {name} where a word is missing"
