"""WiC: whether a word has the same meaning in two sentences.

Source: Pilehvar and Camacho-Collados 2019, as SuperGLUE publishes it.
"""

import re
from dataclasses import replace

from sublayer.errors import DataError
from sublayer.tasks.nested import Nested, add_known
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.suites.superglue_rows import row_example
from sublayer.tasks.task import Task

_VERSION = "1.1"
_PLACES = {"sentence1": ("start1", "end1"), "sentence2": ("start2", "end2")}
"""Of each sentence, where the word stands in it, in characters."""
_OTHER_PLACE = "a place in a sentence where its word does not stand"
_IRREGULAR = {"be": {"am", "is", "are", "was", "were"}, "go": {"went"}}
"""Forms of words that begin with another letter than they."""


def read_wic(task: Task, row: Nested, result: ReadSplit) -> None:
    """Add the example of a row, with the places of its word in ``extra``, where the row has them.

    A row is kept and counted where another word stands in one of them, or a part of a word. Raises
    DataError for a row that says it is of another version than 1.1.
    """
    version = row.get("version") if row.has("version") else _VERSION
    if str(version) != _VERSION:
        raise DataError(f"{row.place} is of version {version} of {task.title}, not {_VERSION}")
    example = row_example(task, row, result)
    names = [name for of_sentence in _PLACES.values() for name in of_sentence]
    example = replace(example, extra={name: row.whole(name) for name in names if row.has(name)})
    n_examples = len(result.examples)
    add_known(result, example, row)
    if len(result.examples) > n_examples:
        for sentence, (start, end) in _PLACES.items():
            if start in example.extra and end in example.extra:
                place = slice(example.extra[start], example.extra[end])
                if not _stands(example.fields["word"], example.fields[sentence], place):
                    result.keep(_OTHER_PLACE, row.place)
                    break


def _stands(word: str, sentence: str, place: slice) -> bool:
    """Return whether a form of a word stands in a place: a whole word with its first letter."""
    there = sentence[place]
    if re.search(r"\w$", sentence[: place.start]) or re.match(r"\w", sentence[place.stop :]):
        return False
    form, lemma = there.casefold(), word.casefold()
    return form[:1] == lemma[:1] or form in _IRREGULAR.get(lemma, ())
