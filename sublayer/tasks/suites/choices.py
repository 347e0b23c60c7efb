"""Story Cloze: which of two endings belongs to a story. Source: Mostafazadeh et al. 2016.

DPR: which of two nouns a pronoun stands for. Source: Rahman and Ng 2012.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from sublayer.errors import DataError
from sublayer.files.lines import decoded, read_lines
from sublayer.tasks.finding import Layout, check_shards
from sublayer.tasks.reading import ReadSplit
from sublayer.tasks.records import Record, named, read_records, suffix_of
from sublayer.tasks.rows import UNLABELLED, Found, LaidOut
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.tasks.wording import (
    ChoiceWording,
    PronounWording,
    Wording,
    content_words,
    mark_first,
    names_referent,
)

_NAMES: tuple[tuple[str, ...], ...] = (
    (
        *("InputStoryid", "InputSentence1", "InputSentence2", "InputSentence3", "InputSentence4"),
        *("RandomFifthSentenceQuiz1", "RandomFifthSentenceQuiz2", "AnswerRightEnding"),
    ),
    (
        *("story_id", "input_sentence_1", "input_sentence_2", "input_sentence_3"),
        *("input_sentence_4", "sentence_quiz1", "sentence_quiz2", "answer_right_ending"),
    ),
)
"""The publisher's names of the columns, and the hub's. Other tables are read by place."""
_N_COLUMNS = 8
_N_UNLABELLED = 7
_PUBLISHED = re.compile(r"cloze_test_(?P<split>val|test)(?P<year>.*)\.csv", re.IGNORECASE)
_SPLITS = {"val": "dev", "test": "test"}


class StoryCloze(LaidOut):
    """Story Cloze."""

    @property
    def files(self) -> str:
        """Return the names of the publisher's files, and of copies."""
        return f"cloze_test_val__spring2016.csv and so on; or {self.layout.described()}"

    def find(self, folder: Path) -> Found:
        """Find the files with the publisher's names, those of spring 2016 before later ones."""
        children = sorted(folder.iterdir())
        for place in (folder, *(each for each in children if self.layout.is_named(each.name))):
            paths = place.iterdir() if place.is_dir() else ()
            found: dict[str, tuple[Path, ...]] = {}
            for path in sorted(paths, key=lambda path: ("2016" not in path.name, path.name)):
                match = _PUBLISHED.fullmatch(path.name)
                if match:
                    found.setdefault(_SPLITS[match["split"].lower()], (path,))
            if found:
                return found
        return super().find(folder)

    def may_be(self, split: str, path: Path) -> bool:
        """Return whether the first row has the columns of the publisher or of the hub."""
        try:
            first = next(read_records(path), None)
        except DataError:
            return False
        return first is not None and any(set(each[:-1]) <= first.values.keys() for each in _NAMES)

    def read(self, split: str, paths: tuple[Path, ...]) -> ReadSplit:
        """Read stories, by the names of their columns, or by their places."""
        check_shards(paths)
        result = ReadSplit(split, paths)
        for path in paths:
            is_empty = True
            for record in read_records(path):
                is_empty = False
                if record.problem:
                    result.skip(record.problem, record.place)
                else:
                    self._add(record, result)
            if is_empty:
                raise DataError(f"{path} has no rows")
        return result

    def _add(self, record: Record, result: ReadSplit) -> None:
        names = self._columns(record)
        id_, *texts = names[:_N_UNLABELLED]
        sentences = [record.text(name) for name in texts]
        label = self._label(record, names[-1]) if len(names) == _N_COLUMNS else None
        if label is None and not result.name.startswith("test"):
            result.skip(UNLABELLED, record.place)
            return
        example = Example(
            id=str(record.value(id_)),
            fields={"story": " ".join(sentences[:-2])},
            choices=tuple(sentences[-2:]),
            label=label,
            is_labelled=label is not None,
        )
        result.add(example, record)

    def _columns(self, record: Record) -> tuple[str, ...]:
        for names in _NAMES:
            if set(names[:-1]) <= record.values.keys():
                return names if names[-1] in record.values else names[:-1]
        names = tuple(record.values)
        if len(names) not in (_N_COLUMNS, _N_UNLABELLED):
            raise DataError(
                f"{record.path} has {len(names)} columns, {named(names)}: {self.task.title} has an "
                "id, four sentences, two endings and which of them is right, in this order"
            )
        return names

    def _label(self, record: Record, name: str) -> int | None:
        written = record.value(name)
        number = str(written).strip()
        if written is None or number in ("", "-1"):
            return None
        if number not in ("1", "2"):
            raise DataError(
                f"{record.place}: {written!r} is no right ending of {self.task.title}: 1 or 2"
            )
        return int(number) - 1


@dataclass(frozen=True, slots=True)
class _Schema:
    """A sentence of DPR with its pronoun, the candidates and the answer, as they are written."""

    place: str
    sentence: str
    pronoun: str
    candidates: tuple[str, ...]
    answer: str


