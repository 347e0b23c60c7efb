"""``sublayer tokenize``: train a tokenizer, or see what one makes of a text."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import JsonObject, JsonOption, emit, say
from sublayer.commands.shared.text_options import DocumentsOption, TextFieldOption
from sublayer.commands.shared.tokenizers import read_tokenizer
from sublayer.commands.tokenize.differences import count_differences, render_differences
from sublayer.config.data import DataConfig
from sublayer.config.limits import LARGEST_TRAINED_VOCABULARY, MOST_SENTINELS
from sublayer.config.texts import LETTERED_TOKENIZERS, Normalization
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.data.tokenizers.base import Tokenizer

EXAMPLE = (
    "sublayer tokenize --path book.txt --kind bpe --vocab-size 4096 --out tokenizer.json "
    '--text "a word"'
)

Kind = Literal["bpe", "characters", "unigram", "wordpiece", "moses-bpe", "word-bpe", "gpt1-bpe"]

_SHOWN = 200


SourceArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN",
        help="Whose tokenizer to use: a run, a model's folder, or a tokenizer's file or folder.",
        autocompletion=candidates.runs,
    ),
]
PathOption = Annotated[
    str | None,
    typer.Option(
        "--path",
        metavar="PATH",
        help="Train on the training split of this text: a file, a folder or a glob.",
    ),
]
CorpusOption = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        metavar="NAME",
        help="Train on the training split of a named corpus (see `sublayer fields data.corpus`).",
        autocompletion=candidates.corpora,
    ),
]
KindOption = Annotated[
    Kind | None, typer.Option("--kind", help="The kind of tokenizer to train. Default: bpe.")
]
VocabSizeOption = Annotated[
    int | None,
    typer.Option(
        "--vocab-size",
        min=2,
        max=LARGEST_TRAINED_VOCABULARY,
        metavar="N",
        help="Size of the vocabulary to train. Default: that of its kind (see `sublayer fields "
        "data.vocab_size`).",
    ),
]
SentinelsOption = Annotated[
    int,
    typer.Option(
        "--sentinels",
        min=0,
        max=MOST_SENTINELS,
        metavar="N",
        help="Ids of a unigram vocabulary that stand for gaps of a text, <extra_id_0> and so on; "
        "T5 has 100.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="The new file to save the tokenizer to, tokenizer.json."
    ),
]
NormalizationOption = Annotated[
    Normalization | None,
    typer.Option(
        "--normalization",
        help="The text rules of gpt1-bpe: published, or the faster ones of transformers. With RUN "
        "they replace those of its tokenizer, and --out keeps that.",
    ),
]
KeepAccentsOption = Annotated[
    bool | None,
    typer.Option(
        "--keep-accents/--strip-accents",
        help="Whether unigram, wordpiece and moses-bpe keep characters as they are written, or é "
        'becomes e and “ ". '
        "Default: kept (see `sublayer fields data.keep_accents`).",
    ),
]
LowercaseOption = Annotated[
    bool | None,
    typer.Option(
        "--lowercase/--keep-capitals",
        help="Whether unigram, wordpiece and moses-bpe lower capitals. Default: as published, they "
        "do, and with --sentinels they do not.",
    ),
]
DifferencesOption = Annotated[
    bool,
    typer.Option(
        "--differences",
        help="Count what the published text rules of GPT-1's tokenizer RUN and those of "
        "transformers make different of a text.",
    ),
]
TextOption = Annotated[
    str | None,
    typer.Option(
        "--text", help="A text to show the tokens of; with RUN, by default standard input."
    ),
]


def command(
    source: SourceArgument = None,
    path: PathOption = None,
    corpus: CorpusOption = None,
    documents: DocumentsOption = None,
    text_field: TextFieldOption = None,
    kind: KindOption = None,
    vocab_size: VocabSizeOption = None,
    sentinels: SentinelsOption = 0,
    keep_accents: KeepAccentsOption = None,
    lowercase: LowercaseOption = None,
    normalization: NormalizationOption = None,
    out: OutOption = None,
    text: TextOption = None,
    differences: DifferencesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a tokenizer on a text and save it, or show how one splits a text into tokens.

    A recipe uses a saved tokenizer with data.tokenizer=FILE.
    """
    is_training = path is not None or corpus is not None
    if is_training == (source is not None):
        raise ConfigError(
            "give either a run or a tokenizer to use, or --path or --corpus to train one"
        )
    if source is not None:
        if out is not None and normalization is None:
            raise ConfigError(
                "--out keeps a tokenizer that is trained: give --path or --corpus; or "
                "--normalization, to keep one of GPT-1's kind with these text rules"
            )
        of_training = {
            "--documents": documents,
            "--text-field": text_field,
            "--kind": kind,
            "--vocab-size": vocab_size,
            "--sentinels": sentinels or None,
            "--keep-accents": keep_accents,
            "--lowercase": lowercase,
        }
        for name, value in of_training.items():
            if value is not None:
                raise ConfigError(
                    f"{name} is an option of training, and a tokenizer that exists is used as it "
                    "is: give a --path, or leave it out"
                )
        if differences:
            counted = count_differences(source, normalization, _text(text))
            emit(counted, as_json, render_differences)
        elif out is not None:
            emit(_keep(source, normalization, _new_file(out)), as_json, _render_kept)
        else:
            tokens = _tokens(read_tokenizer(source, normalization), _text(text))
            emit(tokens, as_json, _render_tokens)
        return
    if differences:
        raise ConfigError("--differences are of a tokenizer of GPT-1's kind: name it, or a run")
    kind = kind or "bpe"
    if kind not in LETTERED_TOKENIZERS and (keep_accents is not None or lowercase is not None):
        raise ConfigError(
            f"--keep-accents and --lowercase are of {', '.join(LETTERED_TOKENIZERS)}, and "
            f"--kind is {kind}: leave them out"
        )
    target = _new_file(out)
    config = DataConfig(
        path=path,
        corpus=corpus,
        documents=documents,
        text_field=text_field or "text",
        tokenizer=kind,
        vocab_size=vocab_size,
        sentinels=sentinels,
        keep_accents=keep_accents,
        lowercase=lowercase,
        normalization=normalization,
    )
    from sublayer.runs.texts import say_about_files

    say_about_files(path if corpus is None else None, documents)
    trained = _train(config, target, text)
    emit(trained, as_json, _render_trained)


