"""Models' descriptions of tasks, rows to be answered, and files that are handed in."""

import csv
import json
import zipfile

import pytest

from sublayer.errors import CheckpointError, DataError
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.predicting.columns import ToldColumns, example_of, find_columns
from sublayer.tasks.predicting.files import read_asked
from sublayer.tasks.predicting.named import name_prediction
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS, read_split
from sublayer.tasks.spec import TaskSpec, read_spec
from sublayer.tasks.submissions.answers import Answers, in_order
from sublayer.tasks.submissions.folder import ARCHIVE, NOTES
from sublayer.tasks.submissions.glue import write_glue
from sublayer.tasks.submissions.race import write_race
from sublayer.tasks.submissions.squad import write_squad
from sublayer.tasks.submissions.superglue import write_superglue
from sublayer.tasks.submissions.table import SUBMISSIONS
from tests.tasks.files import write

COLUMNS = {"text": "a", "choices": ("b", "c"), "label": "d"}
SPEC = TaskSpec((TASKS["rte"], TASKS["squad2"]), "pair", 64, columns=COLUMNS)


def _written():
    return json.loads(json.dumps(SPEC.to_json()))


def test_a_saved_description_is_read():
    content = _written()
    assert read_spec(content, "task.json") == SPEC
    del content["columns"]  # as earlier versions wrote it
    assert read_spec(content, "task.json").columns == {}
    del content["context"]
    with pytest.raises(CheckpointError, match=r"task\.json does not describe a task"):
        read_spec(content, "task.json")


@pytest.mark.parametrize("changes, of_task, field", [
    ({"context": 0}, {}, "context"), ({"doc_stride": 10**30}, {}, "doc_stride"),
    ({"max_answer": 2.0}, {}, "max_answer"), ({"columns": {"text": 5}}, {}, "columns"),
    # A task unlike its name.
    ({}, {"fields": ["premise", "other"]}, "fields"),
    ({}, {"kind": "choice", "labels": []}, "kind"), ({}, {"is_symmetric": True}, "is_symmetric"),
    ({}, {"has_unanswerable": True}, "questions without an answer"),
    ({}, {"name": "own"}, "no task own"), ({}, {"metrics": ["accuracy", "x"]}, "metrics are x"),
])  # fmt: skip
def test_a_damaged_description_is_refused(changes, of_task, field):
    content = {**_written(), **changes}
    content["tasks"][0] |= of_task
    with pytest.raises(CheckpointError, match=rf"task\.json.* .*{field}"):
        read_spec(content, "task.json")


NOTHING = ToldColumns()
PRONOUN = {"text": "Ann said she won.", "span1_text": "Ann", "span2_text": "she"}
COPA = {"premise": "a", "question": "cause"}
OWN = {"text": "a", "choices": ("one", "two"), "label": "c"}


@pytest.mark.parametrize("task, own, told, columns, message", [
    ("rte", {}, NOTHING, ["sentence1", "sentense2"],
     "x.csv has no column 'sentence2': .*did you mean sentense2"),
    ("copa", {}, NOTHING, [*COPA, "choice1"], "x.csv has no columns choice1, choice2"),
    ("copa", OWN, NOTHING, [*COPA, "two"], "no column 'one'"),
    ("sst2", {}, ToldColumns("a", "b"), ["a", "b"], "no second text: leave out --text-pair"),
])  # fmt: skip
def test_columns_that_are_not_there_or_not_the_tasks_are_refused(task, own, told, columns, message):
    with pytest.raises(DataError, match=message):
        find_columns(TASKS[task], own, told, columns, "x.csv")


def _example_of(task, row, own=None, told=NOTHING):
    columns = find_columns(TASKS[task], own or {}, told, row, "x.csv")
    return example_of(TASKS[task], columns, row, 0, "x.csv:2")


