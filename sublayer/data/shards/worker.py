"""A process that encodes shards: a line for each comes in, and a line goes out when it is done."""

import json
import os
import signal
import sys
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from sublayer.data.shards.encoding import ShardEncoder
from sublayer.data.shards.request import read_request
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import SublayerError
from sublayer.files.cache_folder import replacing


def main() -> int:
    """Encode what standard input asks for, until it ends: then this process does, at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks decides
    lines: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(lines,), daemon=True).start()
    settings = json.loads(lines.get())
    tokenizer = load_tokenizer(Path(settings["tokenizer"]))
    assert tokenizer.fingerprint == settings["fingerprint"], "a tokenizer is read as it was written"
    while True:
        answer = _answer(lines.get(), tokenizer, settings["unit"])
        try:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            return 0


def _listen(lines: "SimpleQueue[bytes]") -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


def _answer(line: bytes, tokenizer: Tokenizer, unit: Any) -> dict[str, str]:
    number, path, pieces = read_request(line)
    try:
        with replacing(path) as file:
            encoder = ShardEncoder(file, tokenizer, unit, is_first=number == 0)
            encoder.add_all(pieces)
            encoder.close_part()
    except SublayerError as error:
        return {"kind": type(error).__name__, "error": str(error)}
    except OSError as error:
        return {"kind": "DataError", "error": f"cannot read the text: {error}"}
    return {}
