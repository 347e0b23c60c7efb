"""Outputs of models: continuations, fillings, translations, answers, and vectors of texts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from sublayer.api.arguments import (
    Average,
    BeamSearch,
    Decoding,
    Device,
    Engine,
    Model,
    Plugins,
    as_paths,
    loaded,
    starting,
)
from sublayer.api.results import Result, html_table, page, prose
from sublayer.config.table import LARGEST_PENALTY, MOST_ROWS, WIDEST_BEAM
from sublayer.errors import ConfigError, check_rules
from sublayer.numbers import count, with_article
from sublayer.options import Option, PathText, checked
from sublayer.system.machine import keep_freed_memory
from sublayer.system.terminal import display, note, stage
from sublayer.tables import table
from sublayer.text_model import TextModel
from sublayer.values import given_lines

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from sublayer.decode.beam import TranslatedLine as Searched
    from sublayer.decode.gaps import Completion, Filling
    from sublayer.decode.sample import Sampling, Show
    from sublayer.objective.supervised.answering import Answerer
    from sublayer.tasks.predicting import NamedPrediction


EMPTY = "(empty)"
"""Symbol for an empty filling, which would be invisible."""


def numbered(texts: Sequence[str]) -> str:
    """Return a single text unchanged, or several, each below its number."""
    if len(texts) == 1:
        return texts[0]
    return "\n".join(f"--- {number}\n{text}" for number, text in enumerate(texts, start=1))


@dataclass(frozen=True, repr=False)
class Texts(Result):
    """Continuations of a prompt, without it; as a string, the prompt and the first."""

    prompt: str
    texts: list[str]
    n_tokens: int
    """Tokens sampled for each."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``sublayer generate --json`` for a decoder."""
        about = {"tokens": self.n_tokens, "seconds": self.seconds}
        return {"prompt": self.prompt, "texts": self.texts, **about}

    def __str__(self) -> str:
        return f"{self.prompt}{self.texts[0]}"

    def __repr__(self) -> str:
        return numbered([f"{self.prompt}{text}" for text in self.texts])

    def _repr_html_(self) -> str:
        return page(*(prose(text, before=self.prompt) for text in self.texts))


@dataclass(frozen=True, repr=False)
class Completions(Result):
    """A text with its gaps filled, the best completion first; as a string, the best."""

    prompt: str
    completions: "list[Completion]"
    seconds: float

    @property
    def texts(self) -> list[str]:
        """The completed texts."""
        return [completion.text for completion in self.completions]

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``sublayer generate --json`` for an encoder-decoder."""
        described = [
            {
                "text": completion.text,
                "score": completion.score,
                "tokens": completion.n_tokens,
                "gaps": [
                    {"text": gap.text, "score": gap.score, "tokens": gap.n_tokens}
                    for gap in completion.gaps
                ],
                "unplaced": completion.unplaced,
            }
            for completion in self.completions
        ]
        return {"prompt": self.prompt, "completions": described, "seconds": self.seconds}

    def __str__(self) -> str:
        return self.texts[0]

    def __repr__(self) -> str:
        return numbered(self.texts)

    def _repr_html_(self) -> str:
        rows = [[completion.text, f"{completion.score:.4f}"] for completion in self.completions]
        return page(html_table(["text", "score"], rows))


@dataclass(frozen=True, repr=False)
class Fillings(Result):
    """The likeliest fillings of each mask of a text, the likeliest first."""

    text: str
    masks: "list[list[Filling]]"

    @property
    def texts(self) -> list[str]:
        """The text with each filling of its first mask, the likeliest first."""
        return [filling.completed for filling in self.masks[0]]

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``sublayer fill --json``."""
        masks = [[filling.to_json() for filling in mask] for mask in self.masks]
        return {"text": self.text, "masks": masks}

    def __str__(self) -> str:
        shown = []
        for number, mask in enumerate(self.masks, start=1):
            rows = [
                (filling.text or EMPTY, f"{filling.probability:.4f}", filling.completed)
                for filling in mask
            ]
            name = "filling" if len(self.masks) == 1 else f"mask {number}"
            shown.append(
                table([name, "probability", "text"], rows, right=[1])
                if rows
                else f"{name}: no part of the model's text fills it; a T5 trained on gaps would"
            )
        return "\n\n".join(shown)

    def _repr_html_(self) -> str:
        rows = [
            [[filling.text or EMPTY, f"{filling.probability:.4f}"] for filling in mask]
            for mask in self.masks
        ]
        return page(*(html_table(["filling", "probability"], of_mask) for of_mask in rows))


