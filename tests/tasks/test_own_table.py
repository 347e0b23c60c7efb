"""Tables of one's own: classes, numbers, choices and spans, in every kind of file."""

import json
from pathlib import Path

import pytest

from sublayer.errors import ConfigError, DataError
from sublayer.tasks.example import Answer
from sublayer.tasks.gold_spans import MOVED, NOT_FOUND
from sublayer.tasks.own_table.labels import SEVERAL
from sublayer.tasks.own_table.quoted_tsv import read_own_tsv
from sublayer.tasks.own_table.table import Table
from sublayer.tasks.own_table.task import LONE, read_rows, read_table

REVIEWS = [
    {"review": 'a "fine" film, really', "stars": 10},
    {"review": "two\nlines", "stars": 2},
    {"review": "dull", "stars": 2},
    {"review": "fine", "stars": 10},
]
CSV = 'review,stars\n"a ""fine"" film, really",10\n"two\nlines",2\ndull,2\nfine,10\n'


def _write(path: Path, text) -> Path:
    written = text if isinstance(text, str) else "\n".join(map(json.dumps, text))
    path.write_bytes(written.encode())
    return path


def _read(path: Path, text, columns=("review", "stars"), **more):
    _write(path, text)
    return read_table(Table(path, columns[0], label=columns[1], **more))


def _train(path: Path, text, columns=("review", "stars"), **more):
    return _read(path, text, columns, **more)[1]["train"]


def _labels(read):
    return [example.label for example in read.examples]


def test_every_kind_of_file_is_the_same_task(tmp_path):
    from pyarrow import Table as Columns
    from pyarrow.parquet import write_table

    write_table(Columns.from_pylist(REVIEWS), tmp_path / "a.parquet")
    files = {
        "a.csv": CSV,
        "semicolon.csv": CSV.replace(",", ";"),
        "tab.csv": CSV.replace(",", "\t"),
        "crlf.csv": CSV.replace("\n", "\r\n"),
        "bom.csv": "\ufeff" + CSV.rstrip("\n"),
        "a.tsv": CSV.replace(",", "\t"),
        "a.jsonl": REVIEWS,
        "a.json": json.dumps(REVIEWS),
        "a.parquet": "",
    }
    for name, text in files.items():
        if text:
            _write(tmp_path / name, text)
        task, splits = read_table(Table(tmp_path / name, "review", label="stars"))
        assert (task.kind, task.title) == ("classes", name)
        # Numbers in their own order: 2 before 10.
        assert task.labels == ("2", "10")
        assert _labels(splits["train"]) == [1, 0, 0, 1]
        assert [example.id for example in splits["train"].examples] == ["0", "1", "2", "3"]
        changed = {"semicolon.csv": (",", ";"), "tab.csv": (",", "\t"), "a.tsv": (",", "\t"),
                   "crlf.csv": ("\n", "\r\n")}  # fmt: skip
        old, new = changed.get(name, ("", ""))
        assert [example.fields["review"] for example in splits["train"].examples] == [
            str(row["review"]).replace(old, new) if old else row["review"] for row in REVIEWS
        ]
        assert not splits["train"].skipped


def test_labels_are_words_in_order(tmp_path):
    text = "review,stars\na,good\nb,bad\nc, good\nd,bad\n"
    task, splits = _read(tmp_path / "a.csv", text)
    assert task.labels == ("bad", "good")
    assert _labels(splits["train"]) == [1, 0, 1, 0]
    rows = [{"review": str(n), "stars": n % 2 == 0} for n in range(4)]
    task, _ = _read(tmp_path / "a.jsonl", rows)
    assert task.labels == ("False", "True")
    # What pandas makes of whole numbers beside an empty field.
    rows = [{"review": str(n), "stars": float(n % 2)} for n in range(4)]
    task, _ = _read(tmp_path / "b.jsonl", [*rows, {"review": "x", "stars": None}])
    assert task.labels == ("0", "1")


def test_numbers_are_classes_unless_they_are_said_to_be_numbers(tmp_path):
    text = "review,stars\na,3\nb,1.5\nc,-2e0\n"
    task, splits = _read(tmp_path / "a.csv", text, is_number=True)
    assert (task.kind, task.numbers) == ("number", (-2.0, 3.0))
    assert _labels(splits["train"]) == [3.0, 1.5, -2.0]
    with pytest.raises(DataError, match=r"a\.csv: the column 'stars' has numbers such as 1\.5"):
        _read(tmp_path / "a.csv", text)