@pytest.mark.parametrize("row, own, told, choices", [
    ({f"choice{n}": str(n) for n in range(1, 27)}, {}, NOTHING, tuple(map(str, range(1, 27)))),
    ({"choices": ["x", "y", "z"]}, {}, NOTHING, ("x", "y", "z")),
    ({"one": "x", "two": "y"}, OWN, NOTHING, ("x", "y")),
    ({"one": "x", "two": "y"}, OWN, ToldColumns(choices=("two", "one")), ("y", "x")),
])  # fmt: skip
def test_choices_stand_in_columns_or_in_a_list(row, own, told, choices):
    example = _example_of("copa", {**COPA, **row}, own, told)
    assert (example.choices, example.is_labelled) == (choices, False)


def test_a_row_without_a_text_is_no_example_and_a_pronoun_has_its_position():
    for blank in (" \n", float("nan")):
        assert _example_of("rte", {"sentence1": "a", "sentence2": blank}) is None
    for written in ("2", 2.0):
        found = _example_of("wsc", {**PRONOUN, "span2_index": written})
        assert found.extra == {"span2_index": 2}
    assert _example_of("sst2", {"sentence": "fine", "span1_index": "none"}).extra == {}
    for column, written in (("span2_index", "she"), ("span2_index", None), ("text", 3)):
        with pytest.raises(DataError, match=rf"x\.csv:2:? .*{column}"):
            _example_of("wsc", {**PRONOUN, "span2_index": 2, column: written})


RTE = {"entailment": 0.25, "not_entailment": 0.75}


@pytest.mark.parametrize("task, prediction, names, named", [
    ("rte", Prediction(1, (0.25, 0.75)), (),
     {"label": "not_entailment", "probability": 0.75, "probabilities": RTE}),
    ("copa", Prediction(0, (0.6, 0.4, 0.0)), (),
     {"label": "x", "choice": 0, "probability": 0.6,
      "probabilities": {"choice1": 0.6, "choice2": 0.4}}),
    ("copa", Prediction(1, (0.3, 0.7)), ("one", "two"),
     {"label": "y", "choice": 1, "probabilities": {"one": 0.3, "two": 0.7}}),
    ("squad2", Prediction(text="a", start=3, probabilities=(0.5,), no_answer=-1.5), (),
     {"label": "a", "start": 3, "probability": 0.5, "no_answer": -1.5}),
])  # fmt: skip
def test_a_prediction_has_its_words_and_the_probability_of_each(task, prediction, names, named):
    choices = ("x", "y") if task == "copa" else ()
    example = Example("0", dict.fromkeys(TASKS[task].fields, "a"), choices=choices)
    found = name_prediction(TASKS[task], example, prediction, names, is_written=False)
    assert {name: getattr(found, name) for name in named} == named


def _asked(task, path, told=NOTHING):
    return read_asked(TASKS[task], {}, told, path)


def _values(asked, *names):
    return [[row.values[name] for name in names] for row in asked.rows]


def test_tables_are_read_by_their_header_and_keep_their_columns(tmp_path):
    text = 'index\tsentence1\tsentence2\n0\t"A\tB\n0\t"A\tB\n1\tC\t\n2\tD\n'
    found = _asked("rte", write(tmp_path / "test.tsv", text))
    assert (found.kind, found.names) == ("tsv", ("index", "sentence1", "sentence2"))
    first, again, empty, short = found.rows
    # Rows that are written twice are answered twice; those without a text are not answered.
    assert first.example.fields == again.example.fields == {"sentence1": '"A', "sentence2": "B"}
    assert empty.example is short.example is None
    assert empty.values == {"index": "1", "sentence1": "C", "sentence2": ""}
    cola = write(tmp_path / "dev.tsv", "gj04\t1\t\tIt rains.\ngj04\t0\t*\tIt rain.\n")
    found = _asked("cola", cola)
    assert found.names == ("source", "label", "mark", "sentence")
    assert _values(found, "sentence") == [["It rains."], ["It rain."]]


