"""Choices of two: the ending of a story (Story Cloze), the referent of a pronoun (DPR).

Sources: Mostafazadeh et al. 2016; Rahman and Ng 2012.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sublayer.errors import DataError
from sublayer.files.lines import decoded, read_lines, suffix_of
from sublayer.tasks.finding import FileLayout, entries
from sublayer.tasks.published import Found, Published, ReadSplit
from sublayer.tasks.records import Record, named, read_records
from sublayer.tasks.task import Example, Task
from sublayer.tasks.wording import Wording, marking

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
"""Columns of the publisher's files and of the hub's copies. Other tables are read by column order.
"""
_N_COLUMNS = 8
_N_UNLABELLED = 7
_PUBLISHED = re.compile(r"cloze_test_(?P<split>val|test)(?P<year>.*)\.csv", re.IGNORECASE)
_SPLITS = {"val": "dev", "test": "test"}


class StoryCloze(Published):
    """Story Cloze."""

    @property
    def files(self) -> str:
        """Return the names of the publisher's files, and of copies."""
        return f"cloze_test_val__spring2016.csv and so on; or {self.layout.described()}"

    def find(self, folder: Path, others: Sequence[FileLayout] = ()) -> Found:
        """Find files by the publisher's names, of spring 2016 before later ones."""
        named = [path for path in entries(folder) if self.layout.is_named(path.name)]
        for directory in (folder, *(path for path in named if path.is_dir())):
            files: dict[str, tuple[Path, ...]] = {}
            for path in sorted(entries(directory), key=lambda path: "2016" not in path.name):
                match = _PUBLISHED.fullmatch(path.name)
                if match:
                    files.setdefault(_SPLITS[match["split"].lower()], (path,))
            if files:
                return files
        return super().find(folder, others)

    def may_be(self, split: str, path: Path) -> bool:
        """Return whether the first row has the columns of the publisher or of the hub."""
        names = self.first_names(path)
        return any(names.issuperset(columns[:-1]) for columns in _NAMES)

    def add(self, row: Record, result: ReadSplit) -> None:
        """Add a story, by the names of columns, or else by their order."""
        headers = (names for names in _NAMES if set(names[:-1]) <= row.values.keys())
        names = next(headers, tuple(row.values))
        if len(names) not in (_N_COLUMNS, _N_UNLABELLED):
            raise DataError(
                f"{row.path} has {len(names)} columns, {named(names)}: {self.task.title} has an "
                "id, four sentences, two endings and the number of the right one, in this order"
            )
        id_, *texts = names[:_N_UNLABELLED]
        sentences = [row.text(name) for name in texts]
        written = row.values.get(names[-1]) if len(names) == _N_COLUMNS else None
        number = "" if written is None else str(written).strip()
        if number not in ("", "-1", "1", "2"):
            raise DataError(
                f"{row.place}: {written!r} is not an ending's number in {self.task.title}: 1 or 2"
            )
        label = int(number) - 1 if number in ("1", "2") else None
        example = Example(
            id=str(row.value(id_)),
            fields={"story": " ".join(sentences[:-2])},
            choices=tuple(sentences[-2:]),
            label=label,
            is_labelled=label is not None,
        )
        result.add_known(example, row, *names[_N_UNLABELLED:])


_BLOCK = "a block with more or fewer than 4 lines"


