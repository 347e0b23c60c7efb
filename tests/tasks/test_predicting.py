"""Tasks as pairs, traversals and texts; answers read from texts; rows to be answered, handed in."""

import csv
import json
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.errors import CheckpointError, DataError
from sublayer.tasks.predicting import (
    ToldColumns,
    find_columns,
    name_prediction,
    read_asked,
)
from sublayer.tasks.registry import TASKS, TaskSpec, read_spec, read_split, wording_of
from sublayer.tasks.submissions import ARCHIVE, NOTES, Answers, write_predictions
from sublayer.tasks.suites.glue import as_pronoun
from sublayer.tasks.task import Answer, Example, Prediction
from sublayer.tasks.wording import PairRow
from tests.tasks.files import OFFICIAL, write


def _example(name, texts, label=None, **more):
    return Example("0", dict(zip(TASKS[name].fields, texts.split("|"), strict=True)), label, **more)


_TWO, _WSC = {"choices": ("X.", "Y.")}, {"extra": {"span1_index": 2, "span2_index": 4}}
_TOM = "Mitchell asked Tom if he could lend some money."
_MARKED = "Mitchell asked Tom if *he* could lend some money."
_RECORD = 'He said "no"\n@highlight\nOne line\n@highlight\nAnother.'
FORMATTED = {
    # Its texts, its label and more, as pairs, as traversals, as T5's input and target.
    "cola": (("He left.", 0), [PairRow("He left.")], [("He left.",)],
             "cola sentence: He left.", "unacceptable"),
    "mnli": (("P p.|H h.", 2), [PairRow("P p.", "H h.")], [("P p.", "H h.")],
             "mnli hypothesis: H h. premise: P p.", "contradiction"),
    "axb": (("A b.|C d.", 0), [PairRow("A b.", "C d.")], [("A b.", "C d.")],
            "rte hypothesis: C d. premise: A b.", "entailment"),
    "stsb": (("A b.|C d.", 2.5), [PairRow("A b.", "C d.")], [("A b.", "C d."), ("C d.", "A b.")],
             "stsb sentence1: A b. sentence2: C d.", "2.4"),
    "boolq": (("P.|is it", 1), [PairRow("is it", "P.")], [("P.", "is it")],
              "boolq passage: P. question: is it", "True"),
    "multirc": (("<b>Sent 1: </b>P.<br>R.|Q?|A", 0),
                [PairRow("Sent 1: P. R.", "Q? A", cut="first")], [("Sent 1: P. R. Q?", "A")],
                "multirc question: Q? answer: A paragraph: Sent 1: P. R.", "False"),
    "wic": (("A b.|C d.|b", 1), [PairRow("b A b.", "C d.")], [("A b.", "C d.", "b")],
            "wic sentence1: A b. sentence2: C d. word: b", "True"),
    "copa": (("P.|effect", 1, _TWO),
             [PairRow("P. What happened as a result?", each) for each in ("X.", "Y.")],
             [("P. What happened as a result?", each) for each in ("X.", "Y.")],
             "copa choice1: X. choice2: Y. premise: P. question: effect", "choice2"),
    "race_middle": (("A.|The _ and _ .", 1, _TWO),
                    [PairRow("A.", "The X. and X. .", cut="first", second_tokens=128),
                     PairRow("A.", "The Y. and Y. .", cut="first", second_tokens=128)],
                    [("A. The _ and _ .", "X."), ("A. The _ and _ .", "Y.")],
                    "race question: The _ and _ . choice1: X. choice2: Y. article: A.", "choice2"),
    "dpr": (("Bob asked Tom if he can lend some money.|he", 1, _TWO),
            [PairRow("Bob asked Tom if *he* can lend some money.", each) for each in ("X.", "Y.")],
            [("Bob asked Tom if *he* can lend some money.", each) for each in ("X.", "Y.")],
            "wsc: Bob asked Tom if *he* can lend some money.", "Y."),
    "record": ((f"{_RECORD}|A @placeholder won.", 1, _TWO),
               [PairRow(_RECORD, "A X. won."), PairRow(_RECORD, "A Y. won.")],
               [(_RECORD, "A X. won."), (_RECORD, "A Y. won.")],
               'record query: A @placeholder won. entities: X., Y. passage: He said "no" One line. '
               "Another.", None),
    "wsc": ((f"{_TOM}|Tom|he", 1, _WSC), [PairRow(_MARKED, "Tom")], [(_MARKED, "Tom")],
            f"wsc: {_MARKED}", "Tom"),
    # T5's own test, its spaces at the end included.
    "squad": (("Some context.|A question?", None, {"answers": (Answer("The answer."),)}),
              [PairRow("A question?", "Some context.", cut="windows", first_tokens=64)],
              [("A question?", "Some context.")],
              "question: A question ? context: Some context . ", "The answer . "),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATTED)
