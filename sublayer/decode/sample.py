"""Choose one token after another, with a cache: a new token costs one step of the model, not a whole context."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.decode.step import Stepper
from sublayer.errors import ConfigError
from sublayer.model.cache import Cache
from sublayer.model.decoder import Decoder

Window = Literal["exact", "rolling"]


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen from the model's probabilities.

    ``temperature`` divides the logits, 0 takes the most probable token. ``top_k`` keeps the k most probable, ``top_p``
    the fewest whose probabilities reach p (Holtzman et al. 2020); both act after the temperature, top_k first.

    Raises ConfigError for values without meaning, or without effect.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ConfigError(f"--temperature {self.temperature:g} is not 0 (greedy) or more")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"--top-k {self.top_k} keeps nothing: give 1 or more")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"--top-p {self.top_p:g} is not a share: give more than 0, up to 1")
        if self.temperature == 0.0 and (self.top_k is not None or self.top_p is not None):
            raise ConfigError("--top-k and --top-p have no effect on greedy decoding, temperature 0: leave them out")

    def choose(self, logits: Float[Tensor, "B V"], generator: torch.Generator) -> Int[Tensor, " B"]:
        """Choose a token for each row."""
        if self.temperature == 0.0:
            return logits.argmax(-1)
        logits = logits.double() - logits.amax(-1, keepdim=True)  # at most 0, so that no temperature overflows
        shares = torch.softmax(self._kept(logits / self.temperature), -1)
        if self.top_p is not None:
            ordered, order = shares.sort(dim=-1, descending=True, stable=True)
            # A token stays unless those before it reach p: the most probable always does.
            ordered = ordered.masked_fill(ordered.cumsum(-1) - ordered >= self.top_p, 0.0)
            shares = torch.zeros_like(shares).scatter(-1, order, ordered)
        return torch.multinomial(shares, 1, generator=generator)[:, 0]

    def _kept(self, logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        if self.top_k is None or self.top_k >= logits.shape[-1]:
            return logits
        kept = logits.topk(self.top_k, -1)
        return torch.full_like(logits, -torch.inf).scatter(-1, kept.indices, kept.values)


GREEDY = Sampling(temperature=0.0)


@torch.inference_mode()
def generate(
    model: Decoder,
    prompt: Int[Tensor, "B P"],
    n_tokens: int,
    sampling: Sampling,
    *,
    seed: int = 0,
    window: Window = "exact",
    context: int | None = None,
) -> Iterator[Int[Tensor, " B"]]:
    """Yield ``n_tokens`` tokens after each row of a prompt, one position at a time.

    Up to ``context`` tokens (the longest that the model takes, or was trained on) each costs one step. Beyond, where
    positions are absolute no cache can follow: ``exact`` reads the last ``context`` tokens again for every token;
    ``rolling`` reads the newer half of them again whenever the window is full, so that a token costs about two steps
    and sees between half and all of the context. Deterministic in weights, prompt and ``seed``.

    Raises ConfigError where the prompt is empty or longer than the context, or the model would drop units out.
    """
    if model.training:
        raise ConfigError("the model is in training mode, with dropout: call model.eval() before generating")
    longest = model.config.max_len if context is None else context
    assert longest is not None, "a saved config is resolved"
    _check_prompt(prompt, longest)
    reader = _Reader(model, prompt.shape[0], longest, window)
    generator = torch.Generator(device=prompt.device).manual_seed(seed)
    tokens = prompt
    for left in range(n_tokens, 0, -1):
        chosen = sampling.choose(reader.read(tokens), generator)
        yield chosen
        if left > 1:
            tokens = torch.cat([tokens, chosen[:, None]], dim=1)[:, -longest:]


class _Reader:
    """Gives the logits behind a text that grows, reading what is new of it where it can."""

    def __init__(self, model: Decoder, n_rows: int, context: int, window: Window) -> None:
        self._model, self._n_rows, self._context, self._window = model, n_rows, context, window
        self._cache = self._new_cache()
        self._step = Stepper(model, n_rows)

    def read(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        """Give the logits of the token after ``tokens``, which are those of the last call and one more."""
        if self._cache.length == self._context:
            kept = self._context if self._window == "exact" else self._context // 2 + 1
            self._cache, tokens = self._new_cache(), tokens[:, -kept:]
        elif self._cache.length:
            return self._step(tokens[:, -1], self._cache)
        return self._model.last_logits(tokens, self._cache)

    def _new_cache(self) -> Cache:
        weight = self._model.embedding.weight
        # On a CPU the products of attention are slower in bfloat16.
        dtype = torch.promote_types(weight.dtype, torch.float32) if weight.device.type == "cpu" else weight.dtype
        return Cache(self._model.config, self._n_rows, self._context, dtype, weight.device)


def _check_prompt(prompt: Int[Tensor, "B P"], context: int) -> None:
    if prompt.shape[1] == 0:
        raise ConfigError("the prompt is empty: give at least one token to go on from")
    if prompt.shape[1] > context:
        raise ConfigError(
            f"the prompt has {prompt.shape[1]:,} tokens, more than the context of {context:,}: shorten it"
        )