@pytest.mark.parametrize("written", ["three", "1_0", "nan", "inf"])
def test_a_number_that_is_none_is_refused_with_its_line(tmp_path, written):
    text = f'review,stars\na,3\nb,"{written}"\n'
    with pytest.raises(DataError, match=rf"a\.csv:3: the label '{written}'"):
        _read(tmp_path / "a.csv", text, is_number=True)


def test_pairs_have_two_texts_and_groups_are_sources(tmp_path):
    text = "a,b,stars,author\nA,B,x,ann\nC,D,y,\nE,F,x,ann\nG,H,y,bob\n"
    path = _write(tmp_path / "a.csv", text)
    table = Table(path, "a", text_pair="b", label="stars", group="author", id="b")
    task, splits = read_table(table)
    assert task.fields == ("a", "b")
    assert splits["train"].examples[0].fields == {"a": "A", "b": "B"}
    assert [example.source for example in splits["train"].examples] == ["ann", "", "ann", "bob"]
    assert [example.id for example in splits["train"].examples] == ["B", "D", "F", "H"]


def test_rows_with_one_id_are_told_apart_and_counted(tmp_path):
    text = "review,stars,n\na,x,1\nb,y,1\na,x,1\nd,y,2\n"
    read = _train(tmp_path / "a.csv", text, id="n")
    assert len({example.id for example in read.examples}) == len(read.examples) == 3
    assert read.repaired.total() == 1
    assert read.skipped.total() == 1
    # Without ids equal rows are rows of their own.
    assert len(_train(tmp_path / "a.csv", text).examples) == 4


def test_rows_without_a_text_a_label_or_a_field_are_counted(tmp_path):
    text = "review,stars\na,x\n ,x\nb,\nc,y,z\nd\ne,y\nf,x\ng,y\n"
    read = _train(tmp_path / "a.csv", text)
    assert read.skipped == {
        "nothing in the column 'review'": 1,
        "nothing in the column 'stars'": 1,
        "more than 2 fields": 1,
        "fewer than 2 fields": 1,
    }
    assert read.firsts["fewer than 2 fields"].endswith("a.csv:6")
    # Ids count what is left out, too.
    assert [example.id for example in read.examples] == ["0", "5", "6", "7"]


def test_objects_that_lack_a_name_are_rows_that_lack_a_value(tmp_path):
    text = '{"stars": "x"}\n{"review": "a"}\n'
    text += '{"review": "b", "stars": "x"}\n{"review": "c", "stars": "y"}\n'
    read = _train(tmp_path / "a.jsonl", text)
    assert [example.id for example in read.examples] == ["2", "3"]
    assert read.skipped == {
        "nothing in the column 'review'": 1,
        "nothing in the column 'stars'": 1,
    }
    with pytest.raises(DataError, match=r"a.jsonl has no column 'stars': it has star, review"):
        _train(tmp_path / "a.jsonl", text.replace("stars", "star"))


def test_a_label_that_one_row_has_is_counted(tmp_path):
    read = _train(tmp_path / "a.csv", "review,stars\na,x\nb,y\nc,x\n")
    assert len(read.examples) == 3
    assert read.kept == {LONE: 1}
    assert read.firsts[LONE].endswith("a.csv:3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.csv is empty"),
        ("review,stars\n", "a.csv has no rows"),
        ("review,stars\n,x\n ,y\n", "a.csv has 2 rows, all to be left out"),
        ("review,star\na,x\n", "no column 'stars'"),
        ("review,review,stars\na,b,x\n", "several columns 'review'"),
        ("review,stars\na,x\nb,x\n", "'stars' is 'x' in all rows"),
        ("review,stars\na,\nb,\n", "'stars' is empty in all rows"),
        ("review,stars\na,x\nb,y\nc,z\n", "'stars' has another label in each of 3 rows"),
    ],
)
def test_a_table_that_teaches_nothing_is_refused(tmp_path, text, message):
    with pytest.raises(DataError) as refused:
        _read(tmp_path / "a.csv", text)
    assert message in str(refused.value)


def test_other_files_and_values_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"none\.csv is not there"):
        read_table(Table(tmp_path / "none.csv", "review", label="stars"))
    with pytest.raises(DataError, match=r"a\.xlsx"):
        _read(tmp_path / "a.xlsx", CSV)
    with pytest.raises(DataError, match="no table with train, dev or test in its name"):
        read_table(Table(tmp_path, "review", label="stars"))
    with pytest.raises(DataError, match=r"a\.jsonl:1: review is int"):
        _read(tmp_path / "a.jsonl", [{"review": 3, "stars": 1}])
    with pytest.raises(DataError, match=r"a\.jsonl:1: the label \['x'\]"):
        _read(tmp_path / "a.jsonl", [{"review": "a", "stars": ["x"]}])
    with pytest.raises(ConfigError, match="column of labels"):
        read_table(Table(_write(tmp_path / "a.csv", CSV), "review"))


