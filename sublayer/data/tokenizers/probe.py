"""Probes of tokenizer files in a child process: a compiled library may abort, panic or hang."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from sublayer.errors import DataError
from sublayer.files.cache_folder import cache_folder, content_key, replacing
from sublayer.system.processes import python_command

VERSION = 2  # increased whenever the probe changes
_BYTES = 512 << 20
_SENTENCES = [
    "The quick brown fox's 12,345.60 jumps\tover\r\n\r\n  the lazy dogs; they'd (all) seen it!",
    "Zoë naïve cafe\u0301 \ufb03 \ufdfa \u1e9b\u0323 İIı Σς \u01c5 日本語の文 한국어 العربية हिन्दी",
    "👨\u200d👩 🇩🇪 \ufe0f \u200b \ufeff \u2028 \x00\x1f\x7f\x80 \ufffd\uffff\U0010ffff\ue000",
    "<s> </s> <unk> <pad> <mask> [CLS] [SEP] [MASK] [UNK] <|endoftext|> <0x0A> ▁ Ġ ## @@ </w> {} $",
    "".join(map(chr, range(0x20, 0x250))),
]
# Runs of one kind of character reveal patterns with superlinear time.
_RUNS = ("a", " ", "0", "\n", ".", "é", "中", "a ", "a1", "'s", "\U000f0000")
_TEXTS = [*_SENTENCES, *(run * n for run in _RUNS for n in (48, 4096)), "a" * 32768, " " * 32768]
Probed = tuple[list[str], Callable[..., Any], Callable[..., str], int]
_tried: set[str] = set()


def try_file(library: str, data: bytes, what: str) -> None:
    """Load a file by ``tokenizers`` or ``sentencepiece`` and encode texts, in a child process.

    Content that passed is recorded in the cache folder and not probed again. Raises DataError with
    ``what`` and the reason where the library refuses the file, crashes, or takes more than 4 s plus
    1 s per MiB, or more than 512 MiB of memory plus 64 bytes per byte.
    """
    key = content_key(VERSION, library, version(library), hashlib.sha256(data).hexdigest())
    with suppress(DataError, OSError, RuntimeError):  # without a home folder
        if key in _tried or (cache_folder() / "tried" / key).is_file():
            return
    seconds, n_bytes = 4 + (len(data) >> 20), _BYTES + 64 * len(data)
    command = [*python_command(__name__), library, str(n_bytes), str(seconds)]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=8 * seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"{what}: the process that probes it cannot run ({error})") from None
    if done.returncode:
        limits = f"more than {seconds} seconds of processor time or {n_bytes >> 20:,} MiB"
        died = f"the library crashes on it, or takes {limits} (code {done.returncode})"
        raise DataError(f"{what}: {done.stdout.decode('utf-8', 'replace')[:200] or died}")
    _tried.add(key)
    with suppress(DataError, OSError, RuntimeError), replacing(cache_folder() / "tried" / key):
        pass  # an empty file


def main() -> int:
    """Probe the file on standard input, in the child process; write why it cannot be used."""
    import resource

    os.environ |= {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    *_, library, n_bytes, seconds = sys.argv
    limits = {resource.RLIMIT_AS: n_bytes, resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: "0"}
    for kind, limit in limits.items():
        with suppress(OSError, ValueError):  # macOS has no limit of memory
            resource.setrlimit(kind, (int(limit), int(limit)))
    try:
        open_file = _open_library if library == "tokenizers" else _open_sentencepiece
        texts, encode, decode, n_ids = open_file(sys.stdin.buffer.read())
        for text in texts:
            [ids] = encode([text])
            if len(ids) > 16 * (len(text.encode()) + 1):
                raise ValueError(f"it gives {len(ids)} ids for {len(text)} characters")
            if ids and max(ids) >= n_ids:
                raise ValueError(f"it gives the id {max(ids)}, but has only {n_ids} ids")
            if len(decode(ids)) > (len(ids) + 1) << 12:
                raise ValueError(f"it decodes {len(ids)} ids to too long a text")
        for id_ in range(n_ids):
            decode([id_])
    except BaseException as error:  # a compiled library's panic is not an Exception
        sys.stdout.write((str(error).strip() or type(error).__name__).splitlines()[0])
        return 1
    return 0


def _open_library(data: bytes) -> Probed:
    from tokenizers import Tokenizer, models

    library = Tokenizer.from_str(data.decode())
    library.no_padding()
    library.no_truncation()
    if isinstance(library.model, models.BPE):
        library.model.dropout = None
    ids = library.get_vocab(with_added_tokens=True).values()
    if not ids or max(ids) >= 2 * len(ids) + (1 << 16):
        raise ValueError(f"its greatest id is {max(ids, default=None)}, with {len(ids)} ids in all")
    library.encode("")
    library.encode_special_tokens = True

    def encode(texts: list[str]) -> list[list[int]]:
        return [row.ids for row in library.encode_batch_fast(texts, add_special_tokens=False)]

    before, library.post_processor = encode(_SENTENCES), None  # which adds ids around a text
    if encode(_SENTENCES) != before:
        raise ValueError("its post-processor changes the ids of the text itself")
    added = " ".join(token.content for token in library.get_added_tokens_decoder().values())
    return [*_TEXTS, added], encode, library.decode, max(ids) + 1


def _open_sentencepiece(data: bytes) -> Probed:
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(data)
    n_ids = processor.get_piece_size()
    for name in processor.id_to_piece(list(range(n_ids))):
        processor.decode_pieces([name])
    return _TEXTS, processor.encode, processor.decode, n_ids
