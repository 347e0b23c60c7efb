"""Story Cloze, DPR, SNLI, SciTail, RACE and SQuAD, as published and as the hub has them."""

import json
from itertools import product

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Answer
from sublayer.tasks.gold_spans import MOVED, NOT_FOUND, SPACED, place_answer
from sublayer.tasks.registry import TASKS, find_files, read_split
from sublayer.tasks.suites.squad import CONTRADICTORY, UNANSWERABLE
from tests.tasks.files import ids, labels, read, texts, write

_HEADER = "InputStoryid,1,2,3,4,RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2,AnswerRightEnding"
_ROWS = [
    'a1,Rick grew up.,"He, too, left.",Once.,"He said ""no"".",He is happy.,He joined a gang.,1',
    "b2,One.,Two.,Three.,Four.,Bad.,Good.,2",
]
_VAL = "cloze_test_val__spring2016 - cloze_test_ALL_val.csv"
_TEST = "cloze_test_test__spring2016 - cloze_test_ALL_test.csv"
_WINTER = "cloze_test_val__winter2018-cloze_test_ALL_val - 1 - 1.csv"


@pytest.mark.parametrize("name, header", [
    (_WINTER, _HEADER), (f"story_cloze/{_VAL}", "a,b,c,d,e,f,g,h"),
])  # fmt: skip
def test_story_cloze_is_read_by_name_or_by_place(tmp_path, name, header):
    lines = [header, _ROWS[0], "c,short", _ROWS[1], _ROWS[1]]
    write(tmp_path / name, "\ufeff" + "\r\n".join(lines))
    found = read("story_cloze", tmp_path)
    story = 'Rick grew up. He, too, left. Once. He said "no".'
    assert texts(found) == [[story], ["One. Two. Three. Four."]]
    assert found.examples[0].choices == ("He is happy.", "He joined a gang.")
    assert (labels(found), ids(found)) == ([0, 1], ["a1", "b2"])
    assert found.skipped == {"fewer than 8 fields": 1, "the same row again": 1}
    assert found.firsts["the same row again"].endswith(":5")


def test_a_test_without_answers_has_no_labels(tmp_path):
    for name in (_TEST, _VAL):
        lines = [line.rpartition(",")[0] for line in (_HEADER, *_ROWS)]
        write(tmp_path / name, "\n".join(lines))
    found = read("story_cloze", tmp_path, "test")
    assert [example.is_labelled for example in found.examples] == [False, False]
    found = read("story_cloze", tmp_path)
    assert (found.examples, found.skipped) == ([], {"no label (-1 or empty)": 2})


_TWINS = [
    *("The bee landed on the flower because it had pollen.", "it", "The bee,the flower"),
    *("the flower", ""),
    *("The bee landed on the flower because it wanted pollen.", "it", "The bee,the flower"),
    *("The bee", ""),
]


def test_the_hubs_rows_of_dpr_are_read_and_capitals_that_differ_repaired(tmp_path):
    row = {"sentence": _TWINS[0], "pronoun": "it", "candidates": ["The bee", "the flower"]}
    write(tmp_path / "definite_pronoun_resolution" / "train.jsonl", {**row, "label": 1})
    empty = write(tmp_path / "anything" / "test.jsonl", "")
    assert not find_files(TASKS["dpr"], empty.parent)
    (example,) = read("dpr", tmp_path, "train").examples
    assert (example.choices, example.label) == (("The bee", "the flower"), 1)
    write(tmp_path / "test.c.txt", "The bee saw it.\nit\nthe bee, the flower\nThe bee\n")
    found = read("dpr", tmp_path, "test")
    assert (labels(found), found.examples[0].choices) == ([0], ("the bee", "the flower"))
    assert found.repaired == {"an answer whose capitals are not the candidate's": 1}


