"""Prompts continued by decoders, token by token, or completed by encoder-decoders."""

import codecs
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from sublayer.config.load import find_recipe, read_run_recipe
from sublayer.counts import count
from sublayer.data.tokenizers.base import Tokenizer, split_at_gaps
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.decode.gaps import Completion, FillSettings, fill_gaps, go_on
from sublayer.decode.sample import Sampling, generate
from sublayer.errors import ConfigError
from sublayer.model.transformer import Decoder, Lstm
from sublayer.system.stages import display, stage
from sublayer.text_model import TextModel

Show = Callable[[str], None]
"""Takes the parts of a text as it grows."""
_TOKENS = 200
"""Tokens of a continuation by default."""


@dataclass(frozen=True)
class Continued:
    """Continuations of a prompt, without it, with their tokens and time."""

    texts: list[str]
    n_tokens: int
    seconds: float


class Continuation:
    """A growing continuation that holds back incomplete characters and possible stops.

    It begins with ``first``.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: list[str],
        *,
        show: Show | None = None,
        first: str = "",
    ) -> None:
        self.text = first
        self.is_over = False
        self._tokenizer = tokenizer
        self._stops = stops
        longest_stop = max(map(len, stops), default=1)
        self._n_held = longest_stop - 1
        """Characters that could begin a stop, and are held back until the text continues."""
        self._show_part = show
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_shown = 0

    def add(self, token: int) -> None:
        """Add a token, unless a stop or the end of a document has ended the text."""
        if self.is_over:
            return
        self.is_over = token == self._tokenizer.end_id
        if not self.is_over:
            data = self._tokenizer.decode([token])
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
) -> Continued:
    """Sample ``n`` continuations of a prompt; ``show`` gets the prompt and the growing first.

    Raises ConfigError for a prompt with a gap or with characters unknown to the tokenizer.
    """
    model = text_model.model
    assert isinstance(model, Decoder), "others predict no next token"
    if isinstance(model, Lstm) and window is not None:
        raise ConfigError(
            f"--window {window} says what a decoder sees beyond its context, and {run} is an "
            "LSTM, whose state has read all of the text: leave it out"
        )
    check_no_gap(run, "a decoder, which continues a text", prompt)
    tokenizer = tokenizer_of(run, text_model)
    ids = encode_prompt(tokenizer, prompt)
    rows = torch.tensor([ids], device=model.embedding.weight.device).expand(n, -1)
    first = _space_behind(tokenizer, ids, prompt)
    texts = [Continuation(tokenizer, stops, show=show, first=first) for _ in range(n)]
    most = n_tokens or _TOKENS
    path = find_recipe(run)
    context = None if path is None else read_run_recipe(path).data.context
    start = time.perf_counter()
    steps = generate(
        model, rows, most, sampling, seed=seed, window=window or "exact", context=context
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
    return Continued([text.text for text in texts], n_steps, time.perf_counter() - start)


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


def complete_prompt(
    text_model: TextModel, run: Path, prompt: str, settings: FillSettings, n_tokens: int | None
) -> tuple[list[Completion], float]:
    """Fill the gaps of a prompt, or continue it with a model without gaps; return the seconds.

    At most ``n_tokens`` are written; None: the target length in training. Raises ConfigError for a
    translator, for more tokens than the model writes, and for unknown characters.
    """
    tokenizer = tokenizer_of(run, text_model)
    if isinstance(tokenizer, BilingualTokenizer):
        raise ConfigError(
            f"{run} is a translator, which completes no text: use `sublayer translate {run}`"
        )
    longest = text_model.model.config.max_len - 1
    if n_tokens is not None and n_tokens > longest:
        raise ConfigError(
            f"--tokens {n_tokens} is more than the model writes beside its end, {longest}: "
            "give fewer"
        )
    path = find_recipe(run)
    most_tokens, knows_gaps = settings.most_tokens, bool(tokenizer.sentinel_ids)
    if path is not None:
        recipe = read_run_recipe(path)
        # The target length in training, which counts the end.
        most_tokens = recipe.objective.lengths(recipe.data.context).written - 1
        knows_gaps = recipe.objective.n_sentinels(recipe.data.context) > 0
    settings = replace(settings, most_tokens=n_tokens or most_tokens)
    if not knows_gaps:
        check_no_gap(run, "an encoder-decoder that continues a text", prompt)
    texts, _ = split_at_gaps(prompt.encode("utf-8", "surrogateescape"))
    for text in texts:  # which refuses unknown characters
        encode_prompt(tokenizer, text.decode("utf-8", "surrogateescape"))
    start = time.perf_counter()
    with stage("filling the gaps" if knows_gaps else "continuing the prompt"):
        completions = (fill_gaps if knows_gaps else go_on)(text_model, prompt, settings)
    return completions, time.perf_counter() - start


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
            f"--prompt has the gap {names[0]:.32}, and {run} is {kind}: leave it out, or name a "
            "run of objective.kind = span, with sentinels, to fill it"
        )


def encode_prompt(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Encode a prompt; raise ConfigError for characters unknown to the tokenizer.

    Bytes that are not UTF-8 are encoded as they are.
    """
    text = prompt.encode("utf-8", "surrogateescape")
    ids: list[int] = tokenizer.encode(text).tolist()
    if tokenizer.unk_id is not None and tokenizer.unk_id in ids:
        # The first character that is unknown by itself, or else the prompt.
        unknown = (char for char in prompt if tokenizer.unk_id in tokenizer.encode(char.encode()))
        raise ConfigError(
            f"--prompt has {next(unknown, prompt)!r}, which the model's tokenizer does not know: "
            "leave it out"
        )
    return ids


def _space_behind(tokenizer: Tokenizer, ids: list[int], prompt: str) -> str:
    """Return the space after a prompt's last word where the tokenizer takes the word as complete.

    End-of-word marks contain a space, which a prompt seldom ends with.
    """
    ends_word = tokenizer.decode(ids[-1:]).endswith(b" ")
    return " " if ends_word and not prompt[-1:].isspace() else ""
