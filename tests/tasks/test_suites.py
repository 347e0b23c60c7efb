"""GLUE, SuperGLUE, Story Cloze, DPR, SNLI, SciTail, RACE and SQuAD, as published and on the hub."""

import copy
import gzip
import json
from itertools import product

import pytest

from sublayer.errors import DataError
from sublayer.tasks.published import MOVED, NOT_FOUND, SPACED, place_answer
from sublayer.tasks.registry import TASKS, find_files, read_split
from sublayer.tasks.suites.passages import CONTRADICTORY, UNANSWERABLE
from sublayer.tasks.task import Answer
from tests.tasks.files import OFFICIAL, answers, ids, labels, read, texts, write


@pytest.mark.parametrize("place", ["RTE", "my texts"])
def test_a_folder_of_another_task_is_not_taken_for_the_task(tmp_path, place):
    lines = "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n"
    path = write(tmp_path / place / "dev.tsv", lines)
    found = {task for task in TASKS if find_files(TASKS[task], path.parent)}
    # In a folder of no task's name, files are judged by their columns.
    assert "rte" in found and not found & {"sst2", "cola", "qqp", "qnli", "mrpc", "sg_rte"}
    assert place != "RTE" or "wnli" not in found
    write(tmp_path / place / "train.jsonl", OFFICIAL["RTE"])
    assert place != "RTE" or not find_files(TASKS["rte"], tmp_path)


def test_parts_of_a_split_are_read_in_order_and_a_missing_one_is_named(tmp_path):
    paths = [write(tmp_path / f"sst2/train-{n:05d}-of-00003.parquet",
                   [{"sentence": str(n), "label": 1}]) for n in range(3)]  # fmt: skip
    found = read("sst2", tmp_path, "train")
    assert (texts(found), ids(found)) == ([["0"], ["1"], ["2"]], ["0", "1", "2"])
    paths[1].unlink()
    with pytest.raises(DataError, match=r"has 2 of the 3 shards .*: number 1 is missing"):
        read("sst2", tmp_path, "train")


@pytest.mark.parametrize("name, asked", [("stsb", "test"), ("mnli", "test_mismatched")])
def test_rows_without_a_label_or_a_text_are_counted_in_training(tmp_path, name, asked):
    # A score in single precision is the published one.
    rows = [dict.fromkeys(TASKS[name].fields, "A") | {"label": label} for label in (1, -1)]
    rows.append({**rows[0], "label": 3.799999952316284} if name == "stsb" else rows[0])
    for split in ("train", asked):
        write(tmp_path / name / f"{split}.jsonl", [*rows, dict.fromkeys(rows[0])])
    found, reason = read(name, tmp_path, "train"), "no label (-1 or empty)"
    assert labels(found) == ([1, 3.8] if name == "stsb" else [1, 1])
    assert found.skipped == {reason: 1, "no text (null)": 1}
    assert found.firsts[reason].endswith("train.jsonl:2")
    found = read(name, tmp_path, asked)
    assert [example.is_labelled for example in found.examples] == [True, False, True]
    assert (found.examples[1].label, found.skipped) == (None, {"no text (null)": 1})


@pytest.mark.parametrize("file", ["glue/AX.tsv", "glue/MNLI/diagnostic.tsv"])
def test_the_diagnostic_set_of_glue_has_no_label(tmp_path, file):
    write(tmp_path / file, "index\tsentence1\tsentence2\n0\tA.\tB.\n")
    found = read("ax", tmp_path, "test")
    assert (texts(found), labels(found), ids(found)) == ([["A.", "B."]], [None], ["0"])
    assert not found.examples[0].is_labelled


def test_the_original_of_mrpc_is_divided_by_its_ids(tmp_path):
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    lines = ['1\t1\t2\t"A" b\tB a\r\n', "0\t3\t4\tC\tD\r\n", "1\t5\t6\tE\tF\r\n"]
    write(tmp_path / "MRPC/msr_paraphrase_train.txt", "".join([header, *lines]))
    write(tmp_path / "MRPC/msr_paraphrase_test.txt", header + lines[1])
    assert list(find_files(TASKS["mrpc"], tmp_path)) == ["train", "test"]
    assert len(read("mrpc", tmp_path, "train").examples) == 3
    assert len(read("mrpc", tmp_path, "test").examples) == 1
    write(tmp_path / "MRPC/mrpc_dev_ids.tsv", "3\t4\n9\t9\n")
    assert texts(read("mrpc", tmp_path, "train")) == [['"A" b', "B a"], ["E", "F"]]
    dev, reason = read("mrpc", tmp_path), "a pair of ids that the training file lacks"
    assert (texts(dev), labels(dev), dev.skipped) == ([["C", "D"]], [0], {reason: 1})
    assert dev.firsts[reason].endswith("dev_ids.tsv:2")
    write(tmp_path / "MRPC/mrpc_dev_ids.tsv", "3\t4\t5\n")
    with pytest.raises(DataError, match=r"mrpc_dev_ids.tsv:1: '3 4 5' is not a pair of ids"):
        read("mrpc", tmp_path)