def test_a_task_is_formatted_as_published(name):
    (texts, *label), pairs, traversals, read, target = FORMATTED[name]
    more = label[1] if len(label) > 1 else {}
    task, example = TASKS[name], _example(name, texts, *label[:1], **more)
    wording = wording_of(task)
    rows = (wording.pair_rows(example), wording.traversal_rows(example))
    assert rows == (tuple(pairs), tuple(traversals))
    assert (wording.text_input(example), wording.text_target(example)) == (read, target)
    assert wording.training_texts(example) == (() if target is None else ((read, target),))
    unlabelled = _example(name, texts, is_labelled=False, **more)
    assert wording.text_input(unlabelled) == read
    assert wording.training_texts(unlabelled) == ()
    if task.kind == "classes" and name != "wsc":
        assert wording.text_targets(example) == task.labels


def test_questions_numbers_and_several_answers_are_written_in_words():
    example = _example("copa", "It broke.|cause", choices=("It fell.",))
    (row,) = wording_of(TASKS["copa"]).pair_rows(example)
    assert row == PairRow("It broke. What was the cause of this?", "It fell.")
    (row,) = wording_of(TASKS["race"]).pair_rows(_example("race", "A|Why?", choices=("x",)))
    assert row.second == "Why? x"
    # Similarities are fifths, with halves to even; punctuation has spaces on both sides.
    for score, written in ((3.5, "3.6"), (4.077, "4.0")):
        assert wording_of(TASKS["stsb"]).text_target(_example("stsb", "A|B", score)) == written
    example = _example("squad", '"This  is a string with "punctuation (1845-1986) ".|Q_1')
    padded = 'question: Q _ 1 context: " This is a string with " punctuation ( 1845 - 1986 ) " . '
    assert wording_of(TASKS["squad"]).text_input(example) == padded
    # Of ReCoRD each answer is a row, and of WSC right nouns alone are learned.
    wording, right = wording_of(TASKS["record"]), (Answer("penguin"), Answer("pigeon"))
    choices = ("penguin", "potato", "pigeon")
    example = _example("record", "P|A @placeholder.", choices=choices, answers=right)
    read = "record query: A @placeholder. entities: penguin, potato, pigeon passage: P"
    assert wording.training_texts(example) == ((read, "penguin"), (read, "pigeon"))
    assert (wording.text_target(example), wording.text_targets(example)) == ("penguin", choices)
    wording, example = wording_of(TASKS["wsc"]), _example("wsc", f"{_TOM}|Tom|he", 0, **_WSC)
    assert wording.text_target(example) == "Tom"
    assert wording.training_texts(example) == wording.text_targets(example) == ()


@pytest.mark.parametrize("text, index, marked", [
    # T5 repairs these two of the published texts by hand.
    ('"Good for he," he said.', 2, '"Good for *he* ," he said.'),
    ("might want to use he , but", 3, "might want to use *he* , but"),
    ("he and he and he", 2, "he and *he* and he"),
])  # fmt: skip
def test_a_pronoun_is_marked_in_its_place_or_where_it_first_stands_alone(text, index, marked):
    def mark(name, text, index=0):
        fields = {"text": text, "span1_text": "a", "span2_text": "he", "pronoun": "he"}
        example = Example("0", fields, extra={"span2_index": index})
        return wording_of(TASKS[name]).marked(example)

    assert mark("wsc", text, index) == marked
    assert mark("dpr", "the hero said he, he won") == "the hero said *he*, he won"
    assert mark("dpr", "He won; is it he?") == "*He* won; is it he?"
    for name in ("dpr", "wsc"):
        with pytest.raises(DataError, match="'he' is not a word of 'the end'"):
            mark(name, "the end")