def test_nested_files_are_read_as_their_publisher_wrote_them(tmp_path):
    question = {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    paragraphs = [{"context": "Ann won.", "qas": [question]}]
    content = {"data": [{"title": "t", "paragraphs": paragraphs}]}
    found = _asked("squad", write(tmp_path / "dev.json", content))
    assert (found.kind, found.names) == ("jsonl", ("id", "context", "question"))
    assert _values(found, "id", "context", "question") == [["q1", "Ann won.", "Who?"]]
    # Several files of a test set, and a row for each question of a passage.
    options = [["Ann", "Eve"], ["Eve", "Ann"]]
    asked = {"article": "Ann won.", "questions": ["Who?", "_ won."], "options": options}
    for number in (10, 2):
        path = tmp_path / f"RACE/test/middle/{number}.txt"
        write(path, {"id": f"middle{number}.txt", **asked})
    values = _values(_asked("race_middle", tmp_path), "id", "choices")
    expected = [[f"middle{n}.txt.{k}", options[k]] for n in (2, 10) for k in (0, 1)]
    assert values == expected
    with pytest.raises(DataError, match="has the test set of RACE middle in 2 files"):
        _asked("race_middle", tmp_path, ToldColumns("article"))


def test_a_folder_has_the_test_set(tmp_path):
    path = write(tmp_path / "RTE" / "test.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n")
    assert len(list(_asked("rte", tmp_path).rows)) == 1
    path.rename(path.with_name("dev.tsv"))
    with pytest.raises(DataError, match="has dev of RTE, and not one test set"):
        _asked("rte", tmp_path)


@pytest.mark.parametrize("task, told, message", [
    ("sst2", NOTHING, r"test\.tsv:3 has more than 2 fields"),
    ("mnli", NOTHING, "no column 'premise' or 'sentence1' or 'Premise'"),
    ("sst2", ToldColumns("said"), "no column 'said'"),
])  # fmt: skip
def test_a_file_without_a_place_for_answers_is_refused(tmp_path, task, told, message):
    path = write(tmp_path / "test.tsv", "index\tsentence\n0\ta\n1\tb\tc\n")
    with pytest.raises(DataError, match=message):
        list(_asked(task, path, told).rows)


ROWS = [Example(each, {"sentence": each}, is_labelled=False) for each in ("0", "1", "2")]


def _in_order(ids, rows=ROWS):
    answers = Answers(TASKS["sst2"], "test", rows)
    return in_order(answers, [(each, Prediction(number)) for number, each in enumerate(ids)])


@pytest.mark.parametrize("ids, rows, named", [
    ("0", ROWS, "2 of the 3 rows .*'1'"), ("0112", ROWS, "two predictions .*'1'"),
    ("012", [*ROWS, ROWS[0]], "two rows .*'0'"), ("012x", ROWS, "1 prediction .*'x'"),
])  # fmt: skip
def test_predictions_are_put_into_the_order_of_rows_and_others_refused(ids, rows, named):
    assert [each.label for each in _in_order("201")] == [1, 2, 0]
    with pytest.raises(DataError, match=named):
        _in_order(ids, rows)


def _answers(name, predictions, split="test", rows=None):
    if rows is None:
        rows = [Example(str(n), {}, choices=tuple("xyzw")) for n in range(len(predictions))]
    given = [each if isinstance(each, Prediction) else Prediction(each) for each in predictions]
    pairs = [(row.id, each) for row, each in zip(rows, given, strict=True)]
    return Answers(TASKS[name], split, rows, pairs)


SETS = "CoLA SST-2 MRPC STS-B MNLI-m MNLI-mm QNLI QQP RTE WNLI AX"
NAMES = {f"{name}.tsv" for name in SETS.split()}


def test_a_submission_to_glue_has_all_files_and_the_majority_where_nothing_is_trained(tmp_path):
    answers = [
        _answers("sst2", [0, 1]),
        _answers("stsb", [2.34567, -1.0, 7.5]),
        _answers("rte", [0, 1, None]),
        _answers("mnli", [2, 1], "test_mismatched"),
        Answers(TASKS["cola"], "test", ROWS, None, [Example("0", {"sentence": ""}, label=0)]),
        Answers(TASKS["qnli"], "test", ROWS, None, ()),
    ]
    submission = write_glue(tmp_path / "out", answers)
    assert {path.name for path in submission.path.iterdir()} == {*NAMES, ARCHIVE, NOTES}
    assert set(submission.files) == NAMES
    with zipfile.ZipFile(submission.path / ARCHIVE) as archive:
        assert set(archive.namelist()) == NAMES
        assert archive.read("RTE.tsv") == (submission.path / "RTE.tsv").read_bytes()
    found = {}
    for name in NAMES:
        header, *lines = (submission.path / name).read_text().splitlines()
        indices, found[name] = zip(*(line.split("\t") for line in lines), strict=True)
        assert (header, indices) == ("index\tprediction", tuple(map(str, range(len(lines)))))
    assert found["SST-2.tsv"] == ("0", "1")
    assert found["MNLI-mm.tsv"] == ("contradiction", "neutral")
    assert found["STS-B.tsv"] == ("2.346", "0.000", "5.000")
    assert found["RTE.tsv"] == ("entailment", "not_entailment", "entailment")
    assert set(found["CoLA.tsv"]) == {"0"}  # of its train
    assert set(found["QNLI.tsv"]) == {"entailment"}
    assert found["WNLI.tsv"] == ("0",) * 146
    notes = (submission.path / NOTES).read_text()
    assert notes.splitlines() == list(submission.notes)
    untrained = {name for name in NAMES if f"{name}: not trained" in notes}
    assert untrained == NAMES - {"SST-2.tsv", "STS-B.tsv", "RTE.tsv", "MNLI-mm.tsv"}
    assert "SST-2.tsv: 2 rows, of 1,821 as published" in submission.notes
    assert "RTE.tsv: 1 row answered with none" in notes


@pytest.mark.parametrize("answers, message", [
    ([("stsb", [float("nan")])], "is nan"), ([("cb", [0])], "belongs to no file"),
    ([("rte", [0]), ("rte", [1])], "given twice"),
])  # fmt: skip
def test_a_refusal_leaves_nothing_behind_and_overwrites_nothing(tmp_path, answers, message):
    with pytest.raises(DataError, match=message):
        write_glue(tmp_path / "out", [_answers(*each) for each in answers])
    assert not list(tmp_path.iterdir())
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="exists"):
        write_glue(tmp_path / "out", [])
    assert not list((tmp_path / "out").iterdir())