@pytest.mark.parametrize("head", ["sentence\tlabel\nHe left.", "source\tlabel\tmark\tsentence\nx"])
def test_cola_may_have_a_header_and_files_may_be_packed(tmp_path, head):
    text = f"{head}\t1" + ("\n" if "left" in head else "\t\tHe left.\n")
    write(tmp_path / "CoLA" / "train.tsv.gz", gzip.compress(text.encode()))
    found = read("cola", tmp_path, "train")
    assert (texts(found), labels(found)) == ([["He left."]], [1])


NAMES = ("boolq", "cb", "copa", "multirc", "record", "sg_rte", "wic", "wsc", "axb", "axg")
FOLDERS = dict(zip(NAMES, OFFICIAL, strict=True))


def _read_rows(folder, name, content, split="dev"):
    write(folder / FOLDERS[name] / f"{split}.jsonl", content)
    return read(name, folder, split)


@pytest.mark.parametrize("word, sentence, start, end, stands", [
    ("go", "It Went on.", 3, 7, True), ("go", "It was.", 3, 6, False),
    ("rise", "It arose.", 4, 8, False),
])  # fmt: skip
def test_a_place_of_wic_without_its_word_is_counted(tmp_path, word, sentence, start, end, stands):
    row = {"word": word, "sentence1": sentence, "start1": start, "end1": end, "sentence2": ""}
    found = _read_rows(tmp_path, "wic", [{**row, "idx": 0, "label": True}])
    reason = "a position without its word in the sentence"
    assert (len(found.examples), found.kept) == (1, {} if stands else {reason: 1})


_PLACE = {"paragraph": 0, "question": 0, "answer": 0}
FLAT = {
    "boolq": {"question": "Q", "passage": "P", "idx": 0, "label": -1},
    "multirc": {"paragraph": "P", "question": "Q", "answer": "A", "label": -1, "idx": _PLACE},
    "record": {"passage": "P", "query": "Q", "entities": ["A"], "answers": [],
               "idx": {"passage": 0, "query": 0}},
}  # fmt: skip


@pytest.mark.parametrize("name", FLAT)
def test_rows_without_a_label_are_read_to_be_answered_only(tmp_path, name):
    (example,) = _read_rows(tmp_path, name, [FLAT[name]], "test").examples
    assert (example.label, example.is_labelled) == (None, False)
    found = _read_rows(tmp_path, name, [FLAT[name]], "train")
    assert (found.examples, found.skipped) == ([], {"no label (-1 or empty)": 1})
    if name != "boolq":  # whose table has its column
        row = {key: value for key, value in FLAT[name].items() if key not in ("label", "answers")}
        found = _read_rows(tmp_path, name, [row], "train")
        assert found.skipped == {"no label (its column is missing)": 1}


def _wsc(folder, text, spans, split="dev"):
    target = {}
    for n, (written, place) in enumerate(spans, 1):
        target |= {f"span{n}_index": place, f"span{n}_text": written}
    row = {"text": text, "idx": 0, "label": True, "target": target}
    return _read_rows(folder, "wsc", [row], split)