@pytest.mark.parametrize("premise, hypothesis, marked, referent", [
    # T5's own tests.
    ("Lily spoke to Donna breaking her silence.",
     "Lily spoke to Donna breaking Donna's silence.",
     "Lily spoke to Donna breaking *her* silence.", "Donna"),
    ("Al stole Bob's wallet and car, and then he was driving it really fast to get away.",
     "He was driving the car really fast to get away.",
     "Al stole Bob's wallet and car, and then he was driving *it* really fast to get away.",
     "the car"), ("Then it (that is all", "Then he (that is all", "Then *it* (that is all", "he"),
])  # fmt: skip
def test_wnlis_pair_becomes_a_pronoun(premise, hypothesis, marked, referent):
    assert as_pronoun(premise, hypothesis) == (marked, referent)
    wording = wording_of(TASKS["wnli"])
    example = _example("wnli", f"{premise}|{hypothesis}", 1)
    assert wording.text_input(example) == f"wsc: {marked}"
    assert (wording.text_target(example), wording.training_texts(example)) == (referent, ())


_THE_GIRL = ("Ann told Eve she won|the girl|she", {"extra": {"span2_index": 3}})
_DOGS, _CAT = ({"choices": (noun, "the big dog")} for noun in ("the small dog", "the cat"))
_BARKED, _USA = "The cat fled the dog as it barked.|it", "Made in the U.S. for $5 (about).|Where?"
_WORM = "The fish ate the worm. It was tasty.|The worm was tasty."


@pytest.mark.parametrize("name, texts, more, written, read", [
    ("sst2", "fine", {}, "positive ", {"label": 1}), ("stsb", "A|B", {}, "nan", {}),
    ("copa", "P|cause", _TWO, "choice2", {"label": 1}), ("record", "P|Q", _TWO, "Rob", {}),
    ("wsc", *_THE_GIRL, "Girl", {"label": 1}), ("wsc", *_THE_GIRL, "the", {}),
    ("wnli", _WORM, {}, "the worm", {"label": 1}), ("wnli", _WORM, {}, "the fish", {"label": 0}),
    ("dpr", _BARKED, _CAT, "Dog", {"label": 1}), ("dpr", _BARKED, _CAT, "fox", {}),
    ("dpr", _BARKED, _DOGS, "dog", {}),
    ("squad2", _USA, {}, "the U . S . ", {"text": "the U.S.", "start": 8}),
    ("squad2", _USA, {}, "The u . s", {"text": "the U.S", "start": 8}),
    ("squad2", _USA, {}, "the moon", {}), ("squad2", _USA, {}, "", {}),
    ("squad2", _USA, {}, "Unanswerable", {"text": "", "no_answer": 1.0}),
])  # fmt: skip
def test_a_written_answer_is_read_as_its_label(name, texts, more, written, read):
    found = wording_of(TASKS[name]).read_answer(_example(name, texts, **more), written)
    assert found == Prediction(**{"text": written.strip(), **read})
    if found.label is not None or found.start is not None or found.no_answer:
        for stop in range(len(written) + 1):
            assert wording_of(TASKS[name]).may_answer(_example(name, texts, **more), written[:stop])


@pytest.mark.parametrize("name, texts, more, begun", [
    ("sst2", "fine", {}, "positives"), ("sst2", "fine", {}, "x"), ("copa", "P|c", _TWO, "choice3"),
    ("stsb", "A|B", {}, "3.8 of"), ("stsb", "A|B", {}, "--"),
])  # fmt: skip
def test_what_can_be_no_answer_is_given_up(name, texts, more, begun):
    example = _example(name, texts, **more)
    assert not wording_of(TASKS[name]).may_answer(example, begun)
    assert wording_of(TASKS[name]).read_answer(example, f"{begun} and more").label is None


@given(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-99, 99)))
def test_a_number_is_given_up_at_none_of_its_beginnings(number):
    wording, example = wording_of(TASKS["stsb"]), _example("stsb", "A|B")
    for written in (str(number), f"{number:g}", f"+{abs(number):e}", f" {number:.1f} "):
        assert all(wording.may_answer(example, written[:n]) for n in range(len(written) + 1))