def test_a_folder_has_a_file_for_each_split(tmp_path):
    _write(tmp_path / "reviews_train.csv", "review,stars\na,x\nb,y\nc,x\nd,y\n")
    _write(tmp_path / "reviews-validation.jsonl", [{"review": "e", "stars": "y"}])
    _write(tmp_path / "test.tsv", "review\nf\n")
    _write(tmp_path / "notes.txt", "train")
    task, splits = read_table(Table(tmp_path, "review", label="stars"))
    assert task.splits == ("train", "dev", "test")
    assert [len(splits[split].examples) for split in task.splits] == [4, 1, 1]
    assert _labels(splits["dev"]) == [1]
    assert not splits["test"].examples[0].is_labelled
    _write(tmp_path / "reviews-validation.jsonl", [{"review": "e", "stars": "yy"}])
    with pytest.raises(DataError, match=r"validation\.jsonl:1: 'yy' is not among the labels: x, y"):
        read_table(Table(tmp_path, "review", label="stars"))


def test_files_of_a_known_task_are_read_by_its_labels(tmp_path):
    task, _ = _read(tmp_path / "a.csv", "review,stars\na,x\nb,y\nc,x\nd,y\n")
    path = _write(tmp_path / "b.csv", "stars,review\ny,new\n")
    read = read_rows(Table(path, "review", label="stars"), task, "dev", (path,))
    assert _labels(read) == [1]
    # To be answered only: labels are not looked at.
    path = _write(tmp_path / "c.csv", "stars,review\nwhat,new\n")
    read = read_rows(Table(path, "review"), task, "test", (path,))
    assert [(example.label, example.is_labelled) for example in read.examples] == [(None, False)]


@pytest.mark.parametrize(
    ("written", "index"), [("red", 0), ("ending2", 1), ("C", 2), ("1", 1), ("", None)]
)
def test_a_choice_is_named_by_its_text_column_letter_or_number(tmp_path, written, index):
    text = f"story,ending1,ending2,ending3,right\nIt was,red,green,blue,{written}\n"
    path = _write(tmp_path / "a.csv", text + "Is it,one,two,three,two\n")
    table = Table(path, "story", label="right", choices=("ending1", "ending2", "ending3"))
    task, splits = read_table(table)
    assert (task.kind, task.fields, task.labels) == ("choice", ("story",), ())
    assert splits["train"].skipped.total() == (1 if index is None else 0)
    *first, second = splits["train"].examples
    assert (second.choices, second.label) == (("one", "two", "three"), 1)
    assert [(row.choices, row.label) for row in first] == (
        [] if index is None else [(("red", "green", "blue"), index)]
    )


def test_a_choice_beyond_the_last_or_of_two_meanings_is_refused(tmp_path):
    # The number 2 is the third, the text 2 the second.
    for written, text in (("3", "story,a,b,c,right\nIt was,x,y,z,3\n"),
                          ("2", "story,a,b,c,right\n1 + 1,1,2,3,2\n")):  # fmt: skip
        path = _write(tmp_path / "a.csv", text)
        with pytest.raises(DataError, match=rf"a\.csv:2: the label '{written}'"):
            read_table(Table(path, "story", label="right", choices=("a", "b", "c")))


PASSAGE = "The cat sat on the mat."


def _spans(path: Path, rows, split="train", **more):
    _write(path, [{"passage": PASSAGE, "question": "Where?", **row} for row in rows])
    table = Table(path, "passage", text_pair="question", answer="answer", **more)
    task, splits = read_table(table)
    if split != "train":
        return task, read_rows(table, task, split, (path,))
    return task, splits["train"]


def test_answers_are_spans_of_the_text(tmp_path):
    rows = [{"answer": "on the mat"}, {"answer": " the"}, {"answer": ""}, {"answer": "at"}]
    task, read = _spans(tmp_path / "a.jsonl", rows)
    assert (task.kind, task.fields, task.has_unanswerable) == (
        "span",
        ("passage", "question"),
        False,
    )
    assert [example.answers for example in read.examples] == [
        (Answer("on the mat", 12),),
        (Answer("the", 15),),
        (Answer("at", 5),),
    ]
    assert read.skipped == {"nothing in the column 'answer'": 1}
    # Questions about one passage stand on one side of a division.
    assert {example.source for example in read.examples} == {PASSAGE}
    assert read.repaired == {SEVERAL: 1}