class Pronouns(Published):
    """DPR."""

    def may_be(self, split: str, path: Path) -> bool:
        """Return whether a file has the publisher's name, or the hub's columns."""
        if suffix_of(path) == ".txt":
            return path.name.lower() in self.layout.own
        return {"sentence", "pronoun", "candidates"} <= self.first_names(path)

    def records(self, path: Path) -> Iterator[Record]:
        """Read the hub's rows, or blocks of lines.

        A block is a sentence, a pronoun, the candidates and the answer; an empty line ends it.
        """
        if suffix_of(path) != ".txt":
            yield from read_records(path)
            return
        lines = [decoded(path, line, data).strip() for line, data in read_lines(path)]
        block: list[str] = []
        for line, text in enumerate([*lines, ""], 1):
            if text:
                block.append(text)
                continue
            values: dict[str, Any] = dict(
                zip(("sentence", "pronoun", "candidates", "answer"), block, strict=False)
            )
            if len(block) == 4:
                parts = values["candidates"].split(",", 1)
                values["candidates"] = [part.strip() for part in parts]
            if block:
                problem = "" if len(block) == 4 else _BLOCK
                yield Record(path, line - len(block), values, problem)
            block = []

    def add(self, row: Record, result: ReadSplit) -> None:
        """Add a sentence with its pronoun, two candidates, and the right one."""
        sentence, pronoun = row.text("sentence"), row.text("pronoun")
        choices = row.texts("candidates")
        # Blocks have the text of the right candidate, the hub's rows its index.
        answer, label = row.values.get("answer"), row.values.get("label", -1)
        if answer is None and label not in range(len(choices)):
            raise DataError(f"{row.place}: {label!r} is not a label of {self.task.title}: 0 or 1")
        answer = choices[label] if answer is None else answer
        if not re.search(rf"\b{re.escape(pronoun)}\b", sentence, re.IGNORECASE):
            result.skip("a sentence without its pronoun", row.place)
            return
        if len(choices) != 2 or not all(choices):
            result.skip("not two candidates, with a comma between them", row.place)
            return
        if answer not in choices:
            folded = [choice.casefold() for choice in choices]
            if answer.casefold() not in folded:
                result.skip("an answer that is neither candidate", row.place)
                return
            result.repair("an answer capitalised unlike its candidate", row.place)
            answer = choices[folded.index(answer.casefold())]
        example = Example(
            id=str(result.n_rows - result.skipped[_BLOCK]),
            fields={"text": sentence, "pronoun": pronoun},
            choices=choices,
            label=choices.index(answer),
            # Sentences come in pairs with the same candidates, each right for one of the two.
            source=", ".join(choices).casefold(),
        )
        result.add(example, row)


def _dpr_marked(example: Example) -> str:
    """Put stars around the first occurrence of the pronoun, between a space and a space, full stop
    or comma; else around its first occurrence as a whole word, whatever its capitals.

    Source: T5's ``definite_pronoun_resolution_simple``. Departure: the second rule; there, such a
    text stays unmarked. Raises DataError where the text lacks the pronoun.
    """
    text, pronoun = example.fields["text"], example.fields["pronoun"]
    word = re.escape(pronoun)
    match = re.search(rf"(?<= ){word}(?=[ .,])", text)
    match = match or re.search(rf"\b{word}\b", text, re.IGNORECASE)
    if match is None:
        raise DataError(f"{pronoun!r} is not a word of {text!r}")
    return f"{text[: match.start()]}*{match[0]}*{text[match.end() :]}"


def _dpr_texts(example: Example) -> list[str]:
    return [_dpr_marked(example)]


CLOZE = (
    StoryCloze(
        task=Task("story_cloze", "Story Cloze", "cloze", "choice", ("story",), ("accuracy",),
                  splits=("dev", "test")),
        layout=FileLayout(("Story Cloze", "cloze", "ROCStories"), below=("", "data", "2016")),
    ),
)  # fmt: skip
DPR = (
    Pronouns(
        task=Task("dpr", "DPR", "dpr", "choice", ("text", "pronoun"), ("accuracy",),
                  splits=("train", "test")),
        layout=FileLayout(("DPR", "definite_pronoun_resolution", "wsc_dpr"),
                          below=("", "data", "plain_text"),
                          own={"train.c.txt": "train", "test.c.txt": "test"}),
        # The text with the pronoun marked, then the noun; text to text as in WSC.
        wording=partial(
            Wording, clean=_dpr_texts, ranks="choices", **marking(_dpr_marked, "pronoun"),
            parts={"text": "Ann told Eve that she won.", "pronoun": "she"}, options=("Ann", "Eve"),
        ),
    ),
)  # fmt: skip
