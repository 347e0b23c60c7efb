"""Texts that models write: prompts continued, masks and gaps filled, lines translated."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sublayer.api.arguments import (
    Average,
    Beam,
    Device,
    LengthPenalty,
    LengthRule,
    MaxLengthOffset,
    MaxLengthRatio,
    Model,
    SearchBeam,
    Seed,
    Temperature,
    TopK,
    TopP,
    loaded,
)
from sublayer.api.results import html_table, page, prose
from sublayer.config.limits import MOST_ROWS, WIDEST_BEAM
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.options import Option, PathText, checked
from sublayer.system.memory import keep_freed_memory
from sublayer.system.stages import display, note, stage
from sublayer.tables import table
from sublayer.values import given_lines

if TYPE_CHECKING:
    from sublayer.decode.gaps import Completion
    from sublayer.decode.prompted import Show
    from sublayer.model.output import Filling


@dataclass(frozen=True, repr=False)
class Texts:
    """Continuations of a prompt, without it; as a string, the prompt and the first."""

    prompt: str
    texts: list[str]
    n_tokens: int
    """Tokens drawn for each."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return what ``sublayer generate --json`` prints of a decoder."""
        return {
            "prompt": self.prompt,
            "texts": self.texts,
            "tokens": self.n_tokens,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        return f"{self.prompt}{self.texts[0]}"

    def __repr__(self) -> str:
        if len(self.texts) == 1:
            return str(self)
        lines = [f"--- {number}\n{text}" for number, text in enumerate(self.texts, start=1)]
        return "\n".join([self.prompt, *lines])

    def _repr_html_(self) -> str:
        return page(*(prose(text, before=self.prompt) for text in self.texts))


@dataclass(frozen=True, repr=False)
class Completions:
    """A text with its gaps filled, the best completion first; as a string, that one."""

    prompt: str
    completions: "list[Completion]"
    seconds: float

    @property
    def texts(self) -> list[str]:
        """The completed texts."""
        return [completion.text for completion in self.completions]

    def to_dict(self) -> dict[str, Any]:
        """Return what ``sublayer generate --json`` prints of an encoder-decoder."""
        described = []
        for completion in self.completions:
            gaps = [
                {"text": gap.text, "score": gap.score, "tokens": gap.n_tokens}
                for gap in completion.gaps
            ]
            described.append(
                {
                    "text": completion.text,
                    "score": completion.score,
                    "tokens": completion.n_tokens,
                    "gaps": gaps,
                    "unplaced": completion.unplaced,
                }
            )
        return {"prompt": self.prompt, "completions": described, "seconds": self.seconds}

    def __str__(self) -> str:
        return self.texts[0]

    def __repr__(self) -> str:
        return "\n".join(self.texts)

    def _repr_html_(self) -> str:
        rows = [[completion.text, f"{completion.score:.4f}"] for completion in self.completions]
        return page(html_table(["text", "score"], rows))


@dataclass(frozen=True, repr=False)
class Fillings:
    """The likeliest fillings of each mask of a text, the likeliest first."""

    text: str
    masks: "list[list[Filling]]"

    @property
    def texts(self) -> list[str]:
        """The text with each filling of its first mask, the likeliest first."""
        return [filling.completed for filling in self.masks[0]]

    def to_dict(self) -> dict[str, Any]:
        """Return what ``sublayer fill --json`` prints."""
        masks = [[filling.to_json() for filling in mask] for mask in self.masks]
        return {"text": self.text, "masks": masks}

    def __repr__(self) -> str:
        shown = []
        for number, mask in enumerate(self.masks, start=1):
            rows = [
                (filling.text, f"{filling.probability:.4f}", filling.completed) for filling in mask
            ]
            name = "filling" if len(self.masks) == 1 else f"mask {number}"
            shown.append(
                table([name, "probability", "text"], rows, right=[1])
                if rows
                else f"{name}: nothing of what the model wrote fills it, as a T5 trained on gaps "
                "does"
            )
        return "\n\n".join(shown)

    def _repr_html_(self) -> str:
        shown = []
        for mask in self.masks:
            rows = [[filling.text, f"{filling.probability:.4f}"] for filling in mask]
            shown.append(html_table(["filling", "probability"], rows))
        return page(*shown)


@dataclass(frozen=True)
class TranslatedLine:
    """The translations of a line, the best first; none of an empty line or one that is too long."""

    number: int
    """Of the line, from 1."""
    texts: list[str]
    scores: list[float]
    """In nats, divided as the length rule says."""
    n_tokens: int
    """Tokens of the line, its end included."""
    n_unknown: int
    """Those that the vocabulary does not have."""
    is_too_long: bool


@dataclass(repr=False)
class Translations:
    """Translations of lines, in order; as a string, the best of each."""

    sources: list[str] = field(default_factory=list)
    """The lines; empty where they were translated as they came."""
    lines: list[TranslatedLine] = field(default_factory=list)
    """Empty where each was shown as it was translated."""
    n_lines: int = 0
    n_tokens: int = 0
    """Tokens of the lines."""
    n_too_long: int = 0
    """Lines that were not translated, and stay empty."""
    n_unknown: int = 0
    """Tokens of the lines that the vocabulary does not have."""

    def add(self, line: TranslatedLine, *, is_kept: bool) -> None:
        """Count the next line, and keep its translations where that is asked."""
        self.n_lines += 1
        self.n_tokens += line.n_tokens
        self.n_too_long += line.is_too_long
        self.n_unknown += line.n_unknown
        if is_kept:
            self.lines.append(line)

    @property
    def texts(self) -> list[str]:
        """The best translation of each line; empty where the line was too long."""
        return [line.texts[0] if line.texts else "" for line in self.lines]

    def left_out(self) -> Iterator[str]:
        """Say how many lines were too long, and how many tokens are unknown."""
        if self.n_too_long:
            yield f"too long, and empty: {self.n_too_long:,} of {count(self.n_lines, 'line')}"
        if self.n_unknown:
            yield (
                f"unknown to the vocabulary: {self.n_unknown:,} of the input's "
                f"{count(self.n_tokens, 'token')}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return what ``sublayer translate --json`` prints."""
        listed = []
        for line in self.lines:
            pairs = zip(line.texts, line.scores, strict=True)
            translations = [{"text": text, "score": score} for text, score in pairs]
            listed.append({"line": line.number, "translations": translations})
        return {
            "lines": self.n_lines,
            "too_long": self.n_too_long,
            "unknown_tokens": self.n_unknown,
            "translations": listed,
        }

    def __repr__(self) -> str:
        return "\n".join(self.texts)

    def _repr_html_(self) -> str:
        rows = list(zip(self.sources, self.texts, strict=False))
        return page(html_table(["source", "translation"], rows))


Tokens = Annotated[
    int | None,
    Option(
        "Tokens to add. Default: 200, or what the targets of a run that fills gaps have.",
        least=1,
        most=1_000_000_000,
    ),
]


@checked
def generate(
    run: Model,
    prompt: Annotated[
        str, Option("The text to continue, or, with gaps <extra_id_0> ..., to complete.")
    ],
    *,
    tokens: Tokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    stop: Annotated[
        Sequence[str],
        Option("End where this text appears; it is left out. Repeatable."),
    ] = (),
    seed: Seed = None,
    n: Annotated[
        int,
        Option(
            "Number of continuations, sampled side by side.",
            flag="--batch",
            least=1,
            most=MOST_ROWS,
        ),
    ] = 1,
    beam: Beam = None,
    window: Annotated[
        Literal["exact", "rolling"] | None,
        Option(
            "Beyond the context: read all of it again for each token, "
            "or half of it again whenever it is full. Default: exact."
        ),
    ] = None,
    precision: Annotated[
        Literal["float32", "bfloat16"],
        Option("Precision of weights and arithmetic; bfloat16 is faster where models are wide."),
    ] = "float32",
    device: Device = None,
    show: "Show | None" = None,
) -> Texts | Completions:
    """Continue a prompt by a decoder or an LSTM, ``n`` times side by side.

    An encoder-decoder that was trained on gaps fills those of the prompt, as ``fill`` does.
    ``show`` is called with the parts of a single continuation as they are made. Raises ConfigError
    for an empty prompt, for characters unknown to the tokenizer, for options that have no effect on
    the model, and for a model that writes no next token.
    """
    if "" in stop:
        raise ConfigError(
            "--stop is empty, which would end every text at once: give some text, or leave it out"
        )
    if not prompt:
        raise ConfigError("--prompt is empty: give at least one character to continue from")
    options = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--seed": seed}
    drawn_by = _check_drawn(options, n, beam)
    path = Path(run)
    with stage("starting PyTorch"):
        import torch

        from sublayer.decode.gaps import FillSettings
        from sublayer.decode.prompted import complete_prompt, continue_prompt
        from sublayer.decode.sample import Sampling
        from sublayer.model.build import Decoder, EncoderDecoder

    sampling = Sampling(1.0 if temperature is None else temperature, top_k, top_p)
    text_model = loaded(run, device, getattr(torch, precision))
    model = text_model.model
    if isinstance(model, EncoderDecoder):
        _check_no_decoder(path, window, stop)
        settings = FillSettings(beam or 1, sampling if drawn_by else None, n, seed or 0)
        completions, seconds = complete_prompt(text_model, path, prompt, settings, tokens)
        return Completions(prompt, completions, seconds)
    if not isinstance(model, Decoder):
        raise ConfigError(
            f"{path} is an {model.config.kind}, which predicts no next token: name a decoder's run"
        )
    if beam is not None:
        raise ConfigError(
            f"--beam {beam} is of filling gaps, and {path} is a decoder: leave it out"
        )
    continued = continue_prompt(
        text_model,
        path,
        prompt,
        sampling,
        n=n,
        n_tokens=tokens,
        stops=list(stop),
        seed=seed or 0,
        window=window,
        show=show,
    )
    return Texts(prompt, continued.texts, continued.n_tokens, continued.seconds)


@checked
def fill(
    run: Model,
    text: Annotated[
        str,
        Option(
            "The text, with [MASK] where a word is missing, once or several times; of a T5 also "
            "<extra_id_0>, <extra_id_1> ..."
        ),
    ],
    *,
    beam: int | None = None,
    tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    n: Annotated[
        int | None, Option("Fillings of each mask. Default: 5.", least=1, most=1000)
    ] = None,
    device: Device = None,
) -> Completions | Fillings:
    """Fill the masks of a text by an encoder, or its gaps by an encoder-decoder.

    An encoder's masks are ``[MASK]``: the ``n`` (5) likeliest fillings of each, with probabilities.
    Of an encoder-decoder gaps are ``<extra_id_0>`` and so on, and there are whole completions:
    greedy, by a ``beam`` of hypotheses, whose best come first, or drawn, ``n`` times; ``tokens``
    are written at most. Raises ConfigError for a model that fills none.
    """
    with stage("starting PyTorch"):
        from sublayer.loading import find_model
        from sublayer.model.model_folder import read_config

    kind = read_config(find_model(Path(run))).kind
    if kind == "encoder":
        if any(value is not None for value in (beam, tokens, temperature, top_k, top_p, seed)):
            raise ConfigError(
                f"{fspath(run)} is an encoder, which gives the probability of each filling, and "
                "searches or draws none: leave out all but n"
            )
        return fill_masks(run, text, n=n or 5, device=device)
    if kind != "encoder-decoder":
        raise ConfigError(f"{fspath(run)} is a {kind}, which fills no gaps: use generate")
    found = generate(
        run,
        text,
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        n=n or 1,
        beam=beam,
        device=device,
    )
    assert isinstance(found, Completions), "an encoder-decoder completes"
    return found


def fill_masks(run: PathText, text: str, *, n: int = 5, device: str | None = None) -> Fillings:
    """List the ``n`` likeliest fillings of each mask of a text, by an encoder or a T5."""
    with stage("starting PyTorch"):
        from sublayer.decode import gaps

    text_model = loaded(run, device)
    with stage("filling"):
        return Fillings(text, gaps.fill_masks(text_model, text, n))


def _check_drawn(options: dict[str, float | None], n: int, beam: int | None) -> str | None:
    """Return the first option that asks for something drawn; None where there is none.

    Raises ConfigError for options of which one has no effect beside the other.
    """
    if options["--temperature"] == 0.0 and n > 1:
        raise ConfigError(
            f"--batch {n} would give the same text {n} times with --temperature 0: leave out one"
        )
    options = {**options, "--batch": n if n > 1 else None}
    given = (f"{name} {value:g}" for name, value in options.items() if value is not None)
    drawn_by = next(given, None)
    if beam is not None and drawn_by is not None:
        raise ConfigError(
            f"--beam {beam} finds the most probable, and {drawn_by} is of what is drawn: "
            "leave out one"
        )
    return drawn_by


def _check_no_decoder(run: Path, window: str | None, stop: Sequence[str]) -> None:
    """Raise ConfigError for options of decoders alone."""
    if window is not None:
        raise ConfigError(
            f"--window {window} is of decoders, which continue beyond their context, and "
            f"{fspath(run)} is an encoder-decoder: leave it out"
        )
    if stop:
        raise ConfigError(
            f"--stop {stop[0]!r} is of decoders, and {fspath(run)} is an encoder-decoder, which "
            "ends by itself: leave it out"
        )


@checked
def translate(
    run: Model,
    lines: Iterable[str],
    *,
    beam: SearchBeam = None,
    length_rule: LengthRule = None,
    length_penalty: LengthPenalty = None,
    max_length_ratio: MaxLengthRatio = None,
    max_length_offset: MaxLengthOffset = None,
    n_best: Annotated[
        int | None,
        Option(
            "Print so many translations of each line: its number, score and text.",
            least=1,
            most=WIDEST_BEAM,
        ),
    ] = None,
    words: Annotated[
        bool,
        Option("Read and print words that spaces divide, as the vocabulary has them."),
    ] = False,
    average: Average = None,
    batch: Annotated[
        int,
        Option(
            "Lines translated at a time; affects speed and memory only.", least=1, most=MOST_ROWS
        ),
    ] = 32,
    window: Annotated[
        int,
        Option(
            "Lines read before the first is printed, sorted by length.", least=1, most=MOST_ROWS
        ),
    ] = 2048,
    device: Device = None,
    show: "Callable[[TranslatedLine], None] | None" = None,
) -> Translations:
    """Translate lines, in order; ``n_best`` gives so many of each, with scores in nats.

    A line that is longer than the model reads stays empty. With ``show``, which is called with each
    line as it is translated, ``lines`` are read as they come, and none is kept. Raises ConfigError
    for a model that is no translator, and for a text that is no list of lines.
    """
    if isinstance(lines, str):
        raise ConfigError("lines is one text: give a list of lines, such as text.splitlines()")
    sources = None if show is not None else given_lines(lines)
    if sources is not None and any("\n" in line for line in sources):
        raise ConfigError("a line has a line break in it: give each line by itself")
    with stage("starting PyTorch"):
        from sublayer.config.run_recipe import read_run_recipe
        from sublayer.decode.translate import tokenizer_of, translate_lines
        from sublayer.loading import find_recipe
        from sublayer.model.build import EncoderDecoder
        from sublayer.objective.translation.family import beam_settings

    search = {
        "beam": beam,
        "length_rule": length_rule,
        "length_penalty": length_penalty,
        "max_length_ratio": max_length_ratio,
        "max_length_offset": max_length_offset,
    }
    search = {name: value for name, value in search.items() if value is not None}
    path = find_recipe(Path(run))
    settings = beam_settings(None if path is None else read_run_recipe(path), search)
    if n_best is not None and n_best > settings.beam:
        raise ConfigError(
            f"--n-best {n_best} is more than the {settings.beam} hypotheses of --beam: give a "
            "wider beam"
        )
    keep_freed_memory()
    text_model = loaded(run, device, average=average)
    model = text_model.model
    if not isinstance(model, EncoderDecoder):
        raise ConfigError(
            f"{fspath(run)} is a {model.config.kind}, which translates nothing: name a "
            "translator's run"
        )
    tokenizer = tokenizer_of(text_model)
    found = Translations(sources or [])

    def progress(n_done: int) -> None:
        display().change_innermost(f"translated {count(found.n_lines + n_done, 'line')}")

    translations = translate_lines(
        text_model,
        lines if sources is None else sources,
        settings,
        sentences=batch,
        window=window,
        are_words=words,
        progress=progress,
    )
    for number, translation in enumerate(translations, start=1):
        if translation.is_too_long:
            note(
                f"line {number} has {count(translation.n_tokens, 'token')}, more than the "
                f"{model.config.max_len:,} that the model reads"
            )
        texts = [
            " ".join(tokenizer.words(one.ids)) if words else tokenizer.write(one.ids)
            for one in translation.hypotheses[: n_best or 1]
        ]
        scores = [one.score for one in translation.hypotheses[: n_best or 1]]
        line = TranslatedLine(
            number,
            texts,
            scores,
            translation.n_tokens,
            translation.n_unknown,
            translation.is_too_long,
        )
        found.add(line, is_kept=show is None)
        if show is not None:
            show(line)
    if show is None:
        for text in found.left_out():
            note(text)
    return found