def test_an_answer_that_is_not_in_its_passage_trains_nothing_and_is_scored_all_the_same(tmp_path):
    rows = [{"answer": "a dog"}, {"answer": "cat"}]
    _, read = _spans(tmp_path / "a.jsonl", rows)
    assert len(read.examples) == 1
    assert read.skipped == {NOT_FOUND: 1}
    _, read = _spans(tmp_path / "a.jsonl", rows, "dev")
    assert read.examples[0].answers == (Answer("a dog"),)
    assert read.kept == {NOT_FOUND: 1}


def test_answers_may_have_places_and_questions_none(tmp_path):
    rows = [{"answer": "at", "at": 9}, {"answer": "at", "at": "20"}, {"answer": "cat", "at": 5}]
    _, read = _spans(tmp_path / "a.jsonl", rows, answer_start="at")
    assert [example.answers[0].start for example in read.examples] == [9, 20, 4]
    assert read.repaired == {MOVED: 1}
    with pytest.raises(DataError, match="an answer begins at '9th', which is no whole number"):
        _spans(tmp_path / "a.jsonl", [{"answer": "at", "at": "9th"}], answer_start="at")
    # As the hub has SQuAD, and as plain lists.
    rows = [
        {"answer": {"text": ["at", "cat"], "answer_start": [9, 4]}},
        {"answer": {"text": [], "answer_start": []}},
        {"answer": ["cat", "mat"]},
        {"answer": []},
    ]
    task, read = _spans(tmp_path / "a.jsonl", rows)
    assert task.has_unanswerable
    assert task.metrics == ("exact_match_v2", "token_f1_v2")
    assert [[answer.start for answer in example.answers] for example in read.examples] == [
        [9, 4],
        [],
        [4, 19],
        [],
    ]
    assert all(example.is_labelled for example in read.examples)


@pytest.mark.parametrize("answer", [3, [3], {"text": ["at"], "answer_start": []}])
def test_an_answer_of_another_type_is_refused(tmp_path, answer):
    with pytest.raises(DataError, match=r"a\.jsonl:1: "):
        _spans(tmp_path / "a.jsonl", [{"answer": answer}])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": "a"}, "'a' is given twice"),
        ({"choices": ("b",), "label": "c"}, "'b' alone"),
        ({"choices": ("b", "c"), "label": "d", "is_number": True}, "is no number"),
        ({"answer": "b", "label": "c", "text_pair": "d"}, "exclude a label"),
        ({"answer": "b"}, "text_pair"),
        ({"label": "b", "answer_start": "c"}, "answer_start"),
    ],
)
def test_columns_that_exclude_each_other_are_refused(columns, message):
    with pytest.raises(ConfigError, match=message):
        Table("x.csv", "a", **columns)


def _read_tsv(path, text):
    path.write_text(text)
    read = read_own_tsv(path)
    return [tuple(record.values.values()) for record in read.records], read.note.partition(": ")[2]


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        # As pandas writes it, doubled quotes, tabs and line breaks within fields.
        ('"a ""b"""\t1\nc\t2\n', [('a "b"', "1"), ("c", "2")]),
        ('"a\tb"\t1\n', [("a\tb", "1")]),
        ('"a\nb"\t1\n', [("a\nb", "1")]),
    ],
)
def test_quotes_surround_fields_of_tsv_where_every_row_is_complete_so(tmp_path, lines, rows):
    expected = rows, "quotes stand around fields, as in CSV"
    assert _read_tsv(tmp_path / "a.tsv", "x\ty\n" + lines) == expected
    quoted = _read_tsv(tmp_path / "b.tsv", '"x"\t"y"\n' + lines)
    assert quoted[0] == rows


@pytest.mark.parametrize(
    ("lines", "rows", "note"),
    [
        ('"a" b\t1\n', [('"a" b', "1")], "quotes are text"),
        # Two quotes that begin fields would join two lines to one.
        ('"a\t1\nb"\t2\n', [('"a', "1"), ('b"', "2")], "quotes are text"),
        ('a "b"\t1\n', [('a "b"', "1")], ""),
    ],
)
def test_other_quotes_of_tsv_are_text(tmp_path, lines, rows, note):
    assert _read_tsv(tmp_path / "a.tsv", "x\ty\n" + lines) == (rows, note)


def test_a_header_of_tsv_may_be_quoted_alone(tmp_path):
    path = _write(tmp_path / "a.tsv", '"x"\t"y"\na\t1\n')
    (record,) = read_own_tsv(path).records
    assert record.values == {"x": "a", "y": "1"}