COLUMNS = {"text": "a", "choices": ("b", "c"), "label": "d"}
SPEC = TaskSpec((TASKS["rte"], TASKS["squad2"]), "pair", 64, columns=COLUMNS)


@pytest.mark.parametrize("changes, of_task, field", [
    ({"context": 0}, {}, "context"), ({"doc_stride": 10**30}, {}, "doc_stride"),
    ({"max_answer": 2.0}, {}, "max_answer"), ({"columns": {"text": 5}}, {}, "columns"),
    ({}, {"fields": ["premise", "other"]}, "fields"),
    ({}, {"kind": "choice", "labels": []}, "kind"), ({}, {"is_symmetric": True}, "is_symmetric"),
    ({}, {"has_unanswerable": True}, "has_unanswerable"),
    ({}, {"name": "own"}, "no task own"), ({}, {"metrics": ["accuracy", "x"]}, "unknown ones: x"),
])  # fmt: skip
def test_a_saved_description_is_read_and_a_damaged_one_refused(changes, of_task, field):
    content = json.loads(json.dumps(SPEC.to_json()))
    assert read_spec(content, "task.json") == SPEC
    columns = content.pop("columns")  # earlier versions wrote none
    assert read_spec(content, "task.json").columns == {}
    content["tasks"][0] |= of_task
    with pytest.raises(CheckpointError, match=rf"task\.json.* .*{field}"):
        read_spec({**content, "columns": columns, **changes}, "task.json")
    del content["context"]
    with pytest.raises(CheckpointError, match=r"task\.json is damaged: it lacks context"):
        read_spec(content, "task.json")


NOTHING = ToldColumns()
PRONOUN = {"text": "Ann said she won.", "span1_text": "Ann", "span2_text": "she"}
OWN = {"text": "a", "choices": ("one", "two"), "label": "c"}


def _example_of(task, row, own=None, told=NOTHING):
    columns = find_columns(TASKS[task], own or {}, told, row, "x.csv")
    return columns.example_of(TASKS[task], row, 0, "x.csv:2")


@pytest.mark.parametrize("row, own, told, choices", [
    ({f"choice{n}": str(n) for n in range(1, 27)}, {}, NOTHING, tuple(map(str, range(1, 27)))),
    ({"choices": ["x", "y", "z"]}, {}, NOTHING, ("x", "y", "z")),
    ({"one": "x", "two": "y"}, OWN, NOTHING, ("x", "y")),
    ({"one": "x", "two": "y"}, OWN, ToldColumns(choices=("two", "one")), ("y", "x")),
])  # fmt: skip
def test_choices_stand_in_columns_or_in_a_list(row, own, told, choices):
    example = _example_of("copa", {"premise": "a", "question": "cause", **row}, own, told)
    assert (example.choices, example.is_labelled) == (choices, False)


def test_a_row_without_a_text_is_no_example_and_a_pronoun_has_its_position():
    for blank in (" \n", float("nan")):
        assert _example_of("rte", {"sentence1": "a", "sentence2": blank}) is None
    for written in ("2", 2.0):
        assert _example_of("wsc", {**PRONOUN, "span2_index": written}).extra == {"span2_index": 2}
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
    path = write(tmp_path / "RTE" / "test.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n")
    assert len(list(_asked("rte", tmp_path).rows)) == 1
    path.rename(path.with_name("dev.tsv"))
    with pytest.raises(DataError, match="has dev of RTE, not one test set"):
        _asked("rte", tmp_path)