@pytest.mark.parametrize("block, reason", [
    (["A bee.", "it", "a,b"], "a block of another number of lines than 4"),
    (["A bit bee.", "it", "a,b", "a"], "a sentence without its pronoun"),
    (["See it.", "it", "a", "a"], "not two candidates, with a comma between them"),
    (["See it.", "it", "a,b", "c"], "an answer that is neither candidate"),
])  # fmt: skip
def test_a_block_without_meaning_is_counted_with_its_place(tmp_path, block, reason):
    write(tmp_path / "train.c.txt", "\n".join([*_TWINS, *block, ""]))
    found = read("dpr", tmp_path, "train")
    assert (len(found.examples), found.skipped) == (2, {reason: 1})
    assert found.firsts[reason].endswith("train.c.txt:11")


_SNLI_HEADER = (
    "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\t"
    "sentence1\tsentence2\tcaptionID\tpairID\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5"
)
_PARSES = "( a )\t( b )\t(ROOT a)\t(ROOT b)"
_SNLI_ROWS = [
    f'neutral\t{_PARSES}\tA "man".\tB.\t1.jpg#4\t1.jpg#4r1n\tneutral\t\t\t\t',
    f"-\t{_PARSES}\tA.\tC.\t1.jpg#4\t1.jpg#4r1c\tneutral\tentailment\t\t\t",
    f"contradiction\t{_PARSES}\tA.\tD.\t1.jpg#4\t1.jpg#4r1e\tneutral",
    "neutral\t( a )",
]


def test_snli_is_read_from_its_tables(tmp_path):
    write(tmp_path / "snli_1.0/snli_1.0_test.txt", "\n".join([_SNLI_HEADER, *_SNLI_ROWS]))
    found = read("snli", tmp_path, "test")
    # The third row lacks columns that nothing is read from, the last its texts.
    assert texts(found) == [['A "man".', "B."], ["A.", "D."]]
    assert (labels(found), ids(found)) == ([1, 2], ["1.jpg#4r1n", "1.jpg#4r1e"])
    no_majority = "no label that most annotators gave (-)"
    assert found.skipped == {no_majority: 1, "fewer than 14 fields": 1}
    assert found.firsts[no_majority].endswith("snli_1.0_test.txt:3")


_PLUTO = ['Pluto "rotates.\tPluto rotates.\tentails', "Pluto rotates.\tIt is far.\tneutral"]


def _scitail_json(entails, **more):
    rows = (('Pluto "rotates.', "Pluto rotates.", entails),
            ("Pluto rotates.", "It is far.", "neutral"))  # fmt: skip
    names = ("sentence1", "sentence2", "gold_label")
    return [json.dumps({**dict(zip(names, row, strict=True)), **more}) for row in rows]


@pytest.mark.parametrize("file, lines", [
    ("SciTailV1.1/tsv_format/scitail_1.0_dev.tsv", _PLUTO),
    ("SciTailV1.1/snli_format/scitail_1.0_dev.txt",
     _scitail_json("entailment", annotator_labels=["neutral"])),
    ("SciTailV1.1/predictor_format/scitail_1.0_structure_dev.jsonl",
     _scitail_json("entails", sentence2_structure="Pluto<>rotates")),
])  # fmt: skip
def test_scitail_is_the_same_in_every_format(tmp_path, file, lines):
    path = write(tmp_path / file, "\n".join(lines))
    both = [['Pluto "rotates.', "Pluto rotates."], ["Pluto rotates.", "It is far."]]
    for folder in (tmp_path, path.parent):
        found = read("scitail", folder)
        assert (texts(found), labels(found), found.skipped) == (both, [0, 1], {})


OPTIONS = [["to eat", "to sleep", "to run", "to {swim}"], ["one", "two", "three", "four"]]
QUESTIONS = ["He went home   _  .", "How many?"]


def _passage(id_, answers=("D", "A")):
    asked = {"questions": QUESTIONS, "options": OPTIONS, "answers": list(answers)}
    return {"id": id_, "article": f'The passage "{id_}".\nIt ends }} {{.', **asked}


def _flat(*names):
    return [
        {"example_id": name, "article": _passage(name)["article"], "answer": answer,
         "question": question, "options": options}
        for name in names
        for question, options, answer in zip(QUESTIONS, OPTIONS, "DA", strict=True)
    ]  # fmt: skip


