"""``sublayer tokenize``: train a tokenizer, or see what one makes of a text."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sublayer.commands.base import JsonOption, emit, say, table
from sublayer.config.data import DataConfig, DocumentRule
from sublayer.config.limits import LARGEST_TRAINED_VOCABULARY
from sublayer.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from sublayer.data.vocabulary import Tokenizer

EXAMPLE = 'sublayer tokenize --path book.txt --kind bpe --vocab-size 4096 --out tokenizer.json --text "a word"'

Kind = Literal["bpe", "characters", "unigram", "wordpiece", "moses-bpe", "word-bpe"]

_SHOWN = 200


def command(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN]", help="A run, a model folder, or a tokenizer's file or folder to use."),
    ] = None,
    path: Annotated[
        str | None, typer.Option("--path", help="Train on the training split of a text: a file, a folder or a glob.")
    ] = None,
    corpus: Annotated[
        str | None, typer.Option("--corpus", help="Train on the training split of a named corpus.")
    ] = None,
    documents: Annotated[
        DocumentRule | None, typer.Option("--documents", help="What a document of --path is, as data.documents says.")
    ] = None,
    kind: Annotated[Kind, typer.Option("--kind", help="What to train.")] = "bpe",
    vocab_size: Annotated[
        int | None,
        typer.Option(
            "--vocab-size",
            min=2,
            max=LARGEST_TRAINED_VOCABULARY,
            help="Ids. Default: as data.vocab_size in sublayer fields.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The new tokenizer.json to write.")] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="Text to show in tokens; without it, standard input.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a tokenizer on a text and keep it, or show the tokens of a text.

    A recipe uses a tokenizer that was kept by data.tokenizer=FILE.
    """
    is_training = path is not None or corpus is not None
    if is_training == (source is not None):
        raise ConfigError("give either a run or a tokenizer to use, or --path or --corpus to train one")
    if not is_training:
        assert source is not None, "there is a source where nothing is trained"
        if out is not None:
            raise ConfigError("--out keeps a tokenizer that is trained: give --path or --corpus")
        if documents is not None:
            raise ConfigError("--documents says how the text of --path is read: give a --path, or leave it out")
        emit(_tokens(_read(source), _text(text)), as_json, _render_tokens)
        return
    target = _new_file(out)
    config = DataConfig(path=path, corpus=corpus, documents=documents, tokenizer=kind, vocab_size=vocab_size)
    tokenizer = _train(config)
    tokenizer.save(target)
    result: dict[str, Any] = {"tokenizer": str(target), "kind": tokenizer.kind, "vocab_size": tokenizer.vocab_size}
    if vocab_size is not None and tokenizer.vocab_size < vocab_size:
        say(f"the text fills {tokenizer.vocab_size:,} of {vocab_size:,} ids")
    if text is not None:
        result |= _tokens(tokenizer, _text(text))
    emit(result, as_json, _render_trained)


def _new_file(out: Path | None) -> Path:
    if out is None:
        raise ConfigError("--out is missing: name the tokenizer.json to write")
    target = out / "tokenizer.json" if out.is_dir() else out
    if target.exists():
        raise ConfigError(f"{target} exists, and nothing is overwritten: name another file")
    return target


def _train(config: DataConfig) -> "Tokenizer":
    from sublayer.data.prepare import prepare_tokenizer

    return prepare_tokenizer(config)


def _read(source: Path) -> "Tokenizer":
    from sublayer.data.tokenizer import has_tokenizer, load_tokenizer

    if source.is_file() or has_tokenizer(source):
        return load_tokenizer(source)

    from sublayer.load import find_model

    file = find_model(source) / "tokenizer.json"
    if not file.is_file():
        raise CheckpointError(f"{source} has no tokenizer.json")
    return load_tokenizer(file)


def _text(given: str | None) -> bytes:
    if given is not None:
        return os.fsencode(given)  # the bytes that were typed, UTF-8 or not
    if sys.stdin.isatty():
        raise ConfigError("there is no text: give --text, or a text on standard input")
    return sys.stdin.buffer.read()


def _tokens(tokenizer: "Tokenizer", text: bytes) -> dict[str, Any]:
    ids = tokenizer.encode(text).tolist()
    pieces = [tokenizer.decode([token]).decode("utf-8", "backslashreplace") for token in ids]
    return {
        "ids": ids,
        "pieces": pieces,
        "tokens": len(ids),
        "unknown": 0 if tokenizer.unk_id is None else ids.count(tokenizer.unk_id),
        "bytes": len(text),
        "bytes_per_token": len(text) / len(ids) if ids else None,
    }


def _render_tokens(result: Mapping[str, Any]) -> str:
    rows = [(str(id_), _quoted(piece)) for id_, piece in zip(result["ids"], result["pieces"], strict=True)]
    lines = [table(["id", "piece"], rows[:_SHOWN], right=[0])]
    if len(rows) > _SHOWN:
        lines.append(f"... and {len(rows) - _SHOWN:,} more (--json has all)")
    ratio = "" if result["bytes_per_token"] is None else f", {result['bytes_per_token']:.2f} bytes per token"
    unknown = f", {result['unknown']:,} unknown" if result["unknown"] else ""
    lines.append(f"{result['tokens']:,} tokens{unknown}, {result['bytes']:,} bytes{ratio}")
    return "\n".join(lines)


def _quoted(piece: str) -> str:
    # Quotes show where blanks are; what has no shape is escaped.
    escaped = (each if each.isprintable() else each.encode("unicode_escape").decode() for each in piece)
    return f'"{"".join(escaped)}"'


def _render_trained(result: Mapping[str, Any]) -> str:
    lines = [f"trained {result['kind']} of {result['vocab_size']:,} ids: {result['tokenizer']}"]
    if "ids" in result:
        lines.append(_render_tokens(result))
    lines.append(f"next: sublayer train gpt data.tokenizer={result['tokenizer']}")
    return "\n".join(lines)
