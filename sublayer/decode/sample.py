"""Sampling with a cache: a new token costs one step of the model, and prompts continued by it."""

import codecs
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sublayer.config.load import find_recipe, read_run_recipe
from sublayer.data.tokenizers.base import Tokenizer, split_at_gaps
from sublayer.decode.step import FixedStepper, PlainStepper, Stepper, is_unrolled, pays, record
from sublayer.errors import CheckpointError, ConfigError
from sublayer.model.cache import Cache
from sublayer.model.transformer import Decoder, Lstm
from sublayer.numbers import count
from sublayer.system.terminal import display, stage
from sublayer.text_model import TextModel

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
        # Not on other devices, to avoid synchronising: loading refuses models that always overflow.
        if top.device.type == "cpu" and not top.isfinite().all():
            raise CheckpointError(
                "the model's logits after this text are not finite, as its weights are too large: "
                "take another checkpoint"
            )
        if self.temperature == 0.0:
            return logits.argmax(-1)
        # At most 0, so that no temperature overflows.
        logits = logits.double() - top
        logits = logits / self.temperature
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            likeliest = logits.topk(self.top_k, -1)
            masked = torch.full_like(logits, -torch.inf)
            logits = masked.scatter(-1, likeliest.indices, likeliest.values)
        probabilities = torch.softmax(logits, -1)
        if self.top_p is not None:
            ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
            # A token is kept unless those before it reach p: the most probable one always is.
            before = ordered.cumsum(-1) - ordered
            ordered = ordered.masked_fill(before >= self.top_p, 0.0)
            probabilities = torch.zeros_like(probabilities).scatter(-1, order, ordered)
        return torch.multinomial(probabilities, 1, generator=generator)[:, 0]


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
    until: Sequence[int] | None = None,
) -> Iterator[Int[Tensor, " B"]]:
    """Yield ``n_tokens`` tokens after each row of a prompt, one position at a time.

    Up to ``context`` tokens (the model's maximum, or the training length) a token costs one step.
    Beyond, absolute positions invalidate the cache: ``exact`` rereads the last ``context`` tokens
    for every token; ``rolling`` rereads their newer half whenever the window is full, so that a
    token costs about two steps and sees between half and all of the context. For an LSTM, which
    keeps only its state, ``context`` and ``window`` change nothing. Given ``until``, ids that end a
    row, an engine yields nothing before all rows are written. Deterministic in weights, prompt and
    ``seed``.

    Raises ConfigError, at the first token, where the prompt is empty or longer than the context,
    the model is in training mode, or the cache does not fit in memory.
    """
    if model.training:
        raise ConfigError(
            "the model is in training mode, with dropout: call model.eval() before generating"
        )
    longest = model.config.max_len if context is None else context
    assert longest is not None, "a saved config is resolved"
    if prompt.shape[1] == 0:
        raise ConfigError("the prompt is empty: give at least one token to continue from")
    if prompt.shape[1] > longest and not isinstance(model, Lstm):
        raise ConfigError(
            f"the prompt has {prompt.shape[1]:,} tokens, more than the context of {longest:,}: "
            "shorten it"
        )
    if model.engine is not None:
        room = longest - prompt.shape[1] + 1
        if n_tokens > room and not isinstance(model, Lstm):
            raise ConfigError(
                f"--engine {model.engine.name} cannot slide beyond the context of {longest:,}: "
                f"give --tokens {room:,} or fewer, or leave --engine out"
            )
        yield from model.engine.generate(prompt, n_tokens, sampling, seed, until)
        return
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
        self._step: PlainStepper | FixedStepper | Stepper
        if not is_unrolled(model):
            self._step = PlainStepper(model, n_rows)
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


Show = Callable[[str], None]
"""Called with each part of a growing text."""
_TOKENS = 200
"""Default number of tokens of a continuation."""