@pytest.mark.parametrize("text, spans, found", [
    # Its text's first letter, a full stop, a line break: as TFDS's wsc.fixed has it.
    ("Up the hill it ran", [("The hill", 1), ("it", 3)], [("the hill", 1), ("it", 3)]),
    ("The hill was high", [("the hill", 0), ("was", 2)], [("The hill", 0), ("was", 2)]),
    ("Ask Mr. Lee if he can", [("Mr. Lee.", 1), ("he", 4)], [("Mr. Lee", 1), ("he", 4)]),
    ("It might use it , but it was late", [("It", 0), ("it", 2)], [("It", 0), ("it", 3)]),
    # What stands there as it is written is kept, its full stop too.
    ("Ask Mr. Lee or go", [("Lee", 2), ("Mr.", 1)], [("Lee", 2), ("Mr.", 1)]),
    ('"Good for him," said Bo.', [("Bo", 4), ("him", 2)], [("Bo", 4), ("him", 2)]),
])  # fmt: skip
def test_a_span_of_wsc_is_written_as_in_its_text(tmp_path, text, spans, found):
    split = _wsc(tmp_path, text, spans)
    (example,) = split.examples
    names = ("span1", "span2")
    assert [(example.fields[f"{n}_text"], example.extra[f"{n}_index"]) for n in names] == found
    assert split.repaired.total() == (found != spans)


def test_a_span_that_its_text_does_not_have_is_left_out_and_counted(tmp_path):
    text, reason = "Lev Kamenev and Grigory Zinoviev joined him .", "a noun that is not in its text"
    nouns = [("Kamenev and Zinoviev", 1), ("him", 6)]
    train, dev = (_wsc(tmp_path, text, nouns, split) for split in ("train", "dev"))
    assert (train.examples, train.skipped) == ([], {reason: 1})
    assert train.firsts[reason].endswith("train.jsonl:1")
    assert (dev.examples[0].fields["span1_text"], dev.kept) == ("Kamenev and Zinoviev", {reason: 1})
    for split in ("train", "dev"):
        found = _wsc(tmp_path, text, [("Lev", 0), ("her", 6)], split)
        assert found.skipped == {"a pronoun that is not in its text": 1}


def test_queries_of_record_that_cannot_be_learned_are_counted(tmp_path):
    content = copy.deepcopy(OFFICIAL["ReCoRD"])
    content[0]["qas"][0]["answers"] = [{"start": 6, "end": 8, "text": "Ann"}]
    content[0]["qas"][1]["answers"] = []
    reason = "an answer that is none of the entities"
    train = _read_rows(tmp_path, "record", content, "train")
    assert (train.examples, train.skipped) == ([], {reason: 1, "no label (-1 or empty)": 1})
    dev = _read_rows(tmp_path, "record", content)
    assert (labels(dev), dev.examples[0].answers) == ([None], (Answer("Ann"),))
    assert dev.kept == {reason: 1}
    content[0]["passage"]["entities"] = []
    assert _read_rows(tmp_path, "record", content).skipped == {"no entities to choose from": 2}


def test_rows_are_numbered_and_duplicates_counted(tmp_path):
    first, second = copy.deepcopy(OFFICIAL["CB"])
    found = _read_rows(tmp_path, "cb", [first, {**second, "idx": 0}, first])
    assert ids(found) == ["0", f"0 at {tmp_path}/CB/dev.jsonl:2"]
    assert found.skipped == {"the same row again": 1}
    del first["idx"], second["idx"]
    assert ids(_read_rows(tmp_path, "cb", [first, second])) == ["0", "1"]


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
def test_story_cloze_is_read_by_name_or_by_place_and_may_lack_answers(tmp_path, name, header):
    lines = [header, _ROWS[0], "c,short", _ROWS[1], _ROWS[1]]
    path = write(tmp_path / name, "\ufeff" + "\r\n".join(lines))
    found, story = read("story_cloze", tmp_path), 'Rick grew up. He, too, left. Once. He said "no".'
    assert texts(found) == [[story], ["One. Two. Three. Four."]]
    assert found.examples[0].choices == ("He is happy.", "He joined a gang.")
    assert (labels(found), ids(found)) == ([0, 1], ["a1", "b2"])
    assert found.skipped == {"fewer than 8 fields": 1, "the same row again": 1}
    assert found.firsts["the same row again"].endswith(":5")
    for place in (path, path.with_name(_TEST)):
        write(place, "\n".join(line.rpartition(",")[0] for line in (_HEADER, *_ROWS)))
    found = read("story_cloze", tmp_path, "test")
    assert [example.is_labelled for example in found.examples] == [False, False]
    found = read("story_cloze", tmp_path)
    assert (found.examples, found.skipped) == ([], {"no label (its column is missing)": 2})


_TWINS = ["The bee saw the flower as it had pollen.", "it", "The bee,the flower", "the flower", ""]
_TWINS += ["The bee saw the flower as it ate.", "it", "The bee,the flower", "The bee", ""]


