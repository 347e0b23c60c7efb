"""Rows of tasks token by token, as the papers' figures have them."""

import pytest

from sublayer.data.tasks.figure import draw_figures
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.formats.outline import outline
from sublayer.tasks.registry import TASKS
from sublayer.tasks.task import Task


def _lines(name: str, example: Example | None = None, tokenizer=None) -> dict[str, list[str]]:
    task = TASKS[name]
    figures = draw_figures(task, outline(task) if example is None else example, tokenizer)
    lines = {}
    for figure in figures:
        rows = [" ".join(token.text for token in row) for row in figure.rows]
        if figure.target:
            rows.append("-> " + " ".join(token.text for token in figure.target))
        lines[figure.format] = rows or [figure.problem]
    return lines


def test_figure_1_of_radford_et_al():
    # Classification, entailment, similarity and multiple choice.
    assert _lines("sst2")["traversal"] == ["_start_ sentence _classify_"]
    assert _lines("mnli")["traversal"] == ["_start_ premise _delimiter_ hypothesis _classify_"]
    assert _lines("stsb")["traversal"] == [
        "_start_ sentence1 _delimiter_ sentence2 _classify_",
        "_start_ sentence2 _delimiter_ sentence1 _classify_",
    ]
    assert _lines("story_cloze")["traversal"] == [
        "_start_ story _delimiter_ choice1 _classify_",
        "_start_ story _delimiter_ choice2 _classify_",
    ]


def test_figure_4_of_devlin_et_al():
    # Pairs and single sentences.
    assert _lines("mrpc")["pair"] == ["[CLS] sentence1 [SEP] sentence2 [SEP]"]
    assert _lines("cola")["pair"] == ["[CLS] sentence [SEP]"]
    task = Task("squad", "SQuAD", "squad", "span", ("context", "question"), ("f1",))
    example = Example("0", {"context": "c d", "question": "a b"}, answers=(Answer("c", 0),))
    pair, traversal, text = draw_figures(task, example, None)
    assert [token.text for token in pair.rows[0]] == ["[CLS]", "a", "b", "[SEP]", "c", "d", "[SEP]"]
    assert [token.is_mark for token in traversal.rows[0]] == [
        *(True, False, False, True, False, False, True)
    ]
    assert [token.text for token in text.target] == ["c", "</s>"]


def test_figure_1_of_raffel_et_al():
    example = Example("0", {"sentence": "The course is jumping well."}, label=0)
    assert _lines("cola", example)["text"] == [
        "cola sentence: The course is jumping well. </s>",
        "-> unacceptable </s>",
    ]
    texts = {
        "sentence1": "The rhino grazed on the grass.",
        "sentence2": "A rhino is grazing in a field.",
    }
    assert _lines("stsb", Example("0", texts, label=3.75))["text"] == [
        "stsb sentence1: The rhino grazed on the grass. sentence2: A rhino is grazing in a field. "
        "</s>",
        "-> 3.8 </s>",
    ]


def test_an_answer_that_is_not_known_is_not_written():
    example = Example("0", {"sentence": "fine"}, is_labelled=False)
    assert _lines("sst2", example)["text"] == ["sst2 sentence: fine </s>"]


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_rows_in_every_format(name):
    lines = _lines(name)
    assert lines["pair"][0].startswith("[CLS] ") and lines["pair"][0].endswith(" [SEP]")
    assert lines["traversal"][0].startswith("_start_ ")
    assert lines["traversal"][0].endswith(" _classify_")
    assert lines["text"][0].endswith(" </s>") and lines["text"][1].startswith("-> ")


def test_the_pieces_of_a_tokenizer_are_shown(real_data):
    texts = {"premise": "It was unbelievably good.", "hypothesis": "Fine."}
    example = Example("0", texts, label=0)
    bert = load_tokenizer(real_data / "vocab" / "bert" / "vocab.txt")
    assert _lines("mnli", example, bert)["pair"] == [
        "[CLS] it was un ##bel ##ie ##va ##bly good . [SEP] fine . [SEP]"
    ]
    albert = load_tokenizer(real_data / "vocab" / "albert" / "spiece.model")
    assert _lines("mnli", example, albert)["traversal"] == [
        "_start_ ▁it ▁was ▁un be liev ably ▁good . _delimiter_ ▁fine . _classify_"
    ]


def test_a_format_whose_marks_a_tokenizer_lacks_says_so():
    lines = _lines("sst2", Example("0", {"sentence": "a\nb"}, label=0), ByteTokenizer())
    assert "has no [CLS], no [SEP]" in lines["pair"][0]
    assert lines["traversal"] == [r"_start_ a \n b _classify_"]
