"""Files of tasks as their publishers write them, odd rows included, of any number of rows."""

import copy
import json

from tests.tasks.files import OFFICIAL

SIZES = {"train": 24, "dev": 8, "test": 6}
_GLUE = {
    # The folder, the columns, a row, as a format of number and word, and both of the test set.
    "mrpc": ("MRPC", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
             '{label}\t{n}\t1{n}\tHe "saw" {word} {n}.\tSaw {word} he.',
             "index\t#1 ID\t#2 ID\t#1 String\t#2 String",
             '{n}\t{n}\t1{n}\tHe "saw {word}.\tSaw {word} he.'),
    "qqp": ("QQP", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
            "{n}\t1{n}\t2{n}\tHow is {word} {n}?\tHow?\t{label}",
            "id\tquestion1\tquestion2", "{n}\tHow is {word} {n}?\tHow?"),
    "qnli": ("QNLI", "index\tquestion\tsentence\tlabel",
             "{n}\tWho is {n}?\tHe is {word}.\t{entailed}",
             "index\tquestion\tsentence", "{n}\tWho is {n}?\tHe is {word}."),
    "wnli": ("WNLI", "index\tsentence1\tsentence2\tlabel",
             "{n}\tAnn met Bo {n}; she was {word}.\tBo was {word}.\t{label}",
             "index\tsentence1\tsentence2", "{n}\tAnn met Bo {n}; she was {word}.\tBo was {word}."),
    "cola": ("CoLA", "", "gj04\t{label}\t{star}\tHe left {word} {n}.",
             "index\tsentence", "{n}\tHe left {word} {n}."),
}  # fmt: skip
_PARSES = "sentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse"
_MNLI = f"index\tpromptID\tpairID\tgenre\t{_PARSES}\tsentence1\tsentence2"
_MNLI_ROW = "{n}\t{n}\t{n}n\tslate\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tIt is {word} {n}.\tIs it?"
_NLI = ("entailment", "neutral", "contradiction")
_SNLI = f"gold_label\t{_PARSES}\tsentence1\tsentence2\tcaptionID\tpairID\t"
_SNLI += "label1\tlabel2\tlabel3\tlabel4\tlabel5"
_CLOZE = (
    "InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4,"
    "RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2,AnswerRightEnding"
)
_WORDS = ("lovely", "awful", "odd")
SUPERGLUE = {
    "boolq": ("BoolQ", "passage"), "cb": ("CB", "premise"), "copa": ("COPA", "premise"),
    "multirc": ("MultiRC", None), "record": ("ReCoRD", None), "sg_rte": ("RTE", "premise"),
    "wic": ("WiC", "sentence2"), "wsc": ("WSC", "text"),
}  # fmt: skip
"""Its folder, and a text to whose end a word may be added; None: that of the passage."""
_JSON_NAMES = {"train": "train", "dev": "val", "test": "test"}


def write_published(folder, name):
    if name in _GLUE:
        _glue(folder, name)
    elif name in SUPERGLUE:
        _superglue(folder, name)
    else:
        _WRITERS[name](folder)
    return folder


