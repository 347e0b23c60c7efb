"""Records and tables of one's own, in every kind of file."""

import bz2
import gzip
import io
import json
import lzma
import re
import subprocess
import zipfile
from datetime import datetime

import pytest

from sublayer.errors import ConfigError, DataError
from sublayer.tasks import own_table
from sublayer.tasks.own_table import LONE, SEVERAL, OwnTable, read_own
from sublayer.tasks.published import MOVED, NOT_FOUND
from sublayer.tasks.records import read_records
from sublayer.tasks.task import Answer
from tests.tasks.files import answers, ids, labels, texts, write


def _records(path, content):
    return [(each.line, dict(each.values)) for each in read_records(write(path, content))]


A_B = {"a": "1", "b": "2"}


@pytest.mark.parametrize("name, content, records", [
    ("a.csv", '\ufefftext,label\r\n"a ""quote""",1\r\n\r\n"two\nlines",0',
     [(2, {"text": 'a "quote"', "label": "1"}), (4, {"text": "two\nlines", "label": "0"})]),
    ("a.csv", 'a,b\n"1\n2\n3",x\n1,2\n', [(2, {"a": "1\n2\n3", "b": "x"}), (5, A_B)]),
    ("a.csv", "a; b\n1;2\n", [(2, A_B)]),
    ("a.tsv", 'a\tb\r\n"x\t1\r\n\r\ny"\t2',
     [(2, {"a": '"x', "b": "1"}), (4, {"a": 'y"', "b": "2"})]),
])  # fmt: skip
def test_fields_are_divided_and_lines_counted(tmp_path, name, content, records):
    assert _records(tmp_path / name, content) == records


@pytest.mark.parametrize("name, content, place", [
    ("a.jsonl", '{"a": 1}\n{"a": \n', "a.jsonl:2"), ("a.jsonl", '{"a": 1, "a": 2}\n', "a.jsonl:1"),
    ("a.jsonl", '{"a": NaN}\n', "a.jsonl:1"), ("a.jsonl", b'{"a": 1}\n\xff\n', "line 2: byte 0xff"),
    ("a.json", '[{"a": 1}, 2]', "a.json:2"), ("a.csv", 'a,b\n1,2\n"never ends,3\n4,5\n', "a.csv:3"),
    ("a.csv", "a,b\n1\r2,3\n", "a.csv:2"),
    ("a.parquet", b"PAR1", "a.parquet is a damaged Parquet file (Parquet f"),
    *((f"a.csv{each}", b"BZh9 no archive", "damaged") for each in (".bz2", ".xz", ".zip")),
    ("a.xlsx", b"PK\3\4", "not a complete .xlsx"), ("a.xls", b"", "save it as "),
])  # fmt: skip
def test_a_damaged_file_is_refused_with_its_place(tmp_path, name, content, place):
    with pytest.raises(DataError) as caught:
        _records(tmp_path / name, content)
    assert place in str(caught.value)


PASSAGE, FILM = "The cat sat on the mat.", 'a "fine" film, really'
STARS = {FILM: 10, "two\nlines": 2, "dull": 2, "fine": 10}
REVIEWS = [{"review": text, "stars": stars} for text, stars in STARS.items()]
LINES = "\r\n".join(map(json.dumps, REVIEWS))
CSV = 'review,stars\n"a ""fine"" film, really",10\n"two\nlines",2\ndull,2\nfine,10\n'