class Pronouns(LaidOut):
    """DPR."""

    def may_be(self, split: str, path: Path) -> bool:
        """Return whether the first row has the hub's columns; files in blocks have their names."""
        try:
            first = next(read_records(path), None)
        except DataError:
            return path.name.lower() in self.layout.own
        return first is not None and {"sentence", "pronoun", "candidates"} <= first.values.keys()

    def read(self, split: str, paths: tuple[Path, ...]) -> ReadSplit:
        """Read sentences, in blocks or as the hub's rows."""
        check_shards(paths)
        result = ReadSplit(split, paths)
        n_rows = 0
        for path in paths:
            before = n_rows
            rows = self._records(path) if suffix_of(path) != ".txt" else _blocks(path, result)
            for row in rows:
                _add_schema(result, row, n_rows)
                n_rows += 1
            if n_rows == before:
                raise DataError(f"{path} has no rows of {self.task.title}")
        return result

    def _records(self, path: Path) -> Iterator[_Schema]:
        """Read the hub's rows, whose label is the index of the right candidate."""
        for record in read_records(path):
            listed, label = record.value("candidates"), record.value("label")
            if not isinstance(listed, list) or not all(isinstance(x, str) for x in listed):
                raise DataError(f"{record.place}: candidates is no list of texts")
            if label not in range(len(listed)):
                raise DataError(
                    f"{record.place}: {label!r} is no label of {self.task.title}: 0 or 1"
                )
            sentence, pronoun = record.text("sentence"), record.text("pronoun")
            yield _Schema(record.place, sentence, pronoun, tuple(listed), listed[label])


def _blocks(path: Path, result: ReadSplit) -> Iterator[_Schema]:
    """Read blocks of a sentence, a pronoun, the candidates and the answer, with an empty line."""
    lines = [decoded(path, line, data).strip() for line, data in read_lines(path)]
    block: list[str] = []
    for line, text in enumerate([*lines, ""], 1):
        if text:
            block.append(text)
            continue
        place = f"{path}:{line - len(block)}"
        if len(block) == 4:
            sentence, pronoun, candidates, answer = block
            parts = tuple(part.strip() for part in candidates.split(",", 1))
            yield _Schema(place, sentence, pronoun, parts, answer)
        elif block:
            result.skip("a block of another number of lines than 4", place)
        block = []


def _add_schema(result: ReadSplit, row: _Schema, number: int) -> None:
    if not re.search(rf"\b{re.escape(row.pronoun)}\b", row.sentence, re.IGNORECASE):
        result.skip("a sentence without its pronoun", row.place)
        return
    if len(row.candidates) != 2 or not all(row.candidates):
        result.skip("not two candidates, with a comma between them", row.place)
        return
    candidates, answer = list(row.candidates), row.answer
    if answer not in candidates:
        candidates, answer = [each.casefold() for each in candidates], answer.casefold()
        if answer not in candidates:
            result.skip("an answer that is neither candidate", row.place)
            return
        result.repair("an answer whose capitals are not the candidate's", row.place)
    example = Example(
        id=str(number),
        fields={"text": row.sentence, "pronoun": row.pronoun},
        choices=row.candidates,
        label=candidates.index(answer),
        # Sentences come in twos, of the same candidates, one for each of them.
        source=", ".join(row.candidates).casefold(),
    )
    result.add(example, row)


class DprWording(ChoiceWording, PronounWording):
    """Wording of DPR: the text with the pronoun marked, then the noun; as text to text WSC's."""

    options = ("Ann", "Eve")
    pronoun = "pronoun"

    def marked(self, example: Example) -> str:
        """Mark the first such pronoun."""
        return mark_first(example.fields["text"], example.fields["pronoun"])

    def texts(self, example: Example) -> list[str]:
        """Return the marked text."""
        return [self.marked(example)]

    def text_input(self, example: Example) -> str:
        """Return the marked text, by the name of WSC."""
        return PronounWording.text_input(self, example)

    def text_targets(self, example: Example) -> tuple[str, ...]:
        """Return the nouns."""
        return example.choices

    def read_answer(self, example: Example, written: str) -> Prediction:
        """Return which of the two nouns is named; none where both are.

        Both may be: "the dog" of "the big dog" and "the small dog".
        """
        read = Wording.read_answer(self, example, written)
        if not content_words(read.text):
            return replace(read, label=None)
        if read.label is not None:
            return read
        is_named = [names_referent(read.text, choice) for choice in example.choices]
        return replace(read, label=is_named.index(True) if is_named.count(True) == 1 else None)


CLOZE = (
    StoryCloze(
        task=Task("story_cloze", "Story Cloze", "cloze", "choice", ("story",), ("accuracy",),
                  splits=("dev", "test")),
        layout=Layout(("Story Cloze", "cloze", "ROCStories"), below=("", "data", "2016")),
    ),
)  # fmt: skip
DPR = (
    Pronouns(
        task=Task("dpr", "DPR", "dpr", "choice", ("text", "pronoun"), ("accuracy",),
                  splits=("train", "test")),
        layout=Layout(("DPR", "definite_pronoun_resolution", "wsc_dpr"),
                      below=("", "data", "plain_text"),
                      own={"train.c.txt": "train", "test.c.txt": "test"}),
        wording=partial(
            DprWording, parts={"text": "Ann told Eve that she won.", "pronoun": "she"}
        ),
    ),
)  # fmt: skip
