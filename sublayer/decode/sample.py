"""Sampling with a cache: a new token costs one step of the model, not a full context."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.decode.step import FixedStepper, LstmStepper, Stepper, pays, record
from sublayer.errors import CheckpointError, ConfigError
from sublayer.model.cache import Cache
from sublayer.model.transformer import Decoder, Lstm

Window = Literal["exact", "rolling"]


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters: temperature, top-k and top-p.

    ``temperature`` divides the logits, 0 takes the most probable token. ``top_k`` keeps the k most
    probable, ``top_p`` the fewest whose probabilities reach p (Holtzman et al. 2020); both act
    after the temperature, top_k first. None keeps all.

    Raises ConfigError for values without meaning (a temperature that is negative or not finite, a
    ``top_k`` under 1, a ``top_p`` outside (0, 1]) or without effect (either under temperature 0).
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
        has_cut = self.top_k is not None or self.top_p is not None
        if self.temperature == 0.0 and has_cut:
            raise ConfigError(
                "--top-k and --top-p have no effect on greedy decoding, temperature 0: "
                "leave them out"
            )

    def choose(self, logits: Float[Tensor, "B V"], generator: torch.Generator) -> Int[Tensor, " B"]:
        """Sample a token for each row, or take the most probable one.

        Probabilities are computed in float64. The generator is on the device of the logits; greedy
        choices leave it as it is. Raises CheckpointError where logits on a CPU are not finite.
        """
        top = logits.amax(-1, keepdim=True)
        # No synchronisation with another device: models that always overflow are not loaded.
        if top.device.type == "cpu" and not top.isfinite().all():
            raise CheckpointError(
                "the model's logits are not finite behind this text: its weights are too large; "
                "take another checkpoint"
            )
        if self.temperature == 0.0:
            return logits.argmax(-1)
        # At most 0, so that no temperature overflows.
        logits = logits.double() - top
        logits = self._keep_top_k(logits / self.temperature)
        probabilities = self._keep_top_p(torch.softmax(logits, -1))
        return torch.multinomial(probabilities, 1, generator=generator)[:, 0]

    def _keep_top_k(self, logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        if self.top_k is None or self.top_k >= logits.shape[-1]:
            return logits
        top = logits.topk(self.top_k, -1)
        masked = torch.full_like(logits, -torch.inf)
        return masked.scatter(-1, top.indices, top.values)

    def _keep_top_p(self, probabilities: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        if self.top_p is None:
            return probabilities
        ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
        # A token stays unless those before it reach p: the most probable always does.
        before = ordered.cumsum(-1) - ordered
        ordered = ordered.masked_fill(before >= self.top_p, 0.0)
        return torch.zeros_like(probabilities).scatter(-1, order, ordered)


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

    Up to ``context`` tokens (the model's maximum, or the training length) a token costs one step.
    Beyond, absolute positions invalidate the cache: ``exact`` rereads the last ``context`` tokens
    for every token; ``rolling`` rereads their newer half whenever the window is full, so that a
    token costs about two steps and sees between half and all of the context. For an LSTM, which
    keeps only its state, ``context`` and ``window`` change nothing. Deterministic in weights,
    prompt and ``seed``.

    Raises ConfigError, at the first token, where the prompt is empty or longer than the context,
    the model is in training mode, or the cache does not fit in memory.
    """
    if model.training:
        raise ConfigError(
            "the model is in training mode, with dropout: call model.eval() before generating"
        )
    longest = model.config.max_len if context is None else context
    assert longest is not None, "a saved config is resolved"
    _check_prompt(prompt, None if isinstance(model, Lstm) else longest)
    reader = _Reader(model, prompt.shape[0], longest, window, n_tokens)
    generator = torch.Generator(device=prompt.device).manual_seed(seed)
    tokens = prompt
    for n_left in range(n_tokens, 0, -1):
        logits = reader.read(tokens)
        chosen = sampling.choose(logits, generator)
        yield chosen
        if n_left > 1:
            tokens = torch.cat([tokens, chosen[:, None]], dim=1)
            tokens = tokens[:, -longest:]


class _Reader:
    """Compute the logits after a growing text, reading only new tokens where possible."""

    def __init__(
        self, model: Decoder, n_rows: int, context: int, window: Window, n_tokens: int
    ) -> None:
        self._model = model
        self._context = context
        self._window = window
        weight = model.embedding.weight
        # Attention is slower in bfloat16 on a CPU.
        wide = torch.promote_types(weight.dtype, torch.float32)
        dtype = wide if weight.device.type == "cpu" else weight.dtype
        self._cache = Cache(model.config, n_rows, context, dtype, weight.device)
        self._step: LstmStepper | FixedStepper | Stepper
        if isinstance(model, Lstm):
            self._step = LstmStepper(model, n_rows)
        elif pays(weight.device, n_tokens):
            self._step = FixedStepper(model, n_rows, self._cache, record)
        else:
            self._step = Stepper(model, n_rows)

    def read(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        """Return the next-token logits of ``tokens``: the last call's tokens and one more."""
        is_full = not self._cache.is_endless and self._cache.length == self._context
        if is_full:
            n_kept = self._context
            if self._window == "rolling":
                n_kept = self._context // 2 + 1
            tokens = tokens[:, -n_kept:]
            self._cache.clear()
        elif self._cache.length:
            return self._step(tokens[:, -1], self._cache)
        return self._model.last_logits(tokens, self._cache)


def _check_prompt(prompt: Int[Tensor, "B P"], context: int | None) -> None:
    if prompt.shape[1] == 0:
        raise ConfigError("the prompt is empty: give at least one token to continue from")
    if context is not None and prompt.shape[1] > context:
        raise ConfigError(
            f"the prompt has {prompt.shape[1]:,} tokens, more than the context of {context:,}: "
            "shorten it"
        )
