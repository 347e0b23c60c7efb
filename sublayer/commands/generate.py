"""``sublayer generate``: go on with a text, a token at a time."""

import codecs
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sublayer.commands.base import JsonOption, emit, say, write_result
from sublayer.config.layers import read_run_recipe
from sublayer.config.limits import LARGEST_FACTOR, LARGEST_SEED, LARGEST_VOCABULARY, MOST_ROWS
from sublayer.errors import ConfigError

if TYPE_CHECKING:
    from sublayer.data.vocabulary import Tokenizer
    from sublayer.model.transformer import Transformer

EXAMPLE = 'sublayer generate runs/gpt --prompt "The " --tokens 200 --temperature 0.8'


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run, a checkpoint, or an imported folder.")],
    prompt: Annotated[str, typer.Option("--prompt", help="The text to go on with.")],
    tokens: Annotated[int, typer.Option("--tokens", min=1, max=1_000_000_000, help="Tokens to add.")] = 200,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature",
            min=0.0,
            max=LARGEST_FACTOR,
            help="Below 1 is more certain, above 1 more varied; 0 is greedy.",
        ),
    ] = 1.0,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", min=1, max=LARGEST_VOCABULARY, help="Choose among the k most probable tokens."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option("--top-p", min=0.0, max=1.0, help="Choose among the fewest tokens whose probabilities reach p."),
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", help="End where this text appears; it is left out. Repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Of what is drawn.")] = 0,
    batch: Annotated[int, typer.Option("--batch", min=1, max=MOST_ROWS, help="Continuations, drawn side by side.")] = 1,
    window: Annotated[
        Literal["exact", "rolling"],
        typer.Option(
            "--window",
            help="Beyond the context: read all of it again for each token, or half of it again whenever it is full.",
        ),
    ] = "exact",
    precision: Annotated[
        Literal["float32", "bfloat16"],
        typer.Option("--precision", help="Of weights and arithmetic; bfloat16 is faster where models are wide."),
    ] = "float32",
    device: Annotated[
        str | None, typer.Option("--device", help="cpu, cuda, cuda:1 ... Default: the GPU where there is one.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a text. One continuation appears as it is made; several, each after a line, when all are done."""
    if any(not each for each in stop or ()):
        raise ConfigError("--stop is empty, which would end every text at once: give some text, or leave it out")
    if not prompt:
        raise ConfigError("--prompt is empty: give at least one character to go on from")

    import torch

    from sublayer.decode.sample import Sampling, generate
    from sublayer.load import load
    from sublayer.machine import choose_device
    from sublayer.model.decoder import Decoder

    sampling = Sampling(temperature, top_k, top_p)
    if temperature == 0.0 and batch > 1:
        raise ConfigError(f"--batch {batch} would give the same text {batch} times with --temperature 0: leave out one")
    chosen_device = choose_device(device)
    model = load(run, device=chosen_device, dtype=getattr(torch, precision))
    if not isinstance(model, Decoder):
        raise ConfigError(f"{run} is an {model.config.kind}, which predicts no next token: name a decoder's run")
    tokenizer = _tokenizer(run, model)
    ids = _encode(tokenizer, prompt)
    rows = torch.tensor([ids], device=chosen_device).expand(batch, -1)
    shows = batch == 1 and not as_json
    texts = [_Text(tokenizer, stop or [], shows=shows) for _ in range(batch)]
    begun = time.perf_counter()
    chosen = generate(model, rows, tokens, sampling, seed=seed, window=window, context=_context(run))
    n_steps = _go_on(texts, (each.tolist() for each in chosen), first=prompt if shows else "")
    seconds = time.perf_counter() - begun
    if shows:
        write_result("\n")
        say(f"{n_steps} tokens, {n_steps / seconds:,.0f} a second")
        return
    result = {"prompt": prompt, "texts": [text.text for text in texts], "tokens": n_steps, "seconds": seconds}
    if as_json:
        emit(result, as_json, _render)
    else:
        write_result(f"{_render(result)}\n")  # as it is, to the last no-break space


class _Text:
    """A continuation as it grows: bytes that do not make a character yet, or could begin a stop, are held back."""

    def __init__(self, tokenizer: "Tokenizer", stops: list[str], *, shows: bool) -> None:
        self.text, self.is_over = "", False
        self._tokenizer, self._stops, self._shows = tokenizer, stops, shows
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._n_shown = 0

    def add(self, token: int) -> None:
        """Add a token, unless the text is over: at a stop, or at the token that ends a document."""
        if self.is_over:
            return
        self.is_over = token == self._tokenizer.end_id
        if not self.is_over:
            self.text += self._decoder.decode(self._tokenizer.decode([token]))
            self._cut()
        self._show(0 if self.is_over else max((len(stop) for stop in self._stops), default=1) - 1)

    def end(self) -> None:
        """Show what was held back."""
        if not self.is_over:
            self.text += self._decoder.decode(b"", final=True)
            self._cut()
        self._show(0)

    def _cut(self) -> None:
        places = [place for place in map(self.text.find, self._stops) if place >= 0]
        if places:
            self.text, self.is_over = self.text[: min(places)], True

    def _show(self, n_held: int) -> None:
        end = max(self._n_shown, len(self.text) - n_held)
        if self._shows and end > self._n_shown:
            write_result(self.text[self._n_shown : end])
            self._n_shown = end


def _go_on(texts: list[_Text], chosen: Iterable[list[int]], *, first: str) -> int:
    """Add tokens to every text until all are over; ``first`` is shown once the model has taken the prompt."""
    n_steps = 0
    for tokens in chosen:
        if n_steps == 0:
            write_result(first)
        n_steps += 1
        for text, token in zip(texts, tokens, strict=True):
            text.add(token)
        if all(text.is_over for text in texts):
            break
    for text in texts:
        text.end()
    return n_steps


def _tokenizer(run: Path, model: "Transformer") -> "Tokenizer":
    if model.tokenizer is None:
        raise ConfigError(f"{run} has no tokenizer, so it cannot read a prompt: import it from a folder that has one")
    tokenizer: Tokenizer = model.tokenizer
    return tokenizer


def _encode(tokenizer: "Tokenizer", prompt: str) -> list[int]:
    ids: list[int] = tokenizer.encode(prompt.encode("utf-8", "surrogateescape")).tolist()
    if tokenizer.unk_id is not None and tokenizer.unk_id in ids:
        unknown = next(
            (each for each in prompt if tokenizer.unk_id in tokenizer.encode(each.encode()).tolist()), prompt
        )
        raise ConfigError(f"--prompt has {unknown!r}, which the model's tokenizer does not know: leave it out")
    return ids


def _context(run: Path) -> int | None:
    from sublayer.load import find_recipe

    path = find_recipe(run)
    return None if path is None else read_run_recipe(path).data.context


def _render(result: Mapping[str, Any]) -> str:
    texts = (f"--- {number}\n{result['prompt']}{text}" for number, text in enumerate(result["texts"], start=1))
    return "\n".join(texts)