def _write_published(folder):
    for split, level, number in product(("dev", "test"), ("middle", "high"), (10, 2)):
        write(folder / f"RACE/{split}/{level}/{number}.txt", _passage(f"{level}{number}.txt"))


def test_passages_are_in_the_order_of_their_numbers_and_both_levels_are_one_task(tmp_path):
    _write_published(tmp_path)
    found = read("race_middle", tmp_path)
    # By number: 2 before 10.
    assert ids(found) == [f"middle{n}.txt.{k}" for n in (2, 10) for k in (0, 1)]
    first, second, third, _ = found.examples
    assert labels(found) == [3, 0, 3, 0] and first.source == second.source != third.source
    for place in (tmp_path, tmp_path / "RACE"):
        both = read("race", place, "test").examples
        assert [example.id[0] for example in both] == list("mmmmhhhh")
        assert read("race_high", place, "test").examples == both[4:]


@pytest.mark.parametrize("between", ["", " \n\n"])
def test_joined_files_are_read_instead_of_those_that_they_join(tmp_path, between):
    _write_published(tmp_path)
    before = read("race_high", tmp_path).examples
    passages = [json.dumps(_passage(f"high{number}.txt")) for number in (2, 10)]
    joined = write(tmp_path / "RACE" / "dev" / "high" / "all.txt", between.join(passages))
    found = read("race_high", tmp_path)
    assert (found.paths, found.examples) == ((joined,), before)


_NAMES = ("race_middle", "race_high", "race")


def test_the_hubs_rows_of_race_are_the_same_examples(tmp_path):
    _write_published(tmp_path / "official")
    official = {name: read(name, tmp_path / "official").examples for name in _NAMES}
    middle, high = ([f"{level}{n}.txt" for n in (2, 10)] for level in ("middle", "high"))
    files = [tmp_path / f"race/{level}/validation-00000-of-00001.parquet"
             for level in ("middle", "high", "all")]  # fmt: skip
    for file, names in zip(files, (middle, high, middle + high), strict=True):
        write(file, _flat(*names))
    found = {name: read(name, tmp_path) for name in _NAMES}
    assert {name: each.examples for name, each in found.items()} == official
    # The folder that joins both is read where there is no other.
    assert {path for each in found.values() for path in each.paths} == set(files[:2])
    for file in files[:2]:
        file.unlink()
    assert {name: read(name, tmp_path).examples for name in _NAMES} == official


def test_the_level_is_that_of_the_files_name_or_of_the_ids(tmp_path):
    write(tmp_path / "race_dev_middle.jsonl", [_passage("1.txt")])
    assert ids(read("race_middle", tmp_path)) == ["1.txt.0", "1.txt.1"]
    # One level is not the whole of RACE.
    assert not any(find_files(TASKS[name], tmp_path) for name in ("race_high", "race"))
    write(tmp_path / "dev.jsonl", [_passage("middle1.txt"), _passage("high1.txt")])
    assert ids(read("race_high", tmp_path)) == ["high1.txt.0", "high1.txt.1"]
    assert len(read("race", tmp_path).examples) == 4
    write(tmp_path / "race" / "dev.jsonl", [_passage("1.txt")])
    with pytest.raises(DataError, match="'1.txt' begins with neither of middle, high"):
        read("race_middle", tmp_path / "race")
    # Rows of a passage that stand apart are numbered on.
    rows = _flat("high1.txt", "high2.txt")
    write(tmp_path / "apart/race_dev_high.jsonl", [rows[index] for index in (0, 2, 1, 3)])
    names = ["high1.txt.0", "high2.txt.0", "high1.txt.1", "high2.txt.1"]
    assert ids(read("race_high", tmp_path / "apart")) == names


def test_an_unfinished_passage_is_refused_with_its_line(tmp_path):
    passage = json.dumps(_passage("high1.txt"))
    for text, place in ((f"{passage}\n{passage[:50]}", ":2"), ("[1]", ":1"), ("\n", " is empty")):
        write(tmp_path / "RACE" / "dev" / "high" / "all.txt", text)
        with pytest.raises(DataError, match=rf"all\.txt{place}"):
            read("race_high", tmp_path)