@dataclass(frozen=True)
class TranslatedLine:
    """The translations of a line, the best first; none for an empty or overlong line."""

    number: int
    """Line number, from 1."""
    texts: list[str]
    scores: list[float]
    """In nats, divided by the length rule."""
    n_tokens: int
    """Tokens of the line, its end included."""
    n_unknown: int
    """Tokens unknown to the vocabulary."""
    is_too_long: bool

    @classmethod
    def of(
        cls, number: int, read: "Searched", n_best: int, write: Callable[[Any], str]
    ) -> "TranslatedLine":
        """Write the ``n_best`` hypotheses of a line."""
        best = read.hypotheses[:n_best]
        texts, scores = [write(each.ids) for each in best], [each.score for each in best]
        return cls(number, texts, scores, read.n_tokens, read.n_unknown, read.is_too_long)

    @property
    def pairs(self) -> list[dict[str, Any]]:
        """Each translation with its score."""
        pairs = zip(self.texts, self.scores, strict=True)
        return [{"text": text, "score": score} for text, score in pairs]


@dataclass(repr=False)
class Translations(Result):
    """Translations of lines, in order; as a string, the best of each."""

    sources: list[str] = field(default_factory=list)
    """The lines; empty if they were translated from a stream."""
    lines: list[TranslatedLine] = field(default_factory=list)
    """Empty if each was shown as it was translated."""
    n_lines: int = 0
    n_tokens: int = 0
    """Tokens of the lines."""
    n_too_long: int = 0
    """Lines that were not translated, and stay empty."""
    n_unknown: int = 0
    """Tokens of the lines unknown to the vocabulary."""

    def add(self, line: TranslatedLine, *, is_kept: bool) -> None:
        """Count the next line, and optionally keep its translations."""
        self.n_lines += 1
        self.n_tokens += line.n_tokens
        self.n_too_long += line.is_too_long
        self.n_unknown += line.n_unknown
        if is_kept:
            self.lines.append(line)

    @property
    def texts(self) -> list[str]:
        """The best translation of each line; empty for an overlong line."""
        return [line.texts[0] if line.texts else "" for line in self.lines]

    def left_out(self) -> Iterator[str]:
        """Report the numbers of overlong lines and unknown tokens."""
        if self.n_too_long:
            yield f"left empty, too long: {self.n_too_long:,} of {count(self.n_lines, 'line')}"
        if self.n_unknown:
            yield (
                f"unknown to the vocabulary: {self.n_unknown:,} of the input's "
                f"{count(self.n_tokens, 'token')}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``sublayer translate --json``."""
        listed = [{"line": line.number, "translations": line.pairs} for line in self.lines]
        return {
            "lines": self.n_lines,
            "too_long": self.n_too_long,
            "unknown_tokens": self.n_unknown,
            "translations": listed,
        }

    def __str__(self) -> str:
        return "\n".join(self.texts)

    def _repr_html_(self) -> str:
        rows = list(zip(self.sources, self.texts, strict=False))
        return page(html_table(["source", "translation"], rows))


Prompt = Annotated[str, Option("Text to continue, or to complete at its gaps <extra_id_0> ...")]
AddedTokens = Annotated[
    int | None,
    Option(
        "Number of tokens to add. Default: 200, or the target length of a run that fills gaps.",
        least=1,
        most=1_000_000_000,
    ),
]
Stops = Annotated[
    Sequence[str],
    Option("Text at which to end, itself left out. Repeatable."),
]
Continuations = Annotated[
    int,
    Option(
        "Number of continuations, sampled side by side.",
        flag="--batch",
        least=1,
        most=MOST_ROWS,
    ),
]
Window = Annotated[
    Literal["exact", "rolling"] | None,
    Option(
        "Sliding beyond the context: reread all of it for each token, or half of it whenever it "
        "is full. Default: exact."
    ),
]
Precision = Annotated[
    Literal["float32", "bfloat16"],
    Option("Precision of weights and arithmetic; bfloat16 is faster where models are wide."),
]


@checked
def generate(
    run: Model,
    prompt: Prompt,
    *,
    tokens: AddedTokens = None,
    stop: Stops = (),
    n: Continuations = 1,
    window: Window = None,
    precision: Precision = "float32",
    engine: Engine = None,
    device: Device = None,
    plugins: Plugins = (),
    show: "Show | None" = None,
    **decoding: Unpack[Decoding],
) -> Texts | Completions:
    """Continue a prompt by a decoder or an LSTM, with ``n`` samples in a batch.

    An encoder-decoder trained on gaps fills the prompt's gaps, ``<extra_id_0>`` and so on:
    greedily, by a ``beam`` of hypotheses, best first, or ``n`` times by sampling. ``show`` receives
    the parts of a single continuation as they are generated. Raises ConfigError for an empty
    prompt, for characters unknown to the tokenizer, for options that have no effect on the model,
    and for a model that predicts no next token.
    """
    beam, seed = decoding.get("beam"), decoding.get("seed") or 0
    drawn = {**decoding, "beam": None, "batch": n if n > 1 else None}
    drawn_by = [f"--{name.replace('_', '-')} {x:g}" for name, x in drawn.items() if x is not None]
    check_rules(
        "",
        (
            "" in stop,
            "--stop is empty and would end every text at once: give some text, or leave it out",
        ),
        (not prompt, "--prompt is empty: give at least one character to continue from"),
        (
            engine and window,
            f"--window {window} has no effect with --engine {engine}: leave it out",
        ),
        (
            decoding.get("temperature") == 0.0 and n > 1,
            f"--batch {n} would give the same text {n} times with --temperature 0: leave out one",
        ),
        (
            beam is not None and drawn_by,
            f"--beam {beam} finds the most probable text, but {' '.join(drawn_by[:1])} samples "
            "tokens: leave out one",
        ),
    )
    path = Path(run)
    with starting(run):
        import torch

        from sublayer.decode.gaps import FillSettings, complete_prompt
        from sublayer.decode.sample import Sampling, continue_prompt
        from sublayer.model.transformer import Decoder, EncoderDecoder

    sampling = _sampling(decoding) or Sampling(1.0, None, None)
    dtype = None if engine and precision == "float32" else getattr(torch, precision)
    text_model = loaded(run, device, dtype, engine=engine)
    kind = text_model.model.config.kind
    of_decoders = {"--window": window, "--stop": " ".join(map(repr, stop)) or None}
    of_decoders["--engine"] = engine
    if isinstance(text_model.model, EncoderDecoder):
        for name, value in of_decoders.items():
            if value is not None:
                raise ConfigError(
                    f"{name} {value} needs a decoder, but {path} is an {kind}, with no context to "
                    "outgrow and its own end: leave it out"
                )
        settings = FillSettings(beam or 1, sampling if drawn_by else None, n, seed)
        completions, seconds = complete_prompt(text_model, path, prompt, settings, tokens)
        return Completions(prompt, completions, seconds)
    if not isinstance(text_model.model, Decoder):
        raise ConfigError(f"{path} is an {kind} and predicts no next token: name a decoder's run")
    if beam is not None:
        raise ConfigError(f"--beam {beam} fills gaps, but {path} is a decoder: leave it out")
    texts, n_tokens, seconds = continue_prompt(
        text_model,
        path,
        prompt,
        sampling,
        n=n,
        n_tokens=tokens,
        stops=list(stop),
        seed=seed,
        window=window,
        show=show,
    )
    return Texts(prompt, texts, n_tokens, seconds)


def _sampling(decoding: Decoding) -> "Sampling | None":
    """Return the sampling options; None if no option needs sampling."""
    from sublayer.decode.sample import Sampling

    settings = {name: value for name, value in decoding.items() if value is not None}
    if not settings.keys() & {"temperature", "top_k", "top_p", "seed"}:
        return None
    temperature = decoding.get("temperature")
    top_k, top_p = decoding.get("top_k"), decoding.get("top_p")
    return Sampling(1.0 if temperature is None else temperature, top_k, top_p)


@checked
def fill(
    run: Model,
    text: Annotated[
        str,
        Option(
            "Text with [MASK] for each missing word; for a T5 also <extra_id_0>, <extra_id_1> ..."
        ),
    ],
    n: Annotated[int, Option("Fillings of each mask.", least=1, most=1000)] = 5,
    *,
    device: Device = None,
    plugins: Plugins = (),
) -> Fillings:
    """List the ``n`` likeliest fillings of each mask of a text, with their probabilities.

    An encoder fills each mask with one token, with all others masked; a T5 with any number of
    tokens, by a beam of ``n``. ``generate`` gives whole completions by a T5. Raises ConfigError for
    a model that fills none, as a decoder, and for a text without a mask.
    """
    with starting(run):
        from sublayer.decode.gaps import fill_masks

    text_model = loaded(run, device)
    with stage("filling"):
        return Fillings(text, fill_masks(text_model, text, n))


@checked
def translate(
    run: Model,
    lines: Iterable[str],
    *,
    n_best: Annotated[
        int | None,
        Option(
            "Number of translations to print of each line, with line number, score and text.",
            least=1,
            most=WIDEST_BEAM,
        ),
    ] = None,
    words: Annotated[
        bool,
        Option("Read and print space-separated words, as in the vocabulary."),
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
            "Number of lines to read and sort by length before the first is printed.",
            least=1,
            most=MOST_ROWS,
        ),
    ] = 2048,
    engine: Engine = None,
    device: Device = None,
    plugins: Plugins = (),
    show: Callable[[TranslatedLine], None] | None = None,
    **search: Unpack[BeamSearch],
) -> Translations:
    """Translate lines, in order; ``n_best`` of each, with scores in nats.

    A line longer than the model's context stays empty. With ``show``, called with each translated
    line, ``lines`` are read as a stream, and none is kept. Raises ConfigError for a model that is
    no translator, and for a text that is no list of lines.
    """
    if isinstance(lines, str):
        raise ConfigError("lines is one text: give a list of lines, such as text.splitlines()")
    sources = None if show is not None else given_lines(lines)
    if sources is not None and any("\n" in line for line in sources):
        raise ConfigError("a line contains a line break: give each line separately")
    with starting(run):
        from sublayer.config.load import find_recipe, read_run_recipe
        from sublayer.decode.beam import tokenizer_of, translate_lines
        from sublayer.model.transformer import EncoderDecoder
        from sublayer.objective.translation import beam_settings

    path = find_recipe(Path(run))
    options = {name: value for name, value in search.items() if value is not None}
    settings = beam_settings(None if path is None else read_run_recipe(path), options)
    if n_best is not None and n_best > settings.beam:
        raise ConfigError(
            f"--n-best {n_best} is more than the {settings.beam} hypotheses of --beam: give a "
            "wider beam"
        )
    keep_freed_memory()
    text_model = loaded(run, device, average=average, engine=engine)
    config = text_model.model.config
    if not isinstance(text_model.model, EncoderDecoder):
        raise ConfigError(
            f"{fspath(run)} is {with_article(config.kind)} and translates nothing: name a "
            "translator's run"
        )
    tokenizer = tokenizer_of(text_model)

    def write(ids: Any) -> str:
        return " ".join(tokenizer.words(ids)) if words else tokenizer.write(ids)

    result = Translations(sources or [])

    def progress(n_done: int) -> None:
        display().change_innermost(f"translated {count(result.n_lines + n_done, 'line')}")

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
                f"line {number} has {count(translation.n_tokens, 'token')}, more than the model's "
                f"{config.max_len:,}"
            )
        line = TranslatedLine.of(number, translation, n_best or 1, write)
        result.add(line, is_kept=show is None)
        if show is not None:
            show(line)
    if show is None:
        for text in result.left_out():
            note(text)
    return result


