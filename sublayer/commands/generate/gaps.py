"""A prompt completed by an encoder-decoder: its gaps are filled, or it continues."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sublayer.commands.generate.options import Asked
from sublayer.commands.generate.prompt import check_no_gap, encode_prompt, tokenizer_of
from sublayer.commands.shared.base import JsonObject, emit, say, write_result
from sublayer.commands.shared.text_options import recipe_of
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.system.stages import stage

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.tokenizers.base import Tokenizer
    from sublayer.decode.gaps.completion import Completion, FillSettings
    from sublayer.decode.sample import Sampling
    from sublayer.model.encoder_decoder import EncoderDecoder

_UNDERLINED, _PLAIN = "\x1b[4m", "\x1b[24m"


def complete_prompt(run: Path, model: "EncoderDecoder", sampling: "Sampling", asked: Asked) -> None:
    """Print a prompt with its gaps filled, or, of a model that knows no gaps, with what follows.

    Of a beam's completions the best is printed; JSON has all.

    Raises ConfigError for what the model cannot do, and for options that have no effect on it.
    """
    from sublayer.decode.gaps.fill import fill_gaps, go_on

    _check_options(run, asked)
    tokenizer = tokenizer_of(run, model)
    _check_no_translator(run, tokenizer)
    recipe = recipe_of(run)
    settings = _settings(model, recipe, sampling, asked)
    knows_gaps = _knows_gaps(recipe, tokenizer)
    if knows_gaps:
        _check_known(tokenizer, asked.prompt)
    else:
        check_no_gap(run, "an encoder-decoder that continues a text", asked.prompt)
        encode_prompt(tokenizer, asked.prompt)  # which refuses what is unknown
    complete = fill_gaps if knows_gaps else go_on
    start = time.perf_counter()
    with stage("filling the gaps" if knows_gaps else "continuing the prompt"):
        completions = complete(model, asked.prompt, settings)
    seconds = time.perf_counter() - start
    if asked.as_json:
        described = [_described(each) for each in completions]
        result = {"prompt": asked.prompt, "completions": described, "seconds": seconds}
        emit(result, asked.as_json, str)
    else:
        _print(completions, asked.batch, seconds)


def _check_options(run: Path, asked: Asked) -> None:
    """Raise ConfigError for options of decoders alone."""
    if asked.window is not None:
        raise ConfigError(
            f"--window {asked.window} is of decoders, which continue beyond their context, and "
            f"{run} is an encoder-decoder: leave it out"
        )
    if asked.stops:
        raise ConfigError(
            f"--stop {asked.stops[0]!r} is of decoders, and {run} is an encoder-decoder, which "
            "ends by itself: leave it out"
        )


def _check_no_translator(run: Path, tokenizer: "Tokenizer") -> None:
    from sublayer.data.tokenizers.bilingual import BilingualTokenizer

    if isinstance(tokenizer, BilingualTokenizer):
        raise ConfigError(
            f"{run} is a translator, which completes no text: use `sublayer translate {run}`"
        )


def _settings(
    model: "EncoderDecoder", recipe: "Recipe | None", sampling: "Sampling", asked: Asked
) -> "FillSettings":
    from sublayer.decode.gaps.completion import FillSettings

    longest = model.config.max_len - 1
    if asked.tokens is not None and asked.tokens > longest:
        raise ConfigError(
            f"--tokens {asked.tokens} is more than the model writes beside its end, {longest}: "
            "give fewer"
        )
    most_tokens = FillSettings.most_tokens
    if recipe is not None:
        # As many as targets had in training, which counts their end.
        most_tokens = recipe.objective.lengths(recipe.data.context).written - 1
    return FillSettings(
        beam=asked.beam or 1,
        sampling=sampling if asked.drawn_by else None,
        n_drawn=asked.batch,
        seed=asked.seed or 0,
        most_tokens=asked.tokens or most_tokens,
    )


def _knows_gaps(recipe: "Recipe | None", tokenizer: "Tokenizer") -> bool:
    """Return whether a model was trained on gaps, as far as is known of one without a recipe."""
    if recipe is None:
        return bool(tokenizer.sentinel_ids)
    return recipe.objective.n_sentinels(recipe.data.context) > 0


def _check_known(tokenizer: "Tokenizer", prompt: str) -> None:
    """Raise ConfigError where the text around gaps has what the tokenizer does not know."""
    from sublayer.data.tokenizers.sentinels import split_at_gaps

    texts, _ = split_at_gaps(prompt.encode("utf-8", "surrogateescape"))
    for text in texts:
        encode_prompt(tokenizer, text.decode("utf-8", "surrogateescape"))


def _described(completion: "Completion") -> JsonObject:
    gaps = [
        {"text": gap.text, "score": gap.score, "tokens": gap.n_tokens} for gap in completion.gaps
    ]
    return {
        "text": completion.text,
        "score": completion.score,
        "tokens": completion.n_tokens,
        "gaps": gaps,
        "unplaced": completion.unplaced,
    }


def _print(completions: list["Completion"], n_drawn: int, seconds: float) -> None:
    best = completions[0]
    if n_drawn == 1:
        write_result(f"{_shown(best)}\n")
        _say_unplaced(best)
        say(f"{count(best.n_tokens, 'token')}, {best.n_tokens / seconds:,.0f} a second")
        return
    for number, each in enumerate(completions, start=1):
        write_result(f"--- {number}\n{_shown(each)}\n")
        _say_unplaced(each)


def _say_unplaced(completion: "Completion") -> None:
    if completion.unplaced:
        say(f"written for no gap, and left out: {completion.unplaced!r}")


def _shown(completion: "Completion") -> str:
    """Return the text, on a terminal with what fills its gaps underlined."""
    if not is_terminal():
        return completion.text
    shown = ""
    end = 0
    for gap in completion.gaps:
        shown += completion.text[end : gap.place.start]
        if gap.text:
            shown += f"{_UNDERLINED}{gap.text}{_PLAIN}"
        end = gap.place.stop
    return shown + completion.text[end:]


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()