def test_the_hubs_rows_of_dpr_are_read_and_capitals_that_differ_repaired(tmp_path):
    row = {"sentence": _TWINS[0], "pronoun": "it", "candidates": ["The bee", "the flower"]}
    write(tmp_path / "definite_pronoun_resolution" / "train.jsonl", {**row, "label": 1})
    assert not find_files(TASKS["dpr"], write(tmp_path / "anything" / "test.jsonl", "").parent)
    (example,) = read("dpr", tmp_path, "train").examples
    assert (example.choices, example.label) == (("The bee", "the flower"), 1)
    path = tmp_path / "published" / "test.c.txt"
    write(path, "The bee saw it.\nit\nthe bee, the flower\nThe bee\n")
    found = read("dpr", path.parent, "test")
    assert (labels(found), found.examples[0].choices) == ([0], ("the bee", "the flower"))
    assert found.repaired == {"an answer capitalised unlike its candidate": 1}


@pytest.mark.parametrize("block, reason", [
    (["A bee.", "it", "a,b"], "a block with more or fewer than 4 lines"),
    (["A bit bee.", "it", "a,b", "a"], "a sentence without its pronoun"),
    (["See it.", "it", "a", "a"], "not two candidates, with a comma between them"),
    (["See it.", "it", "a,b", "c"], "an answer that is neither candidate"),
])  # fmt: skip
def test_a_block_without_meaning_is_counted_with_its_place(tmp_path, block, reason):
    write(tmp_path / "train.c.txt", "\n".join([*_TWINS, *block, ""]))
    found = read("dpr", tmp_path, "train")
    assert (len(found.examples), found.skipped) == (2, {reason: 1})
    assert found.firsts[reason].endswith("train.c.txt:11")


_PLUTO = ['Pluto "rotates.\tPluto rotates.\tentails', "Pluto rotates.\tIt is far.\tneutral"]


def _scitail_json(entails, **more):
    rows = [line.replace("entails", entails).split("\t") for line in _PLUTO]
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
    assert ids(found) == [f"middle{n}.txt.{k}" for n in (2, 10) for k in (0, 1)]
    first, second, third, _ = found.examples
    assert labels(found) == [3, 0, 3, 0] and first.source == second.source != third.source
    for place in (tmp_path, tmp_path / "RACE"):
        both = read("race", place, "test").examples
        assert [example.id[0] for example in both] == list("mmmmhhhh")
        assert read("race_high", place, "test").examples == both[4:]
    folder = tmp_path / "others"
    write(folder / "race_dev_middle.jsonl", [_passage("1.txt")])
    assert ids(read("race_middle", folder)) == ["1.txt.0", "1.txt.1"]
    assert not any(find_files(TASKS[name], folder) for name in ("race_high", "race"))
    write(folder / "dev.jsonl", [_passage("middle1.txt"), _passage("high1.txt")])
    found = ids(read("race", folder))
    assert (len(found), ids(read("race_high", folder))) == (4, ["high1.txt.0", "high1.txt.1"])
    write(folder / "race" / "dev.jsonl", [_passage("1.txt")])
    with pytest.raises(DataError, match="level of '1.txt' is unknown"):
        read("race_middle", folder / "race")
    rows = _flat("high1.txt", "high2.txt")
    write(folder / "apart/race_dev_high.jsonl", [rows[index] for index in (0, 2, 1, 3)])
    names = ["high1.txt.0", "high2.txt.0", "high1.txt.1", "high2.txt.1"]
    assert ids(read("race_high", folder / "apart")) == names


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
    assert {path for each in found.values() for path in each.paths} == set(files[:2])
    for file in files[:2]:
        file.unlink()
    assert {name: read(name, tmp_path).examples for name in _NAMES} == official


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