CONTEXT = "Caf\u00e9 \U0001f600: the Normans gave their name to Normandy."
GOLD = Answer("Normans", 12)


def _question(id_, answers=(("Normans", 12),), **more):
    written = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": id_, "question": "Who gave a name?", "answers": written, **more}


def _nested(*questions):
    paragraphs = [{"context": CONTEXT, "qas": list(questions)}]
    return {"version": "1.1", "data": [{"title": "Normans", "paragraphs": paragraphs}]}


def _flat_squad(id_, texts=("Normans",), starts=(12,)):
    answers = {"text": list(texts), "answer_start": list(starts)}
    return {**_question(id_), "answers": answers, "title": "Normans", "context": CONTEXT}


def _read(path, content, name="squad", split="dev"):
    return read_split(TASKS[name], split, (write(path, content),))


def _answers(split):
    return [example.answers for example in split.examples]


@pytest.mark.parametrize("name", ["squad", "squad2"])
def test_the_hubs_rows_of_squad_are_the_same_examples(tmp_path, name):
    rows = [_flat_squad("q1"), _flat_squad("q2", ("Normandy", "name"), (39, 31))]
    nested = _nested(_question("q1"), _question("q2", [("Normandy", 39), ("name", 31)]))
    examples = _read(tmp_path / "dev-v1.1.json", nested, name).examples
    assert examples[1].answers == (Answer("Normandy", 39), Answer("name", 31))
    # The last but one is what question-answering scripts take.
    contents = {"a.parquet": rows, "a.jsonl": rows, "b.json": json.dumps(rows),
                "c.json": {"version": "1.1", "data": rows},
                "d.json": json.dumps(nested, indent=2)}  # fmt: skip
    found = {file: _read(tmp_path / file, contents[file], name).examples for file in contents}
    assert found == dict.fromkeys(contents, examples)


def test_unanswerable_questions_are_labelled_and_have_no_answer_not_even_a_plausible_one(tmp_path):
    plausible = [{"text": "Normans", "answer_start": 12}]
    no = _question("no", (), is_impossible=True, plausible_answers=plausible)
    nested = _nested(_question("yes", is_impossible=False), no)
    found = _read(tmp_path / "train-v2.0.json", nested, "squad2", "train")
    flat = _read(tmp_path / "a.jsonl", [_flat_squad("no", (), ())], "squad2", "train")
    assert (_answers(found), _answers(flat)) == ([(GOLD,), ()], [()])
    assert all(example.is_labelled for example in (*found.examples, *flat.examples))
    # SQuAD 1.1 has none, and none has an answer.
    found = _read(tmp_path / "a.json", _nested(no))
    assert (found.examples, found.skipped) == ([], {UNANSWERABLE: 1})
    assert found.firsts[UNANSWERABLE].endswith("a.json: data[0].paragraphs[0].qas[0]")
    both = _nested(_question("both", is_impossible=True))
    assert _read(tmp_path / "a.json", both, "squad2").skipped == {CONTRADICTORY: 1}
    # One without answers is read to be answered only.
    asked = _nested({"id": "q", "question": "Who?"})
    for name in ("squad", "squad2"):
        assert _read(tmp_path / "a.json", asked, name).skipped.total() == 1
        (example,) = _read(tmp_path / "a.json", asked, name, "test").examples
        assert not example.is_labelled


def test_an_answer_that_is_not_in_its_place_trains_nothing_and_is_scored_all_the_same(tmp_path):
    # The passage of the first had two spaces before it, which its copy has not.
    rows = [_flat_squad("q0", ("Normans",), (14,)), _flat_squad("q1", ("Vikings",), (12,))]
    rows.append(_flat_squad("q2", ("Vikings", "Normans"), (12, 12)))
    found = _read(tmp_path / "a.jsonl", rows, split="train")
    assert _answers(found) == [(GOLD,)] * 2
    assert (found.skipped, found.repaired) == ({NOT_FOUND: 1}, {MOVED: 1})
    found = _read(tmp_path / "a.jsonl", rows)
    assert _answers(found) == [(GOLD,), (Answer("Vikings"),), (Answer("Vikings"), GOLD)]
    assert found.kept == {NOT_FOUND: 2}


