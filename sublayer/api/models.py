"""The commands on models, as functions that return what ``--json`` prints."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from sublayer.api.ask import (
    PathOrText,
    as_option,
    as_path,
    as_paths,
    as_source,
    as_text,
    as_texts,
    ask,
    kept,
)
from sublayer.api.results import (
    Completions,
    Fillings,
    Result,
    Scores,
    Texts,
    Translations,
)
from sublayer.errors import ConfigError
from sublayer.values import given_lines

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from sublayer.tasks.predicting.named import NamedPrediction

SplitName = Literal["valid", "test"]


def evaluate(
    run: PathOrText | Sequence[PathOrText],
    split: SplitName | None = None,
    *,
    path: PathOrText | Any = None,
    corpus: str | None = None,
    documents: Any = None,
    text_field: str | None = None,
    stride: int | None = None,
    pairs: int | None = None,
    beam: int | None = None,
    length_rule: Literal["fairseq", "gnmt"] | None = None,
    length_penalty: float | None = None,
    max_length_ratio: float | None = None,
    max_length_offset: float | None = None,
    average: int | None = None,
    lowercase: bool = False,
    compounds: bool = False,
    bleu_tokenizer: str | None = None,
    references: Sequence[PathOrText] | None = None,
    against: PathOrText | None = None,
    answer: Literal["greedy", "rank"] | None = None,
    choose: Literal["greedy"] | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> Scores:
    """Score a model on a split of its own text (valid by default), or on another by ``path``.

    ``run`` is a run, a checkpoint or an imported folder; of several fine-tuned ones, given as a
    list, the average is scored, and ``choose`` chooses among them by what was held out of train.
    ``stride`` is in tokens between windows; ``beam`` and the lengths are of translators, ``pairs``
    of encoders that judge pairs. ``batch`` changes speed and memory only. Loss is in nats per
    token, ``bits_per_byte`` in bits. Raises ConfigError for options of other kinds of models,
    DataError and CheckpointError.
    """
    from sublayer.commands.evaluate.command import command

    found = ask(
        command,
        runs=as_paths(run),
        split=split,
        path=None if path is None else as_source(path),
        corpus=corpus,
        documents=documents,
        text_field=text_field,
        stride=stride,
        pairs=pairs,
        beam=beam,
        rule=length_rule,
        penalty=length_penalty,
        max_length_ratio=max_length_ratio,
        max_length_offset=max_length_offset,
        average=average,
        lowercase=lowercase,
        compounds=compounds,
        bleu_tokenizer=bleu_tokenizer,
        references=None if references is None else as_paths(references),
        against=None if against is None else as_path(against),
        answer=answer,
        choose=choose,
        batch=batch,
        device=device,
    )
    return Scores(found)


def generate(
    run: PathOrText,
    prompt: str,
    *,
    tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: Sequence[str] = (),
    seed: int | None = None,
    n: int = 1,
    window: Literal["exact", "rolling"] | None = None,
    precision: Literal["float32", "bfloat16"] = "float32",
    device: str | None = None,
) -> Texts:
    """Continue a prompt by a decoder, ``n`` times side by side.

    ``tokens`` are added at most (200); ``temperature`` 0 is greedy, 1 the default; ``seed`` is of
    what is drawn (0). A text ends before the first of ``stop`` in it. Raises ConfigError for an
    empty prompt, for what the tokenizer does not know, and for a model that writes no next token.
    """
    from sublayer.commands.generate.command import command

    answer = ask(
        command,
        run=as_path(run),
        prompt=prompt,
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop=as_texts(stop, "stop"),
        seed=seed,
        batch=n,
        window=window,
        precision=precision,
        device=device,
    )
    if "completions" in answer.result:
        raise ConfigError(f"{as_path(run)} is an encoder-decoder: use fill, not generate")
    return Texts(answer)


def fill(
    run: PathOrText,
    text: str,
    *,
    beam: int | None = None,
    tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    n: int | None = None,
    device: str | None = None,
) -> Completions | Fillings:
    """Fill the masks of a text by an encoder, or its gaps by an encoder-decoder.

    An encoder's masks are ``[MASK]``: the ``n`` (5) likeliest fillings of each, with probabilities.
    Of an encoder-decoder gaps are ``<extra_id_0>`` and so on, and there are whole completions.

    Those are greedy, by a ``beam`` of hypotheses, whose best come first, or drawn, ``n`` times.
    ``tokens`` are written at most. A score is a mean log probability in nats. Raises ConfigError
    for a model that fills none.
    """
    from sublayer.commands import fill as masks
    from sublayer.commands.generate.command import command
    from sublayer.loading import find_model
    from sublayer.model.model_folder import read_config

    if read_config(find_model(as_path(run))).kind == "encoder":
        given = (beam, tokens, temperature, top_k, top_p, seed)
        if any(each is not None for each in given):
            raise ConfigError(
                f"{as_path(run)} is an encoder, which gives the probability of each filling, and "
                "searches or draws none: leave out all but n"
            )
        return Fillings(ask(masks.command, run=as_path(run), text=text, n=n, device=device))
    answer = ask(
        command,
        run=as_path(run),
        prompt=text,
        beam=beam,
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        batch=1 if n is None else n,
        device=device,
    )
    if "completions" not in answer.result:
        raise ConfigError(f"{as_path(run)} is a decoder, which fills no gaps: use generate")
    return Completions(answer)


def embed(
    run: PathOrText,
    texts: Iterable[str],
    *,
    pool: Literal["mean", "first", "last"] = "mean",
    normalize: bool = False,
    batch: int | None = None,
    device: str | None = None,
) -> "NDArray[np.float32]":
    """Return a vector of each text, ``[N, D]``: the final hidden states of its tokens, pooled.

    Their mean, special tokens included, or the state of the first or the last; ``normalize``
    scales each to a length of 1; ``batch`` texts are computed at a time. Raises ConfigError as
    ``model.embed`` does.
    """
    from sublayer.api.loading import load
    from sublayer.commands.embed import command
    from sublayer.commands.shared.arguments import check_values
    from sublayer.system.machine import choose_device

    batch = as_option(batch)
    check_values(command, {"pool": pool, "normalize": normalize, "batch": batch})
    model = load(as_path(run), choose_device(device))
    return model.embed(texts, pool=pool, normalize=normalize, batch=batch)


def translate(
    run: PathOrText,
    lines: Iterable[str],
    *,
    beam: int | None = None,
    length_rule: Literal["fairseq", "gnmt"] | None = None,
    length_penalty: float | None = None,
    max_length_ratio: float | None = None,
    max_length_offset: float | None = None,
    n_best: int | None = None,
    words: bool = False,
    average: int | None = None,
    batch: int = 32,
    device: str | None = None,
) -> Translations:
    """Translate lines, in order; ``n_best`` gives so many of each, with scores in nats.

    ``batch`` lines are computed at a time. A line that is longer than the model reads stays empty.
    Raises ConfigError for a model that is no translator, and for a text that is no list of lines.
    """
    from sublayer.commands.shared.arguments import check_values
    from sublayer.commands.shared.beam_options import beam_options
    from sublayer.commands.translate.command import Computation, command, translate_all

    if isinstance(lines, str):
        raise ConfigError("lines is one text: give a list of lines, such as text.splitlines()")
    sources = given_lines(lines)
    if any("\n" in line for line in sources):
        raise ConfigError("a line has a line break in it: give each line by itself")
    given = (beam, length_rule, length_penalty, max_length_ratio, max_length_offset)
    search = beam_options(*map(as_option, given))
    n_best, average, batch = map(as_option, (n_best, average, batch))
    names = {"length_rule": "rule", "length_penalty": "penalty"}
    values = {names.get(name, name): value for name, value in search.items()}
    check_values(command, {**values, "n_best": n_best, "words": words, "batch": batch})
    computation = Computation(n_best, words, average, batch, 2048, device)
    answer = kept(translate_all, as_path(run), sources, search, computation, as_json=True)
    return Translations(answer, sources)


def predict(
    run: PathOrText | Sequence[PathOrText],
    rows: Any,
    *,
    task: str | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    average: int | None = None,
    batch: int | None = None,
    device: str | None = None,
    dtype: "torch.dtype | None" = None,
) -> "list[NamedPrediction]":
    """Answer rows by a fine-tuned model: texts, tuples of texts, or mappings by the fields' names.

    A DataFrame, an Arrow table or a dict of columns is its rows; None and NaN are rows without a
    text. Of several models, given as a list, the average of their probabilities, numbers or scores
    of spans answers. ``task`` names one of several tasks; ``batch`` rows are computed at a time, in
    ``dtype``, as ``load`` takes it. A model that writes decodes greedily, by a ``beam``, or samples
    by ``temperature``, ``top_k``, ``top_p`` and ``seed``. A row with an empty text is not answered.
    Raises ConfigError for a model that answers no task, or not the same as another, and DataError
    for a row that is none of these.
    """
    from sublayer.commands.predict.answerer import Decoding, load_answerer
    from sublayer.commands.predict.command import command
    from sublayer.commands.shared.arguments import check_values
    from sublayer.objective.supervised.answering import predict_rows_by

    given = (beam, length_penalty, temperature, top_k, top_p, seed)
    decoding = Decoding(*map(as_option, given))
    average, batch = as_option(average), as_option(batch)
    options = {"task": task, "average": average, "batch": batch}
    check_values(command, {**decoding._asdict(), **options})
    answerer = load_answerer(as_paths(run), task, device, average, batch, dtype, decoding)
    return predict_rows_by(answerer, rows)


def inspect_layers(
    *runs: PathOrText,
    path: PathOrText | None = None,
    tokens: int | None = None,
    beyond: int | None = None,
    out: PathOrText | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> Result:
    """Measure what each block of models does to the tokens of a text.

    Distances, angles in degrees and norms, over ``tokens`` tokens at most (8192) of each run's
    validation split, or of the text of ``path``; a block that all layers share is run ``beyond``
    times more; ``out`` is an SVG file of the plot. Raises ConfigError for encoder-decoders.
    """
    return _inspect("layers", runs, path, tokens, out, batch, device, beyond)


def inspect_splitting(
    *runs: PathOrText,
    path: PathOrText | None = None,
    tokens: int | None = None,
    out: PathOrText | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> Result:
    """Measure how far each layer's step is from following its own flows; arguments as above.

    Without runs, the errors of splittings on equations whose flows are known.
    """
    return _inspect("splitting", runs, path, tokens, out, batch, device)


def inspect_paths(
    *runs: PathOrText,
    path: PathOrText | None = None,
    tokens: int | None = None,
    out: PathOrText | None = None,
    device: str | None = None,
) -> Result:
    """Follow the first tokens of a text through every sub-layer of models.

    They are the first ``tokens`` (16) of one window of each run's validation split, or of the text
    of ``path``; ``out`` is an SVG file of their paths. Coordinates are in the plane of the two
    principal components of all their states. Raises ConfigError for LSTMs.
    """
    return _inspect("paths", runs, path, tokens, out, None, device)


def _inspect(
    what: str,
    runs: Sequence[PathOrText],
    path: PathOrText | None,
    tokens: int | None,
    out: PathOrText | None,
    batch: int | None,
    device: str | None,
    beyond: int | None = None,
) -> Result:
    from sublayer.commands.inspect.command import command

    answer = ask(
        command,
        what=what,
        runs=[as_path(run) for run in runs],
        path=None if path is None else as_text(path),
        tokens=tokens,
        beyond=beyond,
        out=None if out is None else as_path(out),
        batch=batch,
        device=device,
    )
    return Result(answer)
