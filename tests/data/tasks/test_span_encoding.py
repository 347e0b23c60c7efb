"""Questions and their passages encoded in windows, and prepared from their files."""

import json
from pathlib import Path

import numpy as np
import pytest

from sublayer.config.data import DataConfig
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.data.tasks.assembly import Assembler, RowRule
from sublayer.data.tasks.batches import ExampleBatches
from sublayer.data.tasks.marks import Marks
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.data.tasks.span_encoding import WindowRule, encode_passages
from sublayer.data.tasks.span_examples import SpanExamples
from sublayer.data.tasks.windows import Window
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import ConfigError
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.registry import TASKS
from sublayer.tasks.suites.squad import SQUAD

_PASSAGE = "abcdefghijklmnopqrst"

_MARKS = Marks(first=256, between=257, last=257, pad=258)

_SQUAD, _SQUAD2 = TASKS["squad"], TASKS["squad2"]


def _example(id_: str, question: str, *answers: Answer, passage: str = _PASSAGE) -> Example:
    return Example(id_, {"context": passage, "question": question}, answers=answers, source=passage)


def _encode(examples, *, context=15, stride=5, trains=False, task=_SQUAD) -> SpanExamples:
    rule = WindowRule(context, stride)
    return encode_passages(task, examples, ByteTokenizer(), rule, trains=trains)


def _texts(encoded: SpanExamples, row: int) -> list[str]:
    return [bytes(text.tolist()).decode() for text in encoded.texts_of(row)]


def test_a_passage_is_read_in_windows_each_behind_the_question():
    encoded = _encode([_example("0", "?!", Answer("klm", 10)), _example("1", "#")])
    # 15 tokens, 3 marks and a question of 2 leave room for 10.
    assert [_texts(encoded, row) for row in encoded.rows_of(0)] == [
        ["?!", "abcdefghij"],
        ["?!", "fghijklmno"],
        ["?!", "klmnopqrst"],
    ]
    assert encoded.windows(0) == [Window(0, 10), Window(5, 10), Window(10, 10)]
    # [CLS] ? ! [SEP] is 4: "k" is the sixth and the first of its windows; the first has none of it.
    assert encoded.spans[:3].tolist() == [[0, 0], [9, 11], [4, 6]]
    assert (encoded.offset(0), encoded.offset(1)) == (4, 3)
    assert encoded.spans[3:].tolist() == [[0, 0]] * 3
    assert encoded.placed(1).slice(2, 4, _PASSAGE) == slice(2, 5)
    assert len(encoded) == encoded.n_questions == 2


def test_a_window_teaches_the_answer_that_it_has_whole():
    encoded = _encode([_example("0", "?!", Answer("ijklm", 8))])
    assert encoded.spans.tolist() == [[0, 0], [7, 11], [0, 0]]
    # Each window is an example to learn.
    encoded = _encode([_example("0", "?!", Answer("a", 0)), _example("1", "#")], trains=True)
    assert len(encoded) == encoded.n_rows == 6 and encoded.n_questions == 2
    assert encoded.numbers.tolist() == [0, 0, 0, 1, 1, 1]
    assert encoded.spans[:, 0].tolist() == [4, 0, 0, 0, 0, 0]
    assert not len(encoded.token_starts)
    # The first answer with a place is learned, or that there is none.
    encoded = _encode([_example("0", "?", Answer("xyz"), Answer("c", 2))], context=40, trains=True)
    assert encoded.spans.tolist() == [[5, 5]]
    encoded = _encode([_example("0", "?")], context=40, trains=True, task=_SQUAD2)
    assert encoded.spans.tolist() == [[0, 0]]
    # A question whose answer has no place teaches nothing, and is scored.
    examples = [_example("0", "?", Answer("xyz")), _example("1", "?", Answer("b", 1))]
    assert set(_encode(examples, trains=True).numbers.tolist()) == {1}
    scored = _encode(examples)
    assert scored.numbers.tolist() == [0, 1]
    assert not scored.spans[scored.rows_of(0)].any()


def test_rows_are_built_with_marks_and_the_columns_of_answers():
    encoded = _encode([_example("0", "?!", Answer("klm", 10))], trains=True)
    batch = Assembler(encoded, RowRule("pair", _MARKS, 15)).pack(np.arange(3))
    assert batch.spans is not None
    found = []
    for (first, last), (row, start) in zip(batch.spans, batch.readouts, strict=True):
        assert batch.read.tokens[row, start] == _MARKS.first
        own = batch.read.tokens[row, first : last + 1]
        found.append([_MARKS.first] if first == start else own.tolist())
    assert sorted(found) == [[*b"klm"], [*b"klm"], [_MARKS.first]]