_BOTH = [{"text": "A", "idx": 20}, {"text": "B", "idx": 21}]
_ASKED = [{"question": "Q", "idx": 7, "answers": _BOTH},
          {"question": "R", "idx": 8, "answers": [{"text": "C", "idx": 22}]}]  # fmt: skip
_MULTIRC = {"idx": 3, "version": 1.1, "passage": {"text": "P", "questions": _ASKED}}
_ENTITIES = [{"start": 0, "end": 2}, {"start": 8, "end": 10}]
_QUERIES = [{"query": "@placeholder met", "idx": 5}, {"query": "met @placeholder", "idx": 6}]
_PASSAGE = {"text": "Ann met Bob.", "entities": _ENTITIES}
_RECORD = {"idx": 2, "passage": _PASSAGE, "qas": _QUERIES}


def _nested(folder, name, row, predictions):
    path = write(folder / f"{name}.jsonl", row)
    return _answers(name, predictions, rows=read_split(TASKS[name], "test", (path,)).examples)


def test_a_submission_to_superglue_is_written_as_each_task_asks(tmp_path):
    answers = [
        _nested(tmp_path, "multirc", _MULTIRC, [1, 0, 1]),
        _nested(tmp_path, "record", _RECORD, [1, Prediction(None, text="Ann's mother")]),
        *(_answers(name, [1, 0]) for name in ("boolq", "wic", "wsc", "cb", "copa")),
        _answers("axg", [1, 0], "dev"),
    ]
    submission = write_superglue(tmp_path / "out", answers)
    found = {
        name.removesuffix(".jsonl"): list(
            map(json.loads, (submission.path / name).read_text().splitlines())
        )
        for name in submission.files
    }
    questions = [{"idx": 7, "answers": [{"idx": 20, "label": 1}, {"idx": 21, "label": 0}]},
                 {"idx": 8, "answers": [{"idx": 22, "label": 1}]}]  # fmt: skip
    assert found.pop("MultiRC") == [{"idx": 3, "passage": {"questions": questions}}]
    record = [{"idx": 5, "label": "Bob"}, {"idx": 6, "label": "Ann's mother"}]
    assert found.pop("ReCoRD") == record
    for rows in found.values():
        assert [row["idx"] for row in rows] == list(range(len(rows)))
    labels = {name: [row["label"] for row in rows] for name, rows in found.items()}
    assert set(labels.pop("RTE")) == {"entailment"} and len(labels.pop("AX-b")) == 1104
    assert labels == {
        "BoolQ": ["true", "false"],
        "WiC": ["true", "false"],
        "WSC": ["True", "False"],
        "CB": ["contradiction", "entailment"],
        "COPA": [1, 0],
        "AX-g": ["not_entailment", "entailment"],
    }
    assert any(note.startswith("RTE.jsonl: not trained") for note in submission.notes)
    with zipfile.ZipFile(submission.path / ARCHIVE) as archive:
        assert set(archive.namelist()) == set(submission.files)
    # Rows that nobody can make up are left out.
    others = write_superglue(tmp_path / "empty", [])
    left_out = {"MultiRC.jsonl", "ReCoRD.jsonl"}
    assert set(others.files) == set(submission.files) - left_out and len(others.files) == 8
    assert any(note.startswith("ReCoRD.jsonl: left out") for note in others.notes)


