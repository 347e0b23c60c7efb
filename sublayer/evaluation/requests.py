"""A decoder asked as evaluation harnesses ask: how likely texts are, and how they go on."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from sublayer.data.tokenizers.base import Tokenizer
from sublayer.decode.sample import Sampling, generate
from sublayer.errors import ConfigError
from sublayer.evaluation.probes.decoder_nats import decoder_nats
from sublayer.evaluation.probes.query import EncodedQuery, Query, encode_queries
from sublayer.model.decoder import Decoder
from sublayer.model.transformer import Transformer

_MOST_TOKENS = 256
"""That are written, where a request does not say."""
_KNOWN = ("until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p")


class Requests:
    """Answers requests by a decoder or an LSTM that reads ``context`` tokens.

    Raises ConfigError where the model is of another kind, or has no tokenizer.
    """

    def __init__(self, model: Transformer, context: int, what: str) -> None:
        if not isinstance(model, Decoder):
            raise ConfigError(
                f"{what} is of model.kind = {model.config.kind}, which a harness cannot ask for "
                "the next token: name a decoder or an LSTM"
            )
        if model.tokenizer is None:
            raise ConfigError(f"{what} has no tokenizer.json, without which it reads no text")
        self._model = model
        self._tokenizer: Tokenizer = model.tokenizer
        self._context = context

    def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """Return the log-probability of each second text behind the first, and whether it is what
        greedy decoding would write.

        Encoded as probes are: both as one text, so that a prompt loses its beginning where the
        context does not hold it.
        """
        queries = [Query(prompt, text) for prompt, text in pairs]
        encoded = encode_queries(queries, self._tokenizer, self._context)
        return [
            (-float(each[:, 0].sum()), bool(each[:, 1].all()))
            for each in decoder_nats(self._model, encoded, with_tops=True)
        ]

    def wholes(self, texts: Sequence[str]) -> list[float]:
        """Return the log-probability of each text, every token scored once.

        The first stands behind the end of a document; where the tokenizer marks none, it is not
        scored. Longer texts are read in windows that do not overlap, but the last, which is full.
        """
        encoded: list[EncodedQuery] = []
        owners: list[int] = []
        for number, text in enumerate(texts):
            own = self._windows(self._tokenizer.encode(text.encode()).tolist())
            encoded += own
            owners += [number] * len(own)
        totals = [0.0] * len(texts)
        for number, nats in zip(owners, decoder_nats(self._model, encoded), strict=True):
            totals[number] -= float(nats.sum())
        return totals

    def _windows(self, ids: list[int]) -> list[EncodedQuery]:
        end_id = self._tokenizer.end_id
        if end_id is not None:
            ids = [end_id, *ids]
        windows = []
        for first in range(1, len(ids), self._context):
            stop = min(first + self._context, len(ids))
            start = max(0, min(first - 1, stop - 1 - self._context))
            windows.append(EncodedQuery(tuple(ids[start:first]), tuple(ids[first:stop])))
        return windows

    def written(self, prompt: str, settings: Mapping[str, Any]) -> str:
        """Continue a prompt up to the first of ``until``, which is left out, or its most tokens.

        Greedy unless ``do_sample``. Raises ConfigError for a setting that is not known, and for an
        empty prompt where the tokenizer marks no end of a document.
        """
        for name in settings:
            if name not in _KNOWN:
                raise ConfigError(
                    f"a harness asks for {name}, which is none of {', '.join(_KNOWN)}"
                )
        until = settings.get("until") or []
        stops = [until] if isinstance(until, str) else list(until)
        ids = self._tokenizer.encode(prompt.encode()).tolist()[-self._context :]
        if not ids:
            if self._tokenizer.end_id is None:
                raise ConfigError("a prompt is empty, and the tokenizer marks no end of a document")
            ids = [self._tokenizer.end_id]
        tokens = torch.tensor([ids], device=self._model.embedding.weight.device)
        n_tokens = int(settings.get("max_gen_toks", _MOST_TOKENS))
        sampling = _sampling(settings)
        written: list[int] = []
        text = ""
        for token in generate(self._model, tokens, n_tokens, sampling, context=self._context):
            if int(token) == self._tokenizer.end_id:
                break
            written.append(int(token))
            text = self._tokenizer.decode(np.array(written)).decode(errors="replace")
            places = [text.find(stop) for stop in stops if stop and stop in text]
            if places:
                return text[: min(places)]
        return text


def _sampling(settings: Mapping[str, Any]) -> Sampling:
    temperature = float(settings.get("temperature", 1.0))
    if not settings.get("do_sample", False) or temperature == 0.0:
        return Sampling(temperature=0.0)
    return Sampling(temperature, settings.get("top_k"), settings.get("top_p"))