@pytest.mark.parametrize("name", ["squad", "squad2"])
def test_the_hubs_rows_of_squad_are_the_same_examples(tmp_path, name):
    rows = [_flat_squad("q1"), _flat_squad("q2", ("Normandy", "name"), (39, 31))]
    nested = _nested(_question("q1"), _question("q2", [("Normandy", 39), ("name", 31)]))
    examples = _read(tmp_path / "dev-v1.1.json", nested, name).examples
    assert examples[1].answers == (Answer("Normandy", 39), Answer("name", 31))
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
    assert (answers(found), answers(flat)) == ([(GOLD,), ()], [()])
    assert all(example.is_labelled for example in (*found.examples, *flat.examples))
    found = _read(tmp_path / "a.json", _nested(no))
    assert (found.examples, found.skipped) == ([], {UNANSWERABLE: 1})
    assert found.firsts[UNANSWERABLE].endswith("a.json: data[0].paragraphs[0].qas[0]")
    both = _nested(_question("both", is_impossible=True))
    assert _read(tmp_path / "a.json", both, "squad2").skipped == {CONTRADICTORY: 1}
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
    assert answers(found) == [(GOLD,)] * 2
    assert (found.skipped, found.repaired) == ({NOT_FOUND: 1}, {MOVED: 1})
    found = _read(tmp_path / "a.jsonl", rows)
    assert answers(found) == [(GOLD,), (Answer("Vikings"),), (Answer("Vikings"), GOLD)]
    assert found.kept == {NOT_FOUND: 2}


@pytest.mark.parametrize("passage, text, start, placed", [
    ("one two", "two", 4, ("two", 4, "")),
    # White space in the answer, but not in the passage; in the place, but not in the answer.
    ("one two", " two ", 4, ("two", 4, SPACED)), ("one\n two", "two", 3, ("two", 5, SPACED)),
    ("one two", "two", 6, ("two", 4, MOVED)),
    # Two places fit, or none, or one that is too far, or behind.
    ("a a b", "a", 4, ("a", None, "")), ("two" + 20 * ".", "two", 20, ("two", None, "")),
    ("one two", "two", 1, ("two", None, "")),
])  # fmt: skip
def test_an_answer_has_a_place_or_none(passage, text, start, placed):
    found, repair = place_answer(passage, text, start)
    assert (found.text, found.start, repair) == placed


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


def _changed(name, change):
    content = copy.deepcopy(OFFICIAL[name])
    change(content)
    return content


_RACE, _SST2 = _passage("high1.txt"), {"sentence": "a", "label": 1}
_ALL, _BEYOND = "RACE/dev/high/all.txt", [_flat_squad("q", ("Normans",), (12, 13))]


@pytest.mark.parametrize("name, file, content, message", [
    ("sst2", "SST-2/dev.tsv", "sentence\tlabel\nfine\t1\nso so\t2\n", "dev.tsv:3: '2'"),
    ("multirc", "MultiRC/train.json", '{"data": [[]]}', "train.json:1"),
    ("stsb", "STS-B/dev.tsv", "sentence1\tsentence2\tscore\nA\tB\t5.2\n", ":2: '5.2'"),
    ("sst2", "SST-2/dev.tsv", b"sentence\tlabel\n\xff\t1\n", "dev.tsv, line 2: byte 0xff"),
    ("sst2", "sst2/dev.jsonl", {**_SST2, "label": True}, "is not a label of SST-2"),
    ("sst2", "sst2/dev.jsonl", [_SST2, {"text": "b", "label": 1}],
     "dev.jsonl:2 has no column 'sentence': it has text, label"),
    ("multirc", "MultiRC/dev.jsonl", _changed(
        "MultiRC", lambda rows: rows[0]["passage"]["questions"][0]["answers"].append("Bo")),
     "dev.jsonl:1: passage.questions[0].answers[2]"),
    ("record", "ReCoRD/dev.jsonl", _changed(
        "ReCoRD", lambda rows: rows[0]["passage"]["entities"][1].update(end=500)),
     "dev.jsonl:1: passage.entities[1]"),
    ("wic", "WiC/dev.jsonl", _changed("WiC", lambda rows: rows[0].update(version=1.0)),
     "dev.jsonl:1 has version 1.0"), ("story_cloze", _TEST, _HEADER, "has no rows"),
    ("dpr", "test.c.txt", "\n", "c.txt has no rows of DPR"),
    ("race_high", "race_dev_high.jsonl", {**_RACE, "answers": ["A"]},
     "1 has questions, options and answers of 2, 2 and 1"),
    ("race_high", _ALL, f"{json.dumps(_RACE)}\n{json.dumps(_RACE)[:50]}", "all.txt:2"),
    ("squad", "dev-v1.1.json", {"data": _BEYOND}, "1.json: data[0].answers"),
])  # fmt: skip
def test_another_format_is_refused_with_its_place(tmp_path, name, file, content, message):
    write(tmp_path / file, content)
    ((split, _),) = find_files(TASKS[name], tmp_path).items()
    with pytest.raises(DataError) as refused:
        read(name, tmp_path, split)
    assert message in str(refused.value)
