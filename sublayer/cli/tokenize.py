"""``sublayer tokenize``: train a tokenizer, or see what one makes of a text."""

import sys
from typing import Any

from sublayer.api.tokenizing import tokenize
from sublayer.cli.build import Json, client_of, print_result

EXAMPLE = (
    "sublayer tokenize --path book.txt --kind bpe --vocab-size 4096 --out tokenizer.json "
    '--text "a word"'
)


@client_of(tokenize)
def command(options: dict[str, Any], as_json: Json = False) -> None:
    """Train a tokenizer on a text and save it, or show how one splits a text into tokens.

    A recipe uses a saved tokenizer with data.tokenizer=FILE.
    """
    reads = "source" in options and not options.keys() & {"text", "out", "path", "corpus"}
    if reads and not sys.stdin.isatty():
        options["text"] = sys.stdin.buffer.read()
    print_result(tokenize(**options), as_json)