class Continuation:
    """A growing continuation that holds back incomplete characters and possible stops.

    It begins with ``first``, and ends at one of ``ends``, by default the tokenizer's end.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: list[str],
        *,
        show: Show | None = None,
        first: str = "",
        ends: Collection[int] | None = None,
    ) -> None:
        self.text = first
        self.is_over = False
        self._tokenizer = tokenizer
        self._ends = (tokenizer.end_id,) if ends is None else ends
        self._stops = stops
        longest_stop = max(map(len, stops), default=1)
        self._n_held = longest_stop - 1
        """Characters held back, since they may begin a stop."""
        self._show_part = show
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_shown = 0

    def add(self, token: int) -> None:
        """Add a token, unless a stop or the end of a document has ended the text."""
        if self.is_over:
            return
        self.is_over = token in self._ends
        if not self.is_over:
            data = self._tokenizer.decode_after([token])
            self._extend(self._decoder.decode(data))
        self._show(0 if self.is_over else self._n_held)

    def end(self) -> None:
        """Show the text that was held back."""
        if not self.is_over:
            incomplete = self._decoder.decode(b"", final=True)
            self._extend(incomplete)
        self._show(0)

    def _extend(self, text: str) -> None:
        """Add characters, and end the text before the first stop in it."""
        self.text += text
        hits = [self.text.find(stop) for stop in self._stops if stop in self.text]
        if hits:
            self.text = self.text[: min(hits)]
            self.is_over = True

    def _show(self, n_held: int) -> None:
        start = self._n_shown
        end = len(self.text) - n_held
        if self._show_part is not None and end > start:
            self._show_part(self.text[start:end])
            self._n_shown = end


def continue_prompt(
    text_model: TextModel,
    run: Path,
    prompt: str,
    sampling: Sampling,
    *,
    n: int = 1,
    n_tokens: int | None = None,
    stops: list[str],
    seed: int = 0,
    window: Literal["exact", "rolling"] | None = None,
    show: Show | None = None,
) -> tuple[list[str], int, float]:
    """Sample ``n`` continuations of a prompt; ``show`` gets the prompt and the growing first.

    Returns the texts without the prompt, their number of tokens, and the seconds. Raises
    ConfigError for a prompt with a gap or with characters unknown to the tokenizer.
    """
    model = text_model.model
    assert isinstance(model, Decoder), "other models do not predict next tokens"
    if isinstance(model, Lstm) and window is not None:
        raise ConfigError(
            f"--window {window} sets what a decoder sees beyond its context, but {run} is an "
            "LSTM, which reads the whole text into its state: leave it out"
        )
    check_no_gap(run, "a decoder, which continues a text", prompt)
    tokenizer = tokenizer_of(run, text_model)
    ids = encode_prompt(tokenizer, prompt)
    rows = torch.tensor([ids], device=model.embedding.weight.device).expand(n, -1)
    # End-of-word tokens contain a space, and a prompt seldom ends with one.
    ends_word = tokenizer.decode(ids[-1:]).endswith(b" ")
    first = " " if ends_word and not prompt[-1:].isspace() else ""
    ends = text_model.end_ids
    texts = [Continuation(tokenizer, stops, show=show, first=first, ends=ends) for _ in range(n)]
    most = n_tokens or _TOKENS
    path = find_recipe(run)
    context = None if path is None else read_run_recipe(path).data.context
    # Without these, no part of the text is read before its end.
    is_read = bool(stops) or show is not None
    until = None if is_read else sorted(ends)
    start = time.perf_counter()
    steps = generate(
        model,
        rows,
        most,
        sampling,
        seed=seed,
        window=window or "exact",
        context=context,
        until=until,
    )
    n_steps = 0
    for step in _shown(steps, most, None if show is None else lambda: show(prompt)):
        n_steps += 1
        for text, token in zip(texts, step.tolist(), strict=True):
            text.add(token)
        if all(text.is_over for text in texts):
            break
    for text in texts:
        text.end()
    return [text.text for text in texts], n_steps, time.perf_counter() - start


def _shown(
    steps: Iterator[Tensor], n_tokens: int, begin: Callable[[], None] | None
) -> Iterator[Tensor]:
    """Show how many tokens each continuation has; with ``begin``, only the reading of the prompt.

    ``begin`` is called once the first token is there.
    """
    if begin is not None:
        with stage("reading the prompt"):
            first = list(islice(steps, 1))
        if first:
            begin()
        yield from chain(first, steps)
        return
    with stage("generating"):
        for n_done, step in enumerate(steps, start=1):
            text = f"generated {n_done:,} of {count(n_tokens, 'token')}"
            display().change_innermost(text, n_done / n_tokens)
            yield step


def tokenizer_of(run: Path, text_model: TextModel) -> Tokenizer:
    """Return a model's tokenizer; raise ConfigError where it has none."""
    if text_model.tokenizer is None:
        raise ConfigError(
            f"{run} has no tokenizer, so it cannot read a prompt: "
            "import it from a folder that has one"
        )
    return text_model.tokenizer


def check_no_gap(run: Path, kind: str, prompt: str) -> None:
    """Raise ConfigError where a prompt has a gap; ``kind`` names the model's kind."""
    _, names = split_at_gaps(prompt.encode("utf-8", "surrogateescape"))
    if names:
        raise ConfigError(
            f"--prompt has the gap {names[0]:.32}, but {run} is {kind}: leave it out, or name a "
            "run of objective.kind = span, with sentinels, to fill it"
        )


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Encode a prompt; raise ConfigError for characters unknown to the tokenizer.

    A start precedes it where the tokenizer has one. Bytes that are not UTF-8 are encoded unchanged.
    """
    text = prompt.encode("utf-8", "surrogateescape")
    ids: list[int] = tokenizer.encode(text).tolist()
    if tokenizer.unk_id is not None and tokenizer.unk_id in ids:
        # The first character that is unknown by itself, or else the prompt.
        unknown = (char for char in prompt if tokenizer.unk_id in tokenizer.encode(char.encode()))
        raise ConfigError(
            f"--prompt has {next(unknown, prompt)!r}, which is unknown to the model's tokenizer: "
            "leave it out"
        )
    return ids if tokenizer.start_id is None else [tokenizer.start_id, *ids]