def _write(path, lines, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(end.join(lines).encode())


def _glue(folder, name):
    place, *columns_and_rows = _GLUE[name]
    for split, size in SIZES.items():
        head, row = columns_and_rows[2:] if split == "test" else columns_and_rows[:2]
        lines = [head] if head else []
        for n in range(size):
            words = {"word": _WORDS[n % 2], "star": "*"[n % 2 :], "label": n % 2}
            words["entailed"] = ("entailment", "not_entailment")[n % 2]
            lines.append(row.format(n=n, **words))
        # MRPC begins with a byte-order mark, and no file of these has a last line break.
        lines[0] = ("\ufeff" if name == "mrpc" else "") + lines[0]
        _write(folder / place / f"{split}.tsv", lines, "\r\n" if name == "qqp" else "\n")


def _mnli(folder):
    for part in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"):
        n_labels = {"train": 1, "test": 0}.get(part.partition("_")[0], 5)
        names = [f"label{number + 1}" for number in range(n_labels)]
        lines = ["\t".join([_MNLI, *names, *["gold_label"] * (n_labels > 0)])]
        for n in range(SIZES[part.partition("_")[0]]):
            row = _MNLI_ROW.format(n=n, word=_WORDS[n % 3])
            lines.append("\t".join([row, *[_NLI[n % 3]] * (n_labels + (n_labels > 0))]))
        _write(folder / "MNLI" / f"{part}.tsv", lines)


def _snli(folder):
    for split, size in SIZES.items():
        lines = [_SNLI]
        for n in range(size):
            gold, word = _NLI[n % 3], _WORDS[n % 3]
            texts = f"( a )\t( b )\t(ROOT a)\t(ROOT b)\tA {word} man {n}.\tA man."
            lines.append(f"{gold}\t{texts}\t{n}.jpg#4\t{n}.jpg#4r1n\t{gold}\t\t\t\t")
        texts = "( a )\t( b )\t(ROOT a)\t(ROOT b)\tA dog.\tA cat."
        lines.append(f"-\t{texts}\tx.jpg#4\tx.jpg#4r1c\tneutral\tentailment\t\t\t")
        _write(folder / "snli_1.0" / f"snli_1.0_{split}.txt", lines)


def _scitail(folder):
    for split, size in SIZES.items():
        row = 'The {} "cell" {}.\tA cell {}.\t{}'.format
        lines = [row(_WORDS[n % 2], n, n, ("entails", "neutral")[n % 2]) for n in range(size)]
        _write(folder / "SciTailV1.1" / "tsv_format" / f"scitail_1.0_{split}.tsv", lines)


def _story_cloze(folder):
    for name in ("val", "test"):
        lines = ["\ufeff" + _CLOZE]
        for n in range(SIZES["train"]):
            ends = ("It was lovely.,It was awful.,1", "It was awful.,It was lovely.,2")[n % 2]
            lines.append(f'id{n},Rick {n} grew up.,"He, too, left.",Once.,"A ""no"".",{ends}')
        path = folder / f"cloze_test_{name}__spring2016 - cloze_test_ALL_{name}.csv"
        _write(path, lines, "\r\n")


def _dpr(folder):
    for split in ("train", "test"):
        lines = []
        for n in range(SIZES[split]):
            bee, flower = f"The bee {n // 2}", f"the flower {n // 2}"
            word, right = (("had", flower), ("wanted", bee))[n % 2]
            text = f"{bee} landed on {flower} because it {word} pollen."
            lines += [text, "it", f"{bee},{flower}", right, ""]
        _write(folder / "dpr" / f"{split}.c.txt", lines)


def _squad2(folder):
    for split in ("train", "dev"):
        articles = []
        for n in range(SIZES[split]):
            context = f"Of article {n} the film is lovely."
            answers = [{"text": "film", "answer_start": context.index("film")}]
            asked = [
                {"id": f"{split}{n}", "question": "What is lovely?", "answers": answers,
                 "is_impossible": False},
                {"id": f"{split}{n}x", "question": "What is awful?", "answers": [],
                 "plausible_answers": answers, "is_impossible": True},
            ]  # fmt: skip
            paragraphs = [{"context": context, "qas": asked}]
            articles.append({"title": f"{n}", "paragraphs": paragraphs})
        _write(folder / f"{split}-v2.0.json", [json.dumps({"version": "v2.0", "data": articles})])


def _race(folder, levels):
    for split, size in SIZES.items():
        for level in levels:
            for n in range(size):
                passage = {"answers": ["ABCD"[n % 4], "ABCD"[(n + 1) % 4]]}
                passage |= {"options": [["to eat", "to sleep", "to run", "to {swim}"]] * 2}
                passage |= {"questions": ["He went home   _  .", "Why did he go?"]}
                passage |= {"article": f"{level} {n}.\nHe went home to eat, sleep, run and swim."}
                passage |= {"id": f"{level}{n}.txt"}
                _write(folder / "RACE" / split / level / f"{n}.txt", [json.dumps(passage)])


_WRITERS = {
    "mnli": _mnli, "snli": _snli, "scitail": _scitail, "story_cloze": _story_cloze, "dpr": _dpr,
    "squad2": _squad2, "race_high": lambda folder: _race(folder, ("high",)),
    "race": lambda folder: _race(folder, ("high", "middle")),
}  # fmt: skip
PUBLISHED = (*_GLUE, *SUPERGLUE, *_WRITERS)


def _superglue(folder, name):
    place, text = SUPERGLUE[name]
    rows = OFFICIAL[place]
    for split, size in SIZES.items():
        lines = []
        for n in range(size):
            row = copy.deepcopy(rows[n % len(rows)]) | {"idx": n}
            (row["passage"] if text is None else row)[text or "text"] += f" It is {n}."
            if name == "wic":
                row["label"] = bool(n % 2)
            if split == "test":
                _without_labels(row)
            lines.append(json.dumps(row))
        _write(folder / place / f"{_JSON_NAMES[split]}.jsonl", lines)


def _without_labels(row):
    if isinstance(row, dict):
        row.pop("label", None)
        if "query" in row:
            row.pop("answers", None)
        row = list(row.values())
    for each in row if isinstance(row, list) else []:
        _without_labels(each)
