"""What has no place to be cut is encoded in bounded memory where that can be, or refused."""

import pytest

from sublayer.data.shards.cutting import cut_shards
from sublayer.data.store import read_store, write_store
from sublayer.data.text import document_range
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import DataError
from tests.in_time import some_in_time

SENTENCES = [*[b"a word and another\n"] * 40_000, b"a word, another, " * 20_000 + b"\n", b"end\n"]


class Recorded(ByteTokenizer):
    """Bytes, and how many are given to be encoded at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[int] = []
        self.alone: list[int] = []

    def encode(self, text):
        self.alone.append(len(text))
        return super().encode(text)

    def encode_many(self, texts):
        self.together.append(sum(map(len, texts)))
        return [ByteTokenizer.encode(self, text) for text in texts]


def test_sentences_are_encoded_in_small_batches_and_long_ones_alone(tmp_path):
    tokenizer = Recorded()
    source = [DocumentRange(MemoryDocument("a", b"".join(SENTENCES)))]
    write_store(tmp_path / "a", [source], tokenizer, "lines")
    assert max(tokenizer.together) <= 256 << 10
    assert tokenizer.alone == [len(SENTENCES[-2].strip()), len(SENTENCES[-1].strip())]
    assert len(read_store(tmp_path / "a").sentence_starts) == len(SENTENCES)


@pytest.mark.parametrize("kind", some_in_time(["wordpiece", "unigram", "moses-bpe", "bpe"], 4))
def test_a_long_sentence_alone_has_the_ids_that_it_has_among_others(kind):
    long = b" ".join(b"word %d, and Another." % number for number in range(9000))
    tokenizer = train_tokenizer(kind, [long[:20000]], vocab_size=300)
    assert tokenizer.encode(long).tolist() == tokenizer.encode_many([b"a", long])[1].tolist()


def test_a_text_without_a_place_to_cut_is_refused_with_its_line(monkeypatch):
    monkeypatch.setattr(document_range, "_CHUNK_BYTES", 8)
    monkeypatch.setattr(document_range, "_LONGEST_BYTES", 32)
    source = [DocumentRange(MemoryDocument("a.txt", b"one\ntwo\nthree\n" + b"x" * 99))]
    tokenizer = train_tokenizer("bpe", [b"one two"], vocab_size=257)
    # BPE cuts before the end of a line, sentences are cut behind it.
    for unit, line in (("none", 3), ("lines", 4)):
        message = f"^a.txt, line {line}: 0 MiB without a place where the text may be cut: divide"
        with pytest.raises(DataError, match=message):
            list(cut_shards([source], tokenizer.cut, unit))
    [shard] = cut_shards([source], ByteTokenizer().cut, "none")
    assert shard.text.n_bytes == 113