QUESTIONS = [Example("q1", {}, answers=(Answer("the cat"), Answer("a big cat"))),
             Example("q2", {}, answers=(Answer("Zoë"),))]  # fmt: skip


def test_submissions_to_squad_are_texts_by_id_and_scores_of_no_answer(tmp_path):
    predictions = [Prediction(text="Big Cat", no_answer=-2.5), Prediction(text="", no_answer=1.0)]
    one, two = ([_answers(name, predictions, "dev", QUESTIONS)] for name in ("squad", "squad2"))
    found = []
    for name, answers in (("1", one), ("2", two)):
        folder = write_squad(tmp_path / name, answers).path
        found.append({path.name: json.loads(path.read_text()) for path in folder.iterdir()})
    texts = {"predictions.json": {"q1": "Big Cat", "q2": ""}}
    assert found == [texts, {**texts, "null_odds.json": {"q1": -2.5, "q2": 1.0}}]
    names = ["squad-dev-predictions", "squad2-dev-predictions", "squad2-dev-null_odds"]
    files = write_squad(tmp_path / "both", [*one, *two]).files
    assert files == tuple(f"{name}.json" for name in names)


def test_answers_of_race_are_letters(tmp_path):
    submission = write_race(tmp_path / "out", [_answers("race_middle", [3, 0, None])])
    letters = json.loads((tmp_path / "out" / "answers.json").read_text())
    assert letters == {"0": "D", "1": "A", "2": "A"}
    with (tmp_path / "out" / "answers.csv").open(newline="") as file:
        assert {row["id"]: row["answer"] for row in csv.DictReader(file)} == letters
    note = "RACE middle (test): 1 question answered with none of the options; A is written"
    assert submission.notes == (note,)


@pytest.mark.parametrize("name", ["squad", "race"])
def test_a_set_without_predictions_is_refused(name, tmp_path):
    with pytest.raises(DataError, match="has no predictions"):
        SUBMISSIONS[name](tmp_path / "out", [Answers(TASKS[name], "dev", QUESTIONS)])
    assert not list(tmp_path.iterdir())
