"""Files of tasks, written by their endings and read by a name; SuperGLUE's rows by folder."""

import json

from sublayer.tasks.registry import TASKS, find_files, read_split


def write(path, content):
    """Write a table's rows, as lines of JSON, Parquet or Excel; a text or bytes as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet" and isinstance(content, list):
        from pyarrow import Table
        from pyarrow.parquet import write_table

        write_table(Table.from_pylist(content), path)
    elif path.suffix == ".xlsx" and isinstance(content, list):
        from openpyxl import Workbook

        workbook = Workbook()
        for row in [[*content[0]], *([*row.values()] for row in content)]:
            workbook.active.append(row)
        workbook.save(path)
    elif isinstance(content, dict | list):
        rows = content if isinstance(content, list) else [content]
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(name, folder, split="dev"):
    return read_split(TASKS[name], split, find_files(TASKS[name], folder)[split])


def labels(split):
    return [example.label for example in split.examples]


def ids(split):
    return [example.id for example in split.examples]


def texts(split):
    return [list(example.fields.values()) for example in split.examples]


def answers(split):
    return [example.answers for example in split.examples]


PASSAGE = "(CNN) Ann Lee met Bo Lee in Rome.\n@highlight\nRome was warm\n@highlight\nAnn left"
BROWN = "Mark told Pete many lies about himself, which Pete included in his book."
_COPA = {"premise": "It fell.", "choice1": "It was pushed.", "choice2": "It broke."}
OFFICIAL = {
    "BoolQ": [{"question": f"is it {where}", "passage": "Far -- It is far.", "idx": n,
               "label": n == 0} for n, where in enumerate(("far", "near"))],
    "CB": [{"premise": "A.", "hypothesis": "B", "label": "neutral", "idx": 0},
           {"premise": "C.", "hypothesis": "D", "label": "contradiction", "idx": 1}],
    "COPA": [{**_COPA, "question": "effect", "label": 1, "idx": 0, "changed": False},
             {**_COPA, "question": "cause", "label": 0, "idx": 1, "changed": False}],
    "MultiRC": [{"idx": 3, "version": 1.1, "passage": {
        "text": "<b>Sent 1: </b>Ann ran.<br>",
        "questions": [
            {"question": "Who ran?", "idx": 7, "answers": [
                {"text": "Ann", "idx": 20, "label": 1}, {"text": "Bo", "idx": 21, "label": 0}]},
            {"question": "Who walked?", "idx": 8, "answers": [
                {"text": "Ann", "idx": 22, "label": 0}]},
        ],
    }}],
    "ReCoRD": [{"source": "CNN", "idx": 4, "passage": {
        "text": PASSAGE,
        # The ends are the places of the last characters; Rome stands twice.
        "entities": [{"start": 28, "end": 31}, {"start": 6, "end": 12},
                     {"start": 18, "end": 23}, {"start": 45, "end": 48}],
    }, "qas": [
        {"query": "@placeholder was warm", "idx": 9, "answers": [
            {"start": 28, "end": 31, "text": "Rome"}, {"start": 45, "end": 48, "text": "Rome"}]},
        {"query": "@placeholder left", "idx": 10, "answers": [
            {"start": 6, "end": 12, "text": "Ann Lee"}]},
    ]}],
    "RTE": [{"premise": "A.", "hypothesis": "B.", "label": "entailment", "idx": 0},
            {"premise": "A.", "hypothesis": "C.", "label": "not_entailment", "idx": 1}],
    "WiC": [{"word": "class", "sentence1": "A class.", "sentence2": "Classes end.", "idx": 0,
             "label": False, "start1": 2, "start2": 0, "end1": 7, "end2": 7, "version": 1.1}],
    "WSC": [
        {"text": BROWN, "idx": 0, "label": True, "target": {
            "span1_index": 0, "span1_text": "Mark", "span2_index": 11, "span2_text": "his"}},
        {"text": BROWN, "idx": 1, "label": False, "target": {
            "span1_index": 2, "span1_text": "Pete", "span2_index": 6, "span2_text": "himself"}},
    ],
    "AX-b": [{"sentence1": "A.", "sentence2": "B.", "label": "not_entailment", "idx": 0,
              "knowledge": "", "lexical-semantics": "Quantifiers", "logic": "Negation"}],
    "AX-g": [{"premise": f"{who} won.", "hypothesis": "A.", "label": "entailment", "idx": n,
              "pair_id": 5} for n, who in enumerate(("He", "She"))],
}  # fmt: skip