@checked
def predict(
    run: PathText | Sequence[PathText],
    rows: Any,
    *,
    task: Annotated[
        str | None, Option("Task to answer, for a model of several.", metavar="NAME")
    ] = None,
    length_penalty: Annotated[
        float | None,
        Option(
            "Exponent p of a beam's divisor n^p of the log probability of n tokens: 0 favours "
            "short texts, larger values longer ones. Default: 1.",
            least=-LARGEST_PENALTY,
            most=LARGEST_PENALTY,
        ),
    ] = None,
    average: Average = None,
    batch: Annotated[
        int | None,
        Option(
            "Rows computed at a time; affects speed and memory, and what sampling draws.",
            least=1,
            most=MOST_ROWS,
        ),
    ] = None,
    engine: Engine = None,
    device: Device = None,
    plugins: Plugins = (),
    dtype: "torch.dtype | None" = None,
    **decoding: Unpack[Decoding],
) -> "list[NamedPrediction]":
    """Answer rows by a fine-tuned model: texts, tuples of texts, or mappings by the fields' names.

    A DataFrame, an Arrow table or a dict of columns is its rows; None and NaN are rows without a
    text, left unanswered. Choices follow the texts of a tuple, or are ``choices`` in a mapping. A
    list of models answers by the average of their probabilities, numbers or span scores. ``task``
    names one of several tasks; ``batch`` rows are computed at a time, in ``dtype``, as in ``load``.
    A model that writes decodes greedily, by a ``beam``, or samples by ``temperature``, ``top_k``,
    ``top_p`` and ``seed``. Raises ConfigError for a model that answers no task, or another task
    than the rest, and DataError for any other row.
    """

    answerer = load_answerer(
        run,
        task=task,
        length_penalty=length_penalty,
        average=average,
        batch=batch,
        engine=engine,
        device=device,
        dtype=dtype,
        **decoding,
    )
    return answerer.predict_rows(rows)


