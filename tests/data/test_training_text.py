"""What a tokenizer is trained on: all of a text, or a bounded part from everywhere in it."""

import pytest

from sublayer.data import training_text
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.data.training_text import TrainingText, sampled

LINES = [b"line %04d of a text\n" % number for number in range(2000)]
TEXT = b"".join(LINES)


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    monkeypatch.setattr(training_text, "_WINDOW_BYTES", 100)
    monkeypatch.setattr(training_text, "_SEARCHED_BYTES", 50)


def as_documents(size: int) -> list[DocumentRange]:
    """The text in documents of so many lines."""
    parts = [b"".join(LINES[low : low + size]) for low in range(0, len(LINES), size)]
    return [DocumentRange(MemoryDocument(str(n), part)) for n, part in enumerate(parts)]


def text_of(part: DocumentRange) -> bytes:
    return part.document.read()[part.start : part.stop]


@pytest.mark.parametrize("size", [1, 3, 50, 700, 2000])
@pytest.mark.parametrize("most", [1000, 5000, 20000])
def test_a_sample_is_whole_lines_from_everywhere(size, most):
    parts = list(sampled(as_documents(size), len(TEXT), most))
    text = b"".join(map(text_of, parts))
    lines = text.splitlines(keepends=True)
    assert set(lines) <= set(LINES)
    assert lines == sorted(set(lines))
    # About as much as was asked for: windows and documents are not of one size.
    assert 0.7 * most <= len(text) <= 1.3 * most
    fifths = {int(line.split()[1]) * 5 // len(LINES) for line in lines}
    assert fifths == {0, 1, 2, 3, 4}


def test_a_range_is_sampled_within_its_bounds():
    document = MemoryDocument("a", TEXT)
    parts = list(sampled([DocumentRange(document, 3000, 9000)], 6000, 1000))
    assert all(3000 <= part.start < part.stop <= 9000 for part in parts)
    assert parts[0].start == 3000
    assert sampled_again(document) == [(part.start, part.stop) for part in parts]


def sampled_again(document):
    parts = sampled([DocumentRange(document, 3000, 9000)], 6000, 1000)
    return [(part.start, part.stop) for part in parts]


def test_a_text_up_to_the_bound_is_taken_as_it_is(monkeypatch, capsys):
    sources = [as_documents(7), as_documents(2000)]
    n_bytes = 2 * len(TEXT)
    monkeypatch.setattr(training_text, "_MOST_BYTES_OF_OTHERS", n_bytes)
    whole = TrainingText(sources, "bpe", "none")
    assert whole.identity == []
    assert b"".join(whole.texts()) == TEXT + TEXT
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(training_text, "_MOST_BYTES_OF_OTHERS", n_bytes - 1)
    part = TrainingText(sources, "bpe", "none")
    assert part.identity == [["sample", n_bytes - 1, 1]]
    assert 0 < len(b"".join(part.texts())) <= 1.3 * n_bytes
    assert "is trained on 0 of the 0 MB of the training text" in capsys.readouterr().err


def test_sentences_of_a_sample_are_cut(monkeypatch):
    monkeypatch.setattr(training_text, "_MOST_BYTES_OF_OTHERS", 500)
    texts = TrainingText([as_documents(2000)], "wordpiece", "lines").texts()
    lines = b"".join(texts).splitlines(keepends=True)
    assert set(lines) <= set(LINES) and 15 < len(lines) < 35