def _new_file(out: Path | None) -> Path:
    if out is None:
        raise ConfigError("--out is missing: name the tokenizer.json to write")
    target = out / "tokenizer.json" if out.is_dir() else out
    if target.exists():
        raise ConfigError(f"{target} exists, and nothing is overwritten: name another file")
    return target


def _keep(source: Path, normalization: Normalization | None, target: Path) -> dict[str, Any]:
    """Keep a tokenizer whose text rules are replaced; return what it is."""
    tokenizer = read_tokenizer(source, normalization)
    tokenizer.save(target)
    return {
        "tokenizer": str(target),
        "kind": tokenizer.kind,
        "vocab_size": tokenizer.vocab_size,
        "normalization": normalization,
    }


def _render_kept(result: JsonObject) -> str:
    kept = f"{result['kind']} of {count(result['vocab_size'], 'id')}"
    return f"{kept}, {result['normalization']} text rules: {result['tokenizer']}"


def _train(config: DataConfig, target: Path, text: str | None) -> dict[str, Any]:
    """Train and keep a tokenizer; return what it is, and the tokens of a text if one is given."""
    from sublayer.data.prepare import prepare_tokenizer

    tokenizer = prepare_tokenizer(config)
    tokenizer.save(target)
    result: dict[str, Any] = {
        "tokenizer": str(target),
        "kind": tokenizer.kind,
        "vocab_size": tokenizer.vocab_size,
        "path": config.path,
        "corpus": config.corpus,
    }
    wanted = config.vocab_size
    if wanted is not None and tokenizer.vocab_size < wanted:
        say(f"the text fills {tokenizer.vocab_size:,} of {count(wanted, 'id')}")
    if text is not None:
        result |= _tokens(tokenizer, _text(text))
    return result


def _text(given: str | None) -> bytes:
    if given is not None:
        return os.fsencode(given)  # the bytes that were typed, UTF-8 or not
    if sys.stdin.isatty():
        raise ConfigError("there is no text: give --text, or a text on standard input")
    return sys.stdin.buffer.read()


def _tokens(tokenizer: "Tokenizer", text: bytes) -> dict[str, Any]:
    ids = tokenizer.encode(text).tolist()
    pieces = []
    for token in ids:
        piece = tokenizer.decode([token])
        pieces.append(piece.decode("utf-8", "backslashreplace"))
    n_unknown = 0 if tokenizer.unk_id is None else ids.count(tokenizer.unk_id)
    return {
        "ids": ids,
        "pieces": pieces,
        "tokens": len(ids),
        "unknown": n_unknown,
        "bytes": len(text),
        "bytes_per_token": len(text) / len(ids) if ids else None,
    }


def _render_tokens(result: JsonObject) -> str:
    rows = []
    for id_, piece in zip(result["ids"], result["pieces"], strict=True):
        rows.append((str(id_), _quoted(piece)))
    lines = [table(["id", "piece"], rows[:_SHOWN], right=[0])]
    if len(rows) > _SHOWN:
        lines.append(f"... and {len(rows) - _SHOWN:,} more (--json has all)")
    counts = count(result["tokens"], "token")
    if result["unknown"]:
        counts += f", {result['unknown']:,} unknown"
    counts += f", {count(result['bytes'], 'byte')}"
    if result["bytes_per_token"] is not None:
        counts += f", {result['bytes_per_token']:.2f} bytes per token"
    lines.append(counts)
    return "\n".join(lines)


def _quoted(piece: str) -> str:
    # Quotes show where blanks are; what has no shape is escaped.
    escaped = "".join(map(_escape, piece))
    return f'"{escaped}"'


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def _render_trained(result: JsonObject) -> str:
    trained = f"trained {result['kind']} of {count(result['vocab_size'], 'id')}"
    lines = [f"{trained}: {result['tokenizer']}"]
    if "ids" in result:
        lines.append(_render_tokens(result))
    text = {"data.path": result["path"], "data.corpus": result["corpus"]}
    settings = [f"{key}={name}" for key, name in text.items() if name is not None]
    command = ["sublayer", "train", "gpt", *settings, f"data.tokenizer={result['tokenizer']}"]
    lines.append(f"next: {shlex.join(command)}")
    return "\n".join(lines)