@pytest.mark.parametrize("passage, text, start, placed", [
    ("one two", "two", 4, ("two", 4, "")),
    # White space in the answer, but not in the passage; in the place, but not in the answer.
    ("one two", " two ", 4, ("two", 4, SPACED)),
    ("one\n two", "two", 3, ("two", 5, SPACED)),
    ("one two", "two", 6, ("two", 4, MOVED)),
    # Two places fit, or none, or one that is too far, or behind.
    ("a a b", "a", 4, ("a", None, "")),
    ("two" + 20 * ".", "two", 20, ("two", None, "")),
    ("one two", "two", 1, ("two", None, "")),
])  # fmt: skip
def test_an_answer_has_a_place_or_none(passage, text, start, placed):
    found = place_answer(passage, text, start)
    assert (found.answer.text, found.answer.start, found.repair) == placed


@pytest.mark.parametrize("name, version, tasks", [
    ("squad/squad_v1.1_dev_240_paragraphs.json", "", {"squad"}),
    ("some_dev.json", "v2.0", {"squad2"}), ("race/race_dev_middle.jsonl", "", set()),
    ("squad_v2/squad_v2/validation-00000-of-00001.parquet", "", {"squad2"}),
    ("squad/dev2_of_20.json", "", {"squad", "squad2"}), ("other/dev-v1.1.json", "", set()),
])  # fmt: skip
def test_the_version_is_that_of_the_name_or_of_the_file(tmp_path, name, version, tasks):
    # The version stands at the end, behind more than is read from the beginning.
    content = {"data": [{"article" if "race" in name else "paragraphs": "x" * 100_000}]}
    path = write(tmp_path / name, {**content, "version": version} if version else content)
    for place in (tmp_path, path.parent):
        found = {task for task in ("squad", "squad2") if find_files(TASKS[task], place)}
        assert found == tasks or (place != tmp_path and not tasks)


_LABELLED_2 = {"sentence": "it", "pronoun": "it", "candidates": ["a", "b"], "label": 2}
_RACE = _passage("high1.txt")
_BEYOND = [_flat_squad("q", ("Normans",), (12, 13))]


@pytest.mark.parametrize("name, file, content, message", [
    ("story_cloze", _TEST, _HEADER, "has no rows"),
    ("story_cloze", _TEST, f"{_HEADER}\n{_ROWS[1][:-1]}3", ":2: '3' is no right ending"),
    ("dpr", "test.c.txt", "\n", "c.txt has no rows of DPR"),
    ("dpr", "dpr/test.jsonl", _LABELLED_2, ":1: 2 is no label of DPR: 0 or 1"),
    ("scitail", "scitail/test.tsv", "A.\tB.\tcontradiction", "test.tsv:1: 'contradict"),
    ("race_high", "race_dev_high.jsonl", {**_RACE, "answers": ["A"]},
     "1 has questions, options and answers of 2, 2 and 1"),
    ("race_high", "race_dev_high.jsonl", {**_RACE, "answers": ["A", "E"]}, "1: 'E'"),
    ("race_high", "race_dev_high.jsonl", {**_RACE, "options": ["A", "B"]}, "1: options[0]"),
    ("squad", "dev-v1.1.json", {"data": []}, "1.json has no questions"),
    ("squad", "dev-v1.1.json", _nested({"id": "q", "answers": []}),
     "data[0].paragraphs[0].qas[0] has no question"),
    ("squad", "dev-v1.1.json", _nested(_question("q", [("Normans", "12th")])),
     "qas[0].answers[0].answer_start"),
    ("squad", "dev-v1.1.json", {"data": _BEYOND}, "1.json: data[0].answers"),
])  # fmt: skip
def test_another_format_is_refused_with_its_place(tmp_path, name, file, content, message):
    write(tmp_path / file, content)
    ((split, _),) = find_files(TASKS[name], tmp_path).items()
    with pytest.raises(DataError) as refused:
        read(name, tmp_path, split)
    assert message in str(refused.value)
