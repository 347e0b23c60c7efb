"""Tokenizers: trained on a text, tried on one."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from sublayer.api.arguments import TextFormat
from sublayer.api.results import Found
from sublayer.config.data import LETTERED_TOKENIZERS, DataConfig, Normalization, check_sentinels
from sublayer.config.table import LARGEST_TRAINED_VOCABULARY, MOST_SENTINELS
from sublayer.errors import CheckpointError, ConfigError
from sublayer.numbers import count
from sublayer.options import Argument, Option, PathText, checked
from sublayer.system.terminal import note
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.data.tokenizers.base import Tokenizer

_TOKENS_SHOWN = 200
_CHANGES_SHOWN = 20
_LONGEST_CHANGE = 40


TokenizerSource = Annotated[
    PathText | None,
    Argument(
        "The tokenizer to use: a run, a model's folder, or a tokenizer's file or folder.",
        metavar="RUN",
        complete="runs",
    ),
]
TrainingPath = Annotated[
    str | None,
    Option("Text to train on, by its training split: a file, a folder or a glob.", metavar="PATH"),
]
TrainingCorpus = Annotated[
    str | None,
    Option(
        "Named corpus to train on, by its training split (see `sublayer fields data.corpus`).",
        metavar="NAME",
        complete="corpora",
    ),
]
Kind = Annotated[
    Literal["bpe", "characters", "unigram", "wordpiece", "moses-bpe", "word-bpe", "gpt1-bpe"]
    | None,
    Option("Kind of tokenizer to train. Default: bpe."),
]
VocabSize = Annotated[
    int | None,
    Option(
        "Size of the vocabulary to train. Default: by kind (see `sublayer fields "
        "data.vocab_size`).",
        least=2,
        most=LARGEST_TRAINED_VOCABULARY,
    ),
]
Sentinels = Annotated[
    int,
    Option(
        "Number of ids for gaps of a text in a unigram vocabulary, <extra_id_0> and so on; T5 "
        "has 100.",
        least=0,
        most=MOST_SENTINELS,
    ),
]
KeepAccents = Annotated[
    bool | None,
    Option(
        'Accents in unigram, wordpiece and moses-bpe: kept, or stripped, é to e and “ to ". '
        "Default: kept (see `sublayer fields data.keep_accents`).",
        flag="--keep-accents/--strip-accents",
    ),
]
Lowercase = Annotated[
    bool | None,
    Option(
        "Lowercasing in unigram, wordpiece and moses-bpe. Default: lowercased, as published; "
        "with --sentinels, case is kept.",
        flag="--lowercase/--keep-capitals",
    ),
]
TextRules = Annotated[
    Normalization | None,
    Option(
        "Text rules of gpt1-bpe: published, or the faster rules of transformers. With RUN they "
        "replace its tokenizer's rules, and --out saves the result."
    ),
]
TokenizerFile = Annotated[
    PathText | None,
    Option("The new file to save the tokenizer to, tokenizer.json.", metavar="FILE"),
]
TriedText = Annotated[
    str | bytes | None,
    Option("Text to tokenize; with RUN, by default standard input."),
]
Differences = Annotated[
    bool,
    Option(
        "Count the differences between the published text rules and those of transformers on a "
        "text, for GPT-1's tokenizer RUN."
    ),
]


@checked
def tokenize(
    source: TokenizerSource = None,
    *,
    path: TrainingPath = None,
    corpus: TrainingCorpus = None,
    kind: Kind = None,
    vocab_size: VocabSize = None,
    sentinels: Sentinels = 0,
    keep_accents: KeepAccents = None,
    lowercase: Lowercase = None,
    normalization: TextRules = None,
    out: TokenizerFile = None,
    text: TriedText = None,
    differences: Differences = False,
    **files: Unpack[TextFormat],
) -> Found:
    """Train a tokenizer on ``path`` or ``corpus`` and save it as ``out``, or try another.

    The result has the ``ids`` and ``pieces`` of ``text``, and the saved file as ``tokenizer``; with
    ``differences``, counts of differences between both text rules. Raises ConfigError for options
    without effect, CheckpointError and DataError for an unreadable tokenizer.
    """
    if (path is None and corpus is None) == (source is None):
        raise ConfigError(
            "give either a run or a tokenizer to use, or --path or --corpus to train one"
        )
    data = os.fsencode(text) if isinstance(text, str) else text
    of_training: dict[str, Any] = {
        **files,
        "vocab_size": vocab_size,
        "sentinels": sentinels or None,
        "keep_accents": keep_accents,
        "lowercase": lowercase,
        "kind": kind,
    }
    of_training = {name: value for name, value in of_training.items() if value is not None}
    if source is not None:
        if out is not None and normalization is None:
            raise ConfigError(
                "--out saves a trained tokenizer: give --path or --corpus; or --normalization, "
                "to save one of GPT-1's kind with these text rules"
            )
        for name in of_training:
            raise ConfigError(
                f"--{name.replace('_', '-')} is an option of training, and an existing tokenizer "
                "is used unchanged: give a --path, or leave it out"
            )
        if out is not None and not differences:
            target, tokenizer = _new_file(out), find_tokenizer(Path(source), normalization)
            tokenizer.save(target)
            size = count(tokenizer.vocab_size, "id")
            shown = f"{tokenizer.kind} of {size}, {normalization} text rules: {target}"
            return Found({**_saved(tokenizer, target), "normalization": normalization}, shown)
        if data is None:
            raise ConfigError("there is no text: give --text, or a text on standard input")
        if differences:
            return _count_differences(Path(source), normalization, data)
        tokens = _tokens(find_tokenizer(Path(source), normalization), data)
        return Found(tokens, _tokens_text(tokens))
    if differences:
        raise ConfigError("--differences needs a tokenizer of GPT-1's kind: name it, or a run")
    kind = of_training.pop("kind", "bpe")
    if kind not in LETTERED_TOKENIZERS and (keep_accents is not None or lowercase is not None):
        raise ConfigError(
            f"--keep-accents and --lowercase need --kind {', '.join(LETTERED_TOKENIZERS)}, not "
            f"{kind}: leave them out"
        )
    target = _new_file(out)
    of_training |= {"path": path, "corpus": corpus, "normalization": normalization}
    config = DataConfig(**of_training, tokenizer=kind)
    if kind == "unigram" and vocab_size is not None:
        check_sentinels(vocab_size, sentinels)
    from sublayer.data.prepare import prepare_tokenizer
    from sublayer.runs.texts import say_about_files

    say_about_files(path if corpus is None else None, files.get("documents"))
    tokenizer = prepare_tokenizer(config)
    tokenizer.save(target)
    if vocab_size is not None and tokenizer.vocab_size < vocab_size:
        note(f"the text fills {tokenizer.vocab_size:,} of {count(vocab_size, 'id')}")
    trained = {**_saved(tokenizer, target), "path": path, "corpus": corpus}
    lines = [f"trained {tokenizer.kind} of {count(tokenizer.vocab_size, 'id')}: {target}"]
    if data is not None:
        tokens = _tokens(tokenizer, data)
        trained |= tokens
        lines.append(_tokens_text(tokens))
    named = f"data.path={path}" if corpus is None else f"data.corpus={corpus}"
    command = ["sublayer", "train", "gpt", named, f"data.tokenizer={target}"]
    return Found(trained, "\n".join([*lines, f"next: {shlex.join(command)}"]))


def find_tokenizer(source: Path, normalization: Normalization | None = None) -> "Tokenizer":
    """Read the tokenizer of a run, of a model's folder, or of a file or folder.

    ``normalization`` replaces the text rules of a GPT-1 tokenizer. Raises CheckpointError if it is
    missing, DataError if it is unreadable, ConfigError if it has no such rules.
    """
    from sublayer.data.tokenizers.named import has_tokenizer, load_tokenizer

    if source.is_file() or has_tokenizer(source):
        return load_tokenizer(source, normalization=normalization, special_tokens="file")
    from sublayer.loading import find_model

    file = find_model(source) / "tokenizer.json"
    if not file.is_file():
        raise CheckpointError(f"{source} has no tokenizer.json")
    return load_tokenizer(file, normalization=normalization)


def _new_file(out: PathText | None) -> Path:
    if out is None:
        raise ConfigError("--out is missing: name the tokenizer.json to write")
    file = Path(out)
    target = file / "tokenizer.json" if file.is_dir() else file
    if target.exists():
        raise ConfigError(f"{target} already exists: name another file")
    return target


def _saved(tokenizer: "Tokenizer", target: Path) -> dict[str, Any]:
    return {
        "tokenizer": str(target),
        "kind": tokenizer.kind,
        "vocab_size": tokenizer.vocab_size,
    }


def _tokens(tokenizer: "Tokenizer", text: bytes) -> dict[str, Any]:
    ids = tokenizer.encode(text).tolist()
    return {
        "ids": ids,
        "pieces": [tokenizer.decode([id_]).decode("utf-8", "backslashreplace") for id_ in ids],
        "tokens": len(ids),
        "unknown": 0 if tokenizer.unk_id is None else ids.count(tokenizer.unk_id),
        "bytes": len(text),
        "bytes_per_token": len(text) / len(ids) if ids else None,
    }


def _tokens_text(result: Mapping[str, Any]) -> str:
    tokens = zip(result["ids"], result["pieces"], strict=True)
    rows = []
    for id_, piece in tokens:
        # Quotes show blanks; invisible characters are escaped.
        shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in piece)
        rows.append((str(id_), f'"{"".join(shown)}"'))
    lines = [table(["id", "piece"], rows[:_TOKENS_SHOWN], right=[0])]
    if len(rows) > _TOKENS_SHOWN:
        lines.append(f"... and {len(rows) - _TOKENS_SHOWN:,} more (--json has all)")
    counts = count(result["tokens"], "token")
    if result["unknown"]:
        counts += f", {result['unknown']:,} unknown"
    counts += f", {count(result['bytes'], 'byte')}"
    if result["bytes_per_token"] is not None:
        counts += f", {result['bytes_per_token']:.2f} bytes per token"
    return "\n".join([*lines, counts])


def _count_differences(source: Path, normalization: Normalization | None, text: bytes) -> Found:
    """Count differences between both text rules on a text, with a GPT-1 tokenizer's vocabulary.

    Raises ConfigError for another tokenizer, or if a rule is named; DataError if ftfy or spaCy is
    missing, or the text is not UTF-8.
    """
    from sublayer.data.tokenizers.gpt1 import vocabulary_of

    if normalization is not None:
        raise ConfigError("--differences compares both text rules: leave --normalization out")
    tokenizer = find_tokenizer(source)
    vocabulary = vocabulary_of(tokenizer)
    if vocabulary is None:
        raise ConfigError(
            f"--differences needs a tokenizer of GPT-1's kind, but {source} has kind "
            f"{tokenizer.kind}: name another"
        )
    by_rule, n_words, n_different, counts = vocabulary.count_differences(text)
    changes = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    results = {
        "bytes": len(text),
        "words": n_words,
        "different": n_different,
        **by_rule,
        "changes": [
            {"published": list(published), "transformers": list(others), "times": times}
            for (published, others), times in changes
        ],
    }
    columns = ("tokens", "line_ends", "unknown")
    rows = [(name, *(f"{of[column]:,}" for column in columns)) for name, of in by_rule.items()]
    share = n_different / n_words if n_words else 0.0
    lines = [
        table(["text rules", "tokens", "ends of lines", "unknown"], rows, right=[1, 2, 3]),
        f"of {count(n_words, 'word')} split by whitespace, {n_different:,} differ ({share:.1%})",
    ]
    cells = [
        (f"{times:,}", *(_shortened(words) for words in both))
        for both, times in changes[:_CHANGES_SHOWN]
    ]
    if cells:
        lines.append(table(["times", "published", "transformers"], cells, right=[0]))
    if len(changes) > _CHANGES_SHOWN:
        lines.append(f"... and {len(changes) - _CHANGES_SHOWN:,} more (--json has all)")
    return Found(results, "\n".join(lines))


def _shortened(words: Sequence[str]) -> str:
    text = " ".join(words) if words else "nothing"
    return text if len(text) <= _LONGEST_CHANGE else f"{text[: _LONGEST_CHANGE - 3]}..."