def test_nested_files_are_read_as_their_publisher_wrote_them(tmp_path):
    question = {"id": "q1", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    content = {"data": [{"title": "t", "paragraphs": [{"context": "Ann won.", "qas": [question]}]}]}
    found = _asked("squad", write(tmp_path / "dev.json", content))
    assert (found.kind, found.names) == ("jsonl", ("id", "context", "question"))
    assert _values(found, "id", "context", "question") == [["q1", "Ann won.", "Who?"]]
    options = [["Ann", "Eve"], ["Eve", "Ann"]]
    asked = {"article": "Ann won.", "questions": ["Who?", "_ won."], "options": options}
    for number in (10, 2):
        write(tmp_path / f"RACE/test/middle/{number}.txt", {"id": f"middle{number}.txt", **asked})
    values = _values(_asked("race_middle", tmp_path), "id", "choices")
    assert values == [[f"middle{n}.txt.{k}", options[k]] for n in (2, 10) for k in (0, 1)]
    with pytest.raises(DataError, match="has the test set of RACE middle in 2 files"):
        _asked("race_middle", tmp_path, ToldColumns("article"))


@pytest.mark.parametrize("task, own, told, columns, message", [
    ("rte", {}, NOTHING, "sentence1 sentense2",
     r"x\.tsv has no column 'sentence2': .*did you mean sentense2"),
    ("copa", {}, NOTHING, "premise question choice1", r"x\.tsv has no columns choice1, choice2"),
    ("copa", OWN, NOTHING, "premise question two", "no column 'one'"),
    ("mnli", {}, NOTHING, "index sentence", "no column 'premise' or 'sentence1' or 'Premise'"),
])  # fmt: skip
def test_a_file_without_a_place_for_answers_is_refused(tmp_path, task, own, told, columns, message):
    path = write(tmp_path / "x.tsv", columns.replace(" ", "\t") + "\n0\ta\n1\tb\tc\n")
    with pytest.raises(DataError, match=message):
        list(read_asked(TASKS[task], own, told, path).rows)


ROWS = [Example(each, {"sentence": each}, is_labelled=False) for each in ("0", "1", "2")]


def _answers(name, predictions, split="test", rows=None):
    if rows is None:
        rows = [Example(str(n), {}, choices=tuple("xyzw")) for n in range(len(predictions))]
    given = [each if isinstance(each, Prediction) else Prediction(each) for each in predictions]
    return Answers(TASKS[name], split, rows, given)


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
    submission = write_predictions("glue", tmp_path / "out", answers)
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
    assert (set(found["QNLI.tsv"]), found["WNLI.tsv"]) == ({"entailment"}, ("0",) * 146)
    notes = (submission.path / NOTES).read_text()
    assert notes.splitlines() == list(submission.notes)
    untrained = {name for name in NAMES if f"{name}: not trained" in notes}
    assert untrained == NAMES - {"SST-2.tsv", "STS-B.tsv", "RTE.tsv", "MNLI-mm.tsv"}
    assert "SST-2.tsv: 2 of the 1,821 published rows" in submission.notes
    assert "RTE.tsv: 1 row answered outside the labels" in notes


@pytest.mark.parametrize("answers, message", [
    ([("stsb", [float("nan")])], "is nan"), ([("cb", [0])], "is not part of this submission"),
    ([("rte", [0]), ("rte", [1])], "given twice"),
])  # fmt: skip
def test_a_refusal_leaves_nothing_behind_and_overwrites_nothing(tmp_path, answers, message):
    with pytest.raises(DataError, match=message):
        write_predictions("glue", tmp_path / "out", [_answers(*each) for each in answers])
    assert not list(tmp_path.iterdir())
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="exists"):
        write_predictions("superglue", tmp_path / "out", [])
    assert not list((tmp_path / "out").iterdir())