def load_answerer(
    run: PathText | Sequence[PathText],
    *,
    task: str | None = None,
    length_penalty: float | None = None,
    average: int | None = None,
    batch: int | None = None,
    engine: str | None = None,
    device: str | None = None,
    dtype: "torch.dtype | str | None" = None,
    **decoding: Unpack[Decoding],
) -> "Answerer":
    """Load the model, or the ensemble, that answers rows.

    Raises CheckpointError for a missing run, and ConfigError for runs with answers that cannot be
    averaged.
    """
    runs = [] if isinstance(run, TextModel) else as_paths(run)
    with starting(*runs):
        import torch

        from sublayer.objective.supervised.answering import Answerer, find_members
        from sublayer.objective.supervised.text import WRITING_OPTIONS, Writing

    writes = length_penalty is not None or any(x is not None for x in decoding.values())
    writing = None
    if writes:
        beam, seed = decoding.get("beam") or 1, decoding.get("seed") or 0
        writing = Writing(beam, length_penalty, _sampling(decoding), seed)
    torch_dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    if len(runs) > 1:
        if writes:
            raise ConfigError(
                "several runs answer by averaged probabilities, without decoding: leave out "
                f"{WRITING_OPTIONS}"
            )
        find_members(runs)
    given = [run] if isinstance(run, TextModel) else runs
    models = [loaded(each, device, torch_dtype, average, engine) for each in given]
    names = list(map(str, runs)) if len(runs) > 1 else ()
    answerer = Answerer(models, task, names=names, batch=batch, writing=writing)
    if engine is not None:
        from sublayer.interop.engines import check_states

        if not answerer.is_written:
            check_states(models)
        elif writing is not None and (
            writing.sampling is not None or models[0].model.config.kind == "decoder"
        ):
            raise ConfigError(
                f"--engine {engine} writes answers greedily, or by a beam of an encoder-decoder: "
                "leave out other options of decoding"
            )
    return answerer