def zipped(files):
    with zipfile.ZipFile(packed := io.BytesIO(), "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def _read(path, content, **more):
    return OwnTable(write(path, content), "review", label="stars", **more).read()


def test_values_of_parquet_that_python_lacks_and_columns_without_a_name_are_refused(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    bad = arrow.Array.from_buffers(arrow.string(), 2, arrow.array([b"one", b"t\xffwo"]).buffers())
    parquet.write_table(arrow.table({"text": bad}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="a.parquet, row 2: byte 0xff is not UTF-8"):
        list(read_records(tmp_path / "a.parquet"))
    late = arrow.table({"day": arrow.array([1 << 60], arrow.timestamp("us"))})
    parquet.write_table(late, tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b.parquet is a damaged .* \(date value out of range"):
        list(read_records(tmp_path / "b.parquet"))
    parquet.write_table(arrow.table([[1], [2]], names=["", ""]), tmp_path / "c.parquet")
    with pytest.raises(DataError, match="c.parquet has several columns '': rename them"):
        list(read_records(tmp_path / "c.parquet"))


@pytest.mark.parametrize("name, content, film, lines", [
    ("a.csv", CSV, FILM, "two\nlines"), ("a.csv", CSV.replace("\n", "\r\n"), FILM, "two\r\nlines"),
    ("a.tsv", CSV.replace(",", "\t"), 'a "fine" film\t really', "two\nlines"),
    ("a.jsonl", f"\ufeff{LINES}\n\n", FILM, "two\nlines"),
    ("a.parquet", REVIEWS, FILM, "two\nlines"), ("a.xlsx", REVIEWS, FILM, "two\nlines"),
    ("a.csv.bz2", bz2.compress(CSV.encode()), FILM, "two\nlines"),
    ("a.jsonl.xz", lzma.compress(LINES.encode()), FILM, "two\nlines"),
    ("a.zip", zipped({"b/a.csv": CSV}), FILM, "two\nlines"),
    ("a.jsonl.gz", gzip.compress(LINES.encode(), mtime=0), FILM, "two\nlines"),
    ("a.json", json.dumps(REVIEWS, indent=1), FILM, "two\nlines"),
])  # fmt: skip
def test_every_kind_of_file_is_the_same_task(tmp_path, name, content, film, lines):
    task, splits = _read(tmp_path / name, content)
    assert (task.kind, task.title, task.labels) == ("classes", name, ("2", "10"))
    train = splits["train"]
    assert (labels(train), ids(train)) == ([1, 0, 0, 1], ["0", "1", "2", "3"])
    assert (texts(train), train.skipped) == ([[film], [lines], ["dull"], ["fine"]], {})


def test_labels_are_words_in_order_or_numbers_where_they_are_asked_for(tmp_path):
    task, splits = _read(tmp_path / "a.csv", "review,stars\na,good\nb,bad\nc, good\nd,bad\n")
    assert (task.labels, labels(splits["train"])) == (("bad", "good"), [1, 0, 1, 0])
    # What pandas makes of whole numbers beside an empty field, and truths.
    for stars, named in (([0.0, 1.0, None] * 2, "01"), ([True, False] * 2, ("False", "True"))):
        rows = [{"review": str(n), "stars": each} for n, each in enumerate(stars)]
        assert _read(tmp_path / "b.jsonl", rows)[0].labels == tuple(named)
    task, splits = _read(tmp_path / "a.csv", "review,stars\na,3\nb,1.5\nc,-2e0\n", is_number=True)
    assert (task.kind, task.numbers) == ("number", (-2.0, 3.0))
    assert labels(splits["train"]) == [3.0, 1.5, -2.0]
    for written in ("1_0", "inf"):
        with pytest.raises(DataError, match=rf"a\.csv:3: the label '{written}'"):
            _read(tmp_path / "a.csv", f"review,stars\na,3\nb,{written}\n", is_number=True)


def test_pairs_have_two_texts_groups_are_sources_and_choices_are_named(tmp_path):
    path = write(tmp_path / "a.csv", "a,b,stars,author\nA,B,x,ann\nC,D,y,\nE,F,x,ann\nG,H,y,bob\n")
    table = OwnTable(path, "a", text_pair="b", label="stars", group="author", id="b")
    task, splits = table.read()
    train = splits["train"]
    assert (task.fields, train.examples[0].fields) == (("a", "b"), {"a": "A", "b": "B"})
    assert [example.source for example in train.examples] == ["ann", "", "ann", "bob"]
    assert ids(train) == ["B", "D", "F", "H"]
    rows = [f"red,green,blue,{written}" for written in ("red", "ending2", "C", "1", "")]
    path = write(tmp_path / "a.csv", _ENDINGS + "\nIt was,".join(rows))
    task, splits = OwnTable(path, **_STORY).read()
    assert (task.kind, task.fields, task.labels) == ("choice", ("story",), ())
    found = splits["train"]
    assert {example.choices for example in found.examples} == {("red", "green", "blue")}
    assert (labels(found), found.skipped.total()) == ([0, 1, 2, 1], 1)


def test_rows_without_a_text_a_label_or_a_field_are_counted(tmp_path):
    text = "review,stars\na,x\n ,x\nb,\nc,y,z\nd\ne,y\nf,x\ng,y\n"
    found = _read(tmp_path / "a.csv", text)[1]["train"]
    missing = {"no value in the column 'review'": 1, "no value in the column 'stars'": 1}
    assert found.skipped == {**missing, "more than 2 fields": 1, "fewer than 2 fields": 1}
    assert found.firsts["fewer than 2 fields"].endswith("a.csv:6")
    assert ids(found) == ["0", "5", "6", "7"]
    rows = [{"stars": "x"}, {"review": "a"}, *({"review": text, "stars": text} for text in "bc")]
    found = _read(tmp_path / "a.jsonl", rows)[1]["train"]
    assert (ids(found), found.skipped) == (["2", "3"], missing)
    found = _read(tmp_path / "a.csv", "review,stars\na,x\nb,y\nc,x\n")[1]["train"]
    assert (len(found.examples), found.kept) == (3, {LONE: 1})
    assert found.firsts[LONE].endswith("a.csv:3")


_REVIEW = {"text": "review", "label": "stars"}
_STORY = {"text": "story", "label": "right", "choices": ("ending1", "ending2", "ending3")}
_ASKED = {"text": "passage", "text_pair": "question", "answer": "answer"}
_ENDINGS = "story,ending1,ending2,ending3,right\nIt was,"


def _asked(answer):
    return [{"passage": PASSAGE, "question": "Where?", "answer": answer, "at": "9th"}]


@pytest.mark.parametrize("columns, name, content, message", [
    (_REVIEW, "a.csv", "review,stars\n,x\n ,y\n", "a.csv has 2 rows, and all are left out"),
    (_REVIEW, "a.csv", "review,stars\na,\nb,\n", "'stars' is empty in all rows"),
    (_REVIEW, "a.csv", "review,stars\na,x\nb,y\nc,z\n", "a different label in each of 3 rows"),
    (_REVIEW, "a.csv", "review,stars\na,3\nb,nan\nc,2\n", "'nan' among them"),
    (_REVIEW, "a.xlsx", CSV, "a.xlsx"), ({"text": "review", "target": "stars"}, "a.jsonl",
     [{"review": "a", "stars": [3]}], "a.jsonl:1: stars is [3], neither a text nor a list"),
    ({"text": "review", "target": "stars"}, "a.csv", "review,stars\na,x\nb,x\n", "in all rows"),
    (_REVIEW, "a.jsonl", [{"review": 3, "stars": 1}], "a.jsonl:1: review is int"),
    (_REVIEW, "a.jsonl", [{"review": "a", "stars": ["x"]}], "a.jsonl:1: the label ['x']"),
    # A choice beyond the last; the number 2 is the third, the text 2 the second.
    (_STORY, "a.csv", f"{_ENDINGS}x,y,z,3\n", "a.csv:2: the label '3'"),
    (_STORY, "a.csv", f"{_ENDINGS}1,2,3,2\n", "a.csv:2: the label '2'"),
    (_ASKED, "a.jsonl", _asked(3), "a.jsonl:1: "),
    (_ASKED, "a.jsonl", _asked({"text": ["at"], "answer_start": []}), "a.jsonl:1: "),
    ({**_ASKED, "answer_start": "at"}, "a.jsonl", _asked("at"),
     "start '9th' is not a whole number"),
    ({**_STORY, "is_number": True}, "a.csv", CSV, "exclude each other"),
    ({**_REVIEW, "answer_start": "c"}, "a.csv", CSV, "answer_start"),
    ({**_REVIEW, "answer": "c"}, "a.csv", CSV, "different kinds of task"),
])  # fmt: skip
def test_a_table_that_teaches_nothing_is_refused(tmp_path, columns, name, content, message):
    with pytest.raises((ConfigError, DataError)) as refused:
        OwnTable(write(tmp_path / name, content), **columns).read()
    assert message in str(refused.value)


def test_a_folder_has_a_file_for_each_split(tmp_path):
    table = OwnTable(tmp_path, "review", label="stars")
    with pytest.raises(DataError, match="no table with train, dev or test in its name"):
        table.read()
    write(tmp_path / "reviews_train.csv", "review,stars\na,x\nb,y\nc,x\nd,y\n")
    write(tmp_path / "reviews-validation.jsonl", [{"review": "e", "stars": "y"}])
    write(tmp_path / "test.tsv", "review\nf\n")
    task, splits = table.read()
    found = {split: labels(splits[split]) for split in task.splits}
    assert found == {"train": [0, 1, 0, 1], "dev": [1], "test": [None]}
    assert not splits["test"].examples[0].is_labelled
    write(tmp_path / "train-old.csv", "review,stars\na,x\n")
    [note] = own_table.describe_left_out(tmp_path, own_table.find_table(tmp_path))
    assert "train-old.csv" not in note and "reviews_train.csv" in note, "the shorter name is read"
    (tmp_path / "train-old.csv").unlink()
    path = write(tmp_path / "new.csv", "stars,review\ny,new\n")
    found = OwnTable(path, "review", label="stars").read_rows(task, "dev", (path,))
    asked = OwnTable(path, "review").read_rows(task, "test", (path,))
    assert (labels(found), labels(asked)) == ([1], [None])
    write(tmp_path / "reviews-validation.jsonl", [{"review": "e", "stars": "yy"}])
    with pytest.raises(
        DataError, match=r"validation\.jsonl:1: 'yy' is not a label of the training rows"
    ):
        table.read()
    write(tmp_path / "reviews_train.csv", "review,stars\na,1.0\nb,0.0\nc,1.0\n")
    write(tmp_path / "reviews-validation.jsonl", [{"review": "e", "stars": 1}])
    found = table.read_labelled(table.read()[0])
    assert labels(found) == [1] and "validation.jsonl is scored, not" in found.notes[0]


ROWS = [{"text": f"café, scène {number}", "label": "xy"[number % 2]} for number in range(3)]
LINES = [f'"{row["text"]}",{row["label"]}' for row in ROWS]
TABLE = "\n".join(["text,label", *LINES, ""])
OTHER_SHAPES = {
    # What a file holds, and whether it is read, or refused with what helps: ` for a command.
    "bar.csv": (TABLE.replace(",l", "|l").replace('",', '"|'), None),
    "said.csv": ("sep=;\n" + TABLE.replace(",l", ";l").replace('",', '";'), None),
    "excel.csv": ("\n".join(f"{line},," for line in TABLE.split("\n") if line), None),
    "indented.json": (json.dumps(ROWS, indent=1), None),
    "under.json": (json.dumps({"version": 1, "data": ROWS}, indent=1), None),
    "several.jsonl": ("\n".join(json.dumps(row, indent=1) for row in ROWS), "jq -c"),
    "columns.json": (json.dumps({name: {n: row[name] for n, row in enumerate(ROWS)}
                                 for name in ROWS[0]}), "orient='records'"),
    "pair.jsonl": ('{"translation": {"en": "a", "de": "b"}}', "no column 'text'"),
    "page.csv": ("<!DOCTYPE html>\n<html>", "web page"),
    "returns.csv": (TABLE.replace("\n", "\r"), "`"), "my latin.csv": (TABLE.encode("latin-1"), "`"),
    "wide.csv": (TABLE.encode("utf-16"), "`"), "wide-le.csv": (TABLE.encode("utf-16-le"), "`"),
    "headless.csv": ("\n".join(line.replace("é", "é of a long line in") for line in LINES),
                     "printf 'text,label"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHER_SHAPES)
def test_tables_of_other_shapes_are_read_or_refused_with_what_helps(tmp_path, name):
    content, remedy = OTHER_SHAPES[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if remedy is not None:
        with pytest.raises(DataError) as refused:
            OwnTable(path, "text", label="label").read()
        assert remedy in str(refused.value)
        if remedy != "`":
            return
        command = re.search("`(.*)`", str(refused.value))[1]
        subprocess.run(command, shell=True, cwd=tmp_path, check=True)
        [path] = set(tmp_path.iterdir()) - {path}
    found = [{name: record.values[name] for name in ROWS[0]} for record in read_records(path)]
    assert found == ROWS


def _spans(folder, written, split="train", places=(), **more):
    rows = [{"passage": PASSAGE, "question": "Where?", "answer": answer} for answer in written]
    for row, place in zip(rows, places, strict=False):
        row["at"] = place
    path = write(folder / "a.jsonl", rows)
    table = OwnTable(path, "passage", text_pair="question", answer="answer", **more)
    task, splits = table.read()
    return task, splits["train"] if split == "train" else table.read_rows(task, split, (path,))


def _starts(split):
    return [[answer.start for answer in each] for each in answers(split)]


def test_answers_are_spans_of_the_text(tmp_path):
    task, found = _spans(tmp_path, ["on the mat", " the", "", "at", "a dog"])
    spans = ("span", ("passage", "question"), False)
    assert (task.kind, task.fields, task.has_unanswerable) == spans
    golds = [(Answer("on the mat", 12),), (Answer("the", 15),), (Answer("at", 5),)]
    assert (answers(found), found.repaired) == (golds, {SEVERAL: 1})
    assert found.skipped == {"no value in the column 'answer'": 1, NOT_FOUND: 1}
    assert {example.source for example in found.examples} == {PASSAGE}
    assert _spans(tmp_path, ["cat", "a dog"], "dev")[1].kept == {NOT_FOUND: 1}
    _, found = _spans(tmp_path, ["at", "at", "cat"], places=[9, "20", 5], answer_start="at")
    assert (_starts(found), found.repaired) == ([[9], [20], [4]], {MOVED: 1})
    hub = [{"text": ["at", "cat"], "answer_start": [9, 4]}, {"text": [], "answer_start": []}]
    task, found = _spans(tmp_path, [*hub, ["cat", "mat"], []])
    assert task.has_unanswerable and task.metrics == ("exact_match_v2", "token_f1_v2")
    assert _starts(found) == [[9, 4], [], [4, 19], []]
    assert all(example.is_labelled for example in found.examples)


def test_a_target_is_a_text_or_several_and_a_row_without_one_teaches_nothing(tmp_path):
    rows = [{"en": "a", "de": ["x", "y"]}, {"en": "b", "de": "z"}, {"en": "c", "de": " "}]
    task, splits = OwnTable(write(tmp_path / "a.jsonl", rows), "en", target="de").read()
    assert (task.kind, task.metrics[0], task.labels) == ("text", "chrf", ())
    assert answers(splits["train"]) == [(Answer("x"), Answer("y")), (Answer("z"),)]
    assert splits["train"].skipped == {"no value in the column 'de'": 1}


def test_cells_of_a_workbook_are_texts_of_its_first_sheet_with_rows(tmp_path):
    from openpyxl import Workbook

    workbook = Workbook()
    sheet = workbook.create_sheet("Rows")
    for row in [[None], [" a ", "b", None], [1.0, True], [], [datetime(2020, 1, 2), None], [0.5]]:
        sheet.append(row)
    workbook.create_sheet("Other").append(["x"])
    workbook.save(tmp_path / "a.xlsx")
    found = [(each.line, [*each.values.values()]) for each in read_records(tmp_path / "a.xlsx")]
    assert found == [(3, ["1", "TRUE"]), (5, ["2020-01-02", ""]), (6, ["0.5", ""])]
    assert "reads the sheet 'Rows', not Other" in read_own(tmp_path / "a.xlsx")[1]


SURROUNDED = "fields are quoted, as in CSV"


@pytest.mark.parametrize("lines, rows, note", [
    # As pandas writes it, doubled quotes, tabs and line breaks within fields.
    ('"a ""b"""\t1\nc\t2\n', [['a "b"', "1"], ["c", "2"]], SURROUNDED),
    ('"a\tb"\t1\n', [["a\tb", "1"]], SURROUNDED), ('"a\nb"\t1\n', [["a\nb", "1"]], SURROUNDED),
    ('"a" b\t1\n', [['"a" b', "1"]], "quotes are plain text"),
    # Two quotes that begin fields would join two lines to one.
    ('"a\t1\nb"\t2\n', [['"a', "1"], ['b"', "2"]], "quotes are plain text"),
])  # fmt: skip
def test_quotes_surround_fields_of_tsv_where_every_row_is_complete_so(tmp_path, lines, rows, note):
    records, found, _ = read_own(write(tmp_path / "a.tsv", "x\ty\n" + lines))
    assert [list(record.values.values()) for record in records] == rows
    assert found.partition(": ")[2] == note
    (record,), *_ = read_own(write(tmp_path / "a.tsv", '"x"\t"y"\na\t1\n'))
    assert record.values == {"x": "a", "y": "1"}


def test_the_columns_of_a_table_are_those_of_its_first_whole_row(tmp_path):
    (tmp_path / "own.csv").write_text("review,stars\nbroken\ngood film,1\nbad film,0\n")
    assert own_table.columns_of(tmp_path / "own.csv") == ("review", "stars")