def test_a_submission_to_superglue_is_written_as_each_task_asks(tmp_path):
    given = {"multirc": [1, 0, 1], "record": [1, Prediction(None, text="Ann's mother")]}
    paths = {name: write(tmp_path / f"{name}.jsonl", OFFICIAL[folder])
             for name, folder in (("multirc", "MultiRC"), ("record", "ReCoRD"))}  # fmt: skip
    read = {name: read_split(TASKS[name], "test", (paths[name],)).examples for name in given}
    answers = [_answers(name, given[name], rows=read[name]) for name in given]
    answers += [_answers(name, [1, 0]) for name in ("boolq", "wic", "wsc", "cb", "copa")]
    answers.append(_answers("axg", [1, 0], "dev"))
    submission = write_predictions("superglue", tmp_path / "out", answers)
    lines = {file: (submission.path / file).read_text().splitlines() for file in submission.files}
    found = {file.removesuffix(".jsonl"): list(map(json.loads, lines[file])) for file in lines}
    questions = [{"idx": 7, "answers": [{"idx": 20, "label": 1}, {"idx": 21, "label": 0}]},
                 {"idx": 8, "answers": [{"idx": 22, "label": 1}]}]  # fmt: skip
    assert found.pop("MultiRC") == [{"idx": 3, "passage": {"questions": questions}}]
    record = [{"idx": 9, "label": "Bo Lee"}, {"idx": 10, "label": "Ann's mother"}]
    assert found.pop("ReCoRD") == record
    for rows in found.values():
        assert [row["idx"] for row in rows] == list(range(len(rows)))
    labels = {name: [row["label"] for row in rows] for name, rows in found.items()}
    assert set(labels.pop("RTE")) == {"entailment"} and len(labels.pop("AX-b")) == 1104
    assert labels == {
        "BoolQ": ["true", "false"], "WiC": ["true", "false"], "WSC": ["True", "False"],
        "CB": ["contradiction", "entailment"], "COPA": [1, 0],
        "AX-g": ["not_entailment", "entailment"],
    }  # fmt: skip
    assert any(note.startswith("RTE.jsonl: not trained") for note in submission.notes)
    with zipfile.ZipFile(submission.path / ARCHIVE) as archive:
        assert set(archive.namelist()) == set(submission.files)
    others = write_predictions("superglue", tmp_path / "empty", [])
    left_out = {"MultiRC.jsonl", "ReCoRD.jsonl"}
    assert set(others.files) == set(submission.files) - left_out and len(others.files) == 8
    assert any(note.startswith("ReCoRD.jsonl: left out") for note in others.notes)


QUESTIONS = [Example("q1", {}, answers=(Answer("the cat"), Answer("a big cat"))),
             Example("q2", {}, answers=(Answer("Zoë"),))]  # fmt: skip


def test_submissions_to_squad_are_texts_by_id_and_scores_of_no_answer(tmp_path):
    predictions = [Prediction(text="Big Cat", no_answer=-2.5), Prediction(text="", no_answer=1.0)]
    one, two = (_answers(name, predictions, "dev", QUESTIONS) for name in ("squad", "squad2"))
    texts, odds = {"q1": "Big Cat", "q2": ""}, {"q1": -2.5, "q2": 1.0}
    both = {"squad-dev-predictions": texts, "squad2-dev-predictions": texts}
    for answers, files in (
        ([one], {"predictions": texts}), ([two], {"predictions": texts, "null_odds": odds}),
        ([one, two], {**both, "squad2-dev-null_odds": odds}),
    ):  # fmt: skip
        found = write_predictions("squad", tmp_path / f"{len(list(tmp_path.iterdir()))}", answers)
        assert found.files == tuple(f"{name}.json" for name in files)
        read = [json.loads((found.path / name).read_text()) for name in found.files]
        assert read == list(files.values())


def test_answers_of_race_are_letters(tmp_path):
    answers = [_answers("race_middle", [3, 0, None])]
    submission = write_predictions("race", tmp_path / "out", answers)
    letters = json.loads((tmp_path / "out" / "answers.json").read_text())
    assert letters == {"0": "D", "1": "A", "2": "A"}
    with (tmp_path / "out" / "answers.csv").open(newline="") as file:
        assert {row["id"]: row["answer"] for row in csv.DictReader(file)} == letters
    note = "RACE middle (test): 1 question answered with none of the options; A is written"
    assert submission.notes == (note,)
    for name, split in (("squad", "dev"), ("race", "test")):
        with pytest.raises(DataError, match="has no predictions"):
            write_predictions(name, tmp_path / name, [Answers(TASKS[name], split, QUESTIONS)])
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name, label, choices", [
    ("squad", None, ()), ("stsb", 2.5, ()), ("rte", 1, ()), ("wsc", 1, ()),
    ("record", None, ("entity1", "entity2")), ("dpr", 1, ("Ann", "Eve")),
])  # fmt: skip
def test_an_outline_names_the_parts_of_an_example(name, label, choices):
    example = wording_of(TASKS[name]).outline()
    assert (example.label, example.choices) == (label, choices)
    assert set(TASKS[name].fields) <= {*example.fields, "choice1", "choice2"}
    words = example.fields.get("text", "").split()
    assert [words[at] for at in example.extra.values()] == ["Eve", "she"] * (name == "wsc")
    for answer in example.answers if name == "squad" else ():
        assert example.fields["context"][answer.start :].startswith(answer.text)