def test_a_long_question_is_cut_and_counted_and_a_passage_may_be_empty():
    encoded = _encode([_example("0", "?" * 70), _example("1", "?")], context=200)
    assert _texts(encoded, 0)[0] == "?" * 64
    assert (encoded.n_cut_questions, encoded.most_question_tokens) == (1, 64)
    # In a short row it has half of the room.
    encoded = _encode([_example("0", "?" * 70), _example("1", "?")], context=43)
    assert [len(text) for text in _texts(encoded, 0)] == [20, 20]
    assert encoded.n_cut_questions == 1
    encoded = _encode([_example("0", "?", passage="")], context=40)
    assert encoded.windows(0) == [Window(0, 0)] and _texts(encoded, 0) == ["?", ""]
    with pytest.raises(ConfigError, match="no room for a passage"):
        _encode([_example("0", "?")], context=3)


@pytest.mark.parametrize("trains", [False, True])
def test_stored_and_read_back_and_chosen_they_are_the_same(trains):
    examples = [_example(str(n), "?" * n, Answer("h", 7)) for n in range(1, 4)]
    encoded = _encode(examples, trains=trains)
    again = SpanExamples.of_arrays(encoded.arrays())
    places = np.flatnonzero(encoded.numbers != 1)
    alone = _encode([examples[0], examples[2]], trains=trains)
    for name, array in alone.arrays().items():
        if name != "numbers":
            assert np.array_equal(again.select(places).arrays()[name], array), name
    assert again.select(places[:0]).n_rows == 0


def _write(folder: Path, n_articles: int, answer: str = "w{0}") -> None:
    articles = []
    for article in range(n_articles):
        paragraphs = []
        for paragraph in range(2):
            words = [f"w{article}", *(f"x{paragraph}y{n}" for n in range(40))]
            gold = {"text": answer.format(article), "answer_start": 0}
            question = {"id": f"{article}-{paragraph}", "question": "Which?", "answers": [gold]}
            paragraphs.append({"context": " ".join(words), "qas": [question]})
        articles.append({"title": f"Article {article}", "paragraphs": paragraphs})
    folder.mkdir(exist_ok=True)
    data = {"version": "1.1", "data": articles}
    (folder / "dev-v1.1.json").write_text(json.dumps(data))


def _prepare(folder: Path, tmp_path: Path, **settings):
    config = DataConfig(tasks="squad", path=str(folder), context=settings.pop("context", 64))
    words = [f"w{n}" for n in range(30)]
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    objective = SupervisedObjective(**settings)
    tokenizer = load_tokenizer(vocabulary)
    return prepare_tasks(config, objective, tokenizer=tokenizer, cache=tmp_path / "cache")


def test_a_folder_without_train_is_split_by_article_in_windows_of_a_length(tmp_path):
    _write(tmp_path / "squad", 12)
    rows = []
    for settings in ({}, {"context": 24}, {"context": 24, "doc_stride": 3}, {}):
        data = _prepare(tmp_path / "squad", tmp_path, **settings)
        rows.append((data.train.parts[0].encoded.n_rows, data.checksums["train"]))
    splits = [data.train, data.valid, data.test]
    sources = [{example.source for example in split.parts[0].examples} for split in splits]
    assert len(set.union(*sources)) == sum(map(len, sources)) == 12
    assert all(sources)
    assert sum(split.parts[0].encoded.n_questions for split in splits) == 24
    assert rows[0][0] < rows[1][0] < rows[2][0]
    assert rows[3] == rows[0]
    assert len({checksum for _, checksum in rows}) == 3


def test_what_is_left_out_is_said(tmp_path):
    # The reader keeps what is to be scored, and nothing is learned of it.
    _write(tmp_path / "squad", 12, answer="nowhere")
    path = tmp_path / "squad" / "dev-v1.1.json"
    content = json.loads(path.read_text())
    for article in content["data"][:9]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"][0]["answers"][0]["text"] = paragraph["context"].split()[0]
    path.write_text(json.dumps(content))
    data = _prepare(tmp_path / "squad", tmp_path, context=24)
    part = data.train.parts[0]
    n_found = sum(example.answers[0].start is not None for example in part.distinct_examples)
    assert part.n_lost > 0 and n_found == part.encoded.n_questions
    rule = RowRule("pair", data.train.marks, 24)
    notes = ExampleBatches(data.train, rule=rule, batch_sequences=4, seed=0).notes()
    n_rows = part.encoded.n_rows
    assert notes == [
        f"{n_found} questions of the train part in {n_rows} windows of their passages, "
        f"{n_rows - n_found} of which have no answer",
        f"{part.n_lost} questions of the train part left out: their answers are not found in "
        "their passages",
    ]
    assert SQUAD.read(_SQUAD, "dev", (path,)).kept