@checked
def embed(
    run: Model,
    texts: Iterable[str],
    *,
    pool: Annotated[
        Literal["mean", "first", "last"],
        Option(
            "Pooling of a line's hidden states: the mean over its tokens, special ones included, "
            "or the state of the first or last token."
        ),
    ] = "mean",
    normalize: Annotated[bool, Option("Scale each vector to unit length.")] = False,
    batch: Annotated[
        int,
        Option("Lines computed at a time; affects speed and memory only.", least=1, most=MOST_ROWS),
    ] = 32,
    engine: Engine = None,
    device: Device = None,
    plugins: Plugins = (),
) -> "NDArray[np.float32]":
    """Return a vector of each text, ``[N, D]``: the final hidden states of its tokens, pooled.

    Truncated or empty texts are reported. Raises as ``sublayer.evaluation.vectors.embed_texts``
    does.
    """
    from sublayer.evaluation.vectors import embed_all

    model = load_for_states(run, device, engine)
    return embed_all(model, texts, pool=pool, normalize=normalize, batch=batch)


def load_for_states(run: PathText, device: str | None, engine: str | None) -> TextModel:
    """Load a model, as ``loaded`` does, whose states are read.

    Raises ConfigError where the ``engine`` does not give them.
    """
    model = loaded(run, device, engine=engine)
    if engine is not None:
        from sublayer.interop.engines import check_states

        check_states([model])
    return model
