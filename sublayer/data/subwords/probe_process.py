"""A process of its own that reads a tokenizer's file with a compiled library and tries it on texts.

It is run by its path, with the kind of the file, the library's folder and the limits as its
arguments, and the file on standard input. It imports nothing of this package, so that it starts in
a moment. It ends with code 0, with code 1 and the reason on standard output, or however the library
ends it.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

_RUN = 4096
_SHORT_RUN, _LONG_RUN = 48, 1 << 15
_MOST_IDS_PER_BYTE = 16
_MOST_CHARACTERS_PER_ID = 1 << 12
_SPARE_IDS = 1 << 16

# Runs of one kind of character find patterns that take time that grows as a power; special names,
# and characters that few vocabularies have, find what is missing.
_RUNS = ("a", " ", "0", "\n", ".", "\u00e9", "\u4e2d", "a ", "a1", "'s", "\U000f0000")
_LONG_RUNS = ("a", " ")
_SENTENCES = (
    "",
    " ",
    "a",
    "The quick brown fox's 12,345.60 jumps\tover\r\n\r\n  the lazy dogs; they'd (all) seen it!",
    "Zo\u00eb na\u00efve cafe\u0301 \ufb03 \ufdfa \u1e9b\u0323 \u0130I\u0131 \u03a3\u03c3\u03c2 "
    "\u01c5 \u212b",
    "\u65e5\u672c\u8a9e\u306e\u6587 \ud55c\uad6d\uc5b4 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 "
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \ufe0f \u200b \ufeff \u00ad "
    "\u2028\u2029\u0085",
    "\x00\x01\x1f\x7f\x80\x9f \ufffd\uffff\U0010ffff\ue000",
    "<s> </s> <unk> <pad> <mask> [CLS] [SEP] [MASK] [UNK] <|endoftext|> <0x0A> \u2581 \u0120 ## "
    "@@ </w> {} $A \\",
    "".join(map(chr, range(0x20, 0x250))),
)


def try_library(data: bytes) -> None:
    """Load a file of the ``tokenizers`` library; encode and decode with it; raise what it does."""
    from tokenizers import Tokenizer, models

    library = Tokenizer.from_str(data.decode())
    library.no_padding()
    library.no_truncation()
    if isinstance(library.model, models.BPE):
        library.model.dropout = None
    ids = library.get_vocab(with_added_tokens=True).values()
    if not ids:
        raise ValueError("its vocabulary is empty")
    if max(ids) >= 2 * len(ids) + _SPARE_IDS:
        raise ValueError(f"its greatest id is {max(ids)}, of {len(ids)} in all")
    library.encode("")
    library.encode_special_tokens = True

    def encode(tried: Sequence[str]) -> list[list[int]]:
        encodings = library.encode_batch_fast(tried, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    n_ids = max(ids) + 1
    added = library.get_added_tokens_decoder().values()
    all_added = " ".join(token.content for token in added)
    around = encode(_SENTENCES)
    for tried in ([*_SENTENCES, all_added], _runs()):
        _check(tried, encode(tried), n_ids, library.decode)
    library.post_processor = None  # which puts ids around those of a text
    if encode(_SENTENCES) != around:
        raise ValueError("what it puts around a text changes the ids of the text itself")
    library.decode_batch([[id_] for id_ in range(n_ids)])


def try_sentencepiece(data: bytes) -> None:
    """Read a SentencePiece model; encode and decode with it. Raises whatever the library does."""
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor()
    processor.LoadFromSerializedProto(data)
    n_ids = processor.get_piece_size()
    for tried in (list(_SENTENCES), _runs()):
        _check(tried, processor.encode(tried), n_ids, processor.decode)
    ids = list(range(n_ids))
    for id_, name in zip(ids, processor.id_to_piece(ids), strict=True):
        processor.decode([id_])
        processor.decode_pieces([name])


def _runs() -> list[str]:
    texts = []
    for run in _RUNS:
        texts.append(run * _SHORT_RUN + "!")
        texts.append(run * (_RUN // len(run)))
    for run in _LONG_RUNS:
        texts.append(run * _LONG_RUN)
    return texts


def _check(
    tried: Sequence[str],
    encoded: Sequence[Sequence[int]],
    n_ids: int,
    decode: Callable[[list[int]], str],
) -> None:
    for text, ids in zip(tried, encoded, strict=True):
        n_bytes = len(text.encode())
        if len(ids) > _MOST_IDS_PER_BYTE * (n_bytes + 1):
            raise ValueError(f"it makes {len(ids)} ids of a text of {len(text)} characters")
        if ids and max(ids) >= n_ids:
            raise ValueError(f"it gives the id {max(ids)}, and has {n_ids}")
        again = decode(list(ids))
        if len(again) > _MOST_CHARACTERS_PER_ID * (len(ids) + 1):
            raise ValueError(f"it makes too long a text of {len(ids)} ids")


def _limit(n_bytes: int, n_seconds: int) -> None:
    try:
        import resource
    except ImportError:
        # Windows has no such limits; the time that the process may take is limited from outside.
        return
    limits = {
        resource.RLIMIT_AS: n_bytes,
        resource.RLIMIT_CPU: n_seconds,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        try:
            resource.setrlimit(kind, (limit, hard))
        except (OSError, ValueError):  # macOS has no limit of memory
            continue


def main(arguments: Sequence[str]) -> int:
    """Try the file on standard input; say why it cannot be used."""
    kind, folder, n_bytes, n_seconds = arguments
    _limit(int(n_bytes), int(n_seconds))
    sys.path.append(folder)
    tries: dict[str, Callable[[bytes], Any]] = {
        "tokenizers": try_library,
        "sentencepiece": try_sentencepiece,
    }
    try:
        tries[kind](sys.stdin.buffer.read())
    except BaseException as error:  # whatever a compiled library raises is the answer
        reason = str(error).strip() or type(error).__name__
        first_line = reason.splitlines()[0]
        sys.stdout.write(first_line)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
