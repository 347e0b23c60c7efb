"""Continuations of a prompt by a decoder, shown as they grow or printed when all are done."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sublayer.commands.generate.continuation import Continuation, extend_all
from sublayer.commands.generate.options import Asked
from sublayer.commands.generate.prompt import (
    check_no_gap,
    encode_prompt,
    space_behind,
    tokenizer_of,
)
from sublayer.commands.shared.base import JsonObject, emit, say, write_result
from sublayer.config.layering.run_recipe import read_run_recipe
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.system.stages import display, stage

if TYPE_CHECKING:
    from sublayer.decode.sample import Sampling
    from sublayer.model.decoder import Decoder

_TOKENS = 200
"""How long continuations are by default."""


def continue_prompt(run: Path, model: "Decoder", sampling: "Sampling", asked: Asked) -> None:
    """Print what a decoder draws after a prompt; raise ConfigError where gaps are asked of it."""
    import torch

    from sublayer.decode.sample import generate
    from sublayer.model.lstm import Lstm

    if isinstance(model, Lstm) and asked.window is not None:
        raise ConfigError(
            f"--window {asked.window} says what a decoder sees beyond its context, and {run} is an "
            "LSTM, whose state has read all of the text: leave it out"
        )
    check_no_gap(run, "a decoder, which continues a text", asked.prompt)
    if asked.beam is not None:
        raise ConfigError(
            f"--beam {asked.beam} is of filling gaps, and {run} is a decoder: leave it out"
        )
    tokenizer = tokenizer_of(run, model)
    ids = encode_prompt(tokenizer, asked.prompt)
    row = torch.tensor([ids], device=model.embedding.weight.device)
    rows = row.expand(asked.batch, -1)
    is_shown = asked.batch == 1 and not asked.as_json
    space = space_behind(tokenizer, ids, asked.prompt)
    texts = [
        Continuation(tokenizer, asked.stops, is_shown=is_shown, first=space)
        for _ in range(asked.batch)
    ]
    start = time.perf_counter()
    steps = generate(
        model,
        rows,
        asked.tokens or _TOKENS,
        sampling,
        seed=asked.seed or 0,
        window=asked.window or "exact",
        context=_context(run),
    )
    token_lists = (step.tolist() for step in steps)
    if is_shown:
        n_steps = extend_all(texts, _after_prompt(token_lists), first=asked.prompt)
    else:
        with stage("generating"):
            counted = _counted(token_lists, asked.tokens or _TOKENS)
            n_steps = extend_all(texts, counted, first="")
    seconds = time.perf_counter() - start
    if is_shown:
        write_result("\n")
        say(f"{count(n_steps, 'token')}, {n_steps / seconds:,.0f} a second")
    else:
        drawn = [text.text for text in texts]
        result = {"prompt": asked.prompt, "texts": drawn, "tokens": n_steps, "seconds": seconds}
        _print(result, asked.as_json)


def _after_prompt(steps: Iterator[list[int]]) -> Iterator[list[int]]:
    """Show that the prompt is being read until the first token is there."""
    with stage("reading the prompt"):
        first = next(steps, None)
    if first is not None:
        yield first
        yield from steps


def _counted(steps: Iterator[list[int]], n_tokens: int) -> Iterator[list[int]]:
    """Show how many tokens each continuation has."""
    for n_done, step in enumerate(steps, start=1):
        text = f"generated {n_done:,} of {count(n_tokens, 'token')}"
        display().change_innermost(text, n_done / n_tokens)
        yield step


def _context(run: Path) -> int | None:
    from sublayer.loading import find_recipe

    path = find_recipe(run)
    return None if path is None else read_run_recipe(path).data.context


def _print(result: JsonObject, as_json: bool) -> None:
    if as_json:
        emit(result, as_json, _render)
    else:
        write_result(f"{_render(result)}\n")  # as it is, to the last no-break space


def _render(result: JsonObject) -> str:
    texts = (
        f"--- {number}\n{result['prompt']}{text}"
        for number, text in enumerate(result["texts"], start=1)
    )
    return "\n".join(texts)
