"""Wording of examples: text pairs, traversals, or text to text.

Sources: pairs as jiant, ALBERT and BERT write them; traversals: Radford et al. 2018, sec. 3.3 and
figure 1; text to text, of the tasks of GLUE, SuperGLUE, DPR and SQuAD: T5 (Raffel et al. 2020), by
its released preprocessing, to the letter. All others are written by its general rule; the order of
their parts is ours.
"""

import math
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from sublayer.tasks.task import Answer, Example, Kind, Prediction, Task

Cut = Literal["longest", "first", "windows"]
"""Text that gives way where a row is too long: the end of the longer one, token by token; the end
of the first; or none, since the second is read in windows."""
TraversalRow = tuple[str, ...]
"""The texts between which ``_delimiter_`` stands: after ``_start_``, before ``_classify_``."""
QUESTION_TOKENS = 64
"""Tokens of SQuAD's question that are read. Source: BERT's run_squad.py."""
UNANSWERABLE = "unanswerable"
"""Text that is written of a question that has no answer in its passage; ours."""
PLACEHOLDER = "@placeholder"
"""Text that ReCoRD's query has where an entity is asked for."""
_NUMBER = re.compile(r"[+-]?[\d._]*(e[+-]?[\d_]*)?|[+-]?[a-z]{,8}", re.IGNORECASE)
"""The beginning of a text that is read as a number, and of "inf" and "nan"."""
_PUNCTUATION = re.compile(f"([{re.escape(string.punctuation)}])")
_TOKEN = re.compile(rf"[{re.escape(string.punctuation)}]|[^\s{re.escape(string.punctuation)}]+")
_SPACES = re.compile(r"\s+", re.ASCII)
# Source, of these and of the rule: T5's postprocessing of WSC.
_DETERMINERS = {
    *("a", "an", "each", "every", "few", "her", "his", "many", "much", "my", "our", "some"),
    *("that", "the", "their", "these", "this", "those", "which", "whose", "your"),
}


@dataclass(frozen=True, slots=True)
class PairRow:
    """Texts of a row before encoding."""

    first: str
    second: str | None = None
    cut: Cut = "longest"
    first_tokens: int | None = None
    """At most so many of the first text's tokens are read: those at its beginning."""
    second_tokens: int | None = None
    """At most so many of the second text's tokens are read: those at its end."""


@dataclass(frozen=True)
class Wording:
    """Wording of a task's examples, in each form of input.

    Pairs: the first field is the first text, all others the second, joined by spaces; a choice
    stands at the end of the second text. Traversals: the fields in order; symmetric tasks in both
    orders, whose final states are added; of choices all texts as one, then the choice. Text to
    text: the task's name, and each text after its key, by the alphabet; the options are the texts
    ``choice1``, ``choice2`` and so on.

    Questions about a passage, as SQuAD's: the question, then the passage in windows. So in
    traversals, where no state of a passage before it would know the question. As text to text
    punctuation has spaces on both sides, also at the end of a text.

    Pronouns and the nouns that they stand for, WSC's, WNLI's and DPR's: the text has the pronoun
    marked, and the noun is written. Pairs of them are ours: jiant reads out both spans.
    """

    task: Task
    name: str = ""
    """Name that text to text begins with; empty: the task's. Diagnostic sets are written as the
    tasks that they diagnose."""
    clean: Callable[[Example], Sequence[str]] | None = None
    """Texts that all models read, in the order of the fields; None: as they are."""
    pair: tuple[str, str] | None = None
    """Patterns of the two texts of a pair, of the fields' names, ``choice`` and ``filled``."""
    traversal: tuple[str, ...] = ()
    """Patterns of the texts of a traversal, of the same; empty: as above."""
    fill: Callable[[str, str], str] | None = None
    """Puts a choice into the last text: ``filled``."""
    cut: Cut = "longest"
    second_tokens: int | None = None
    """At most so many of the second text's tokens are read: those at its end."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of fields in text to text that are not their names."""
    first: tuple[str, ...] = ()
    """Keys that stand before all others in text to text."""
    last: tuple[str, ...] = ()
    """Keys that stand behind all others: a cut at the end takes them."""
    read: Callable[[Example], str] | None = None
    """The input as text to text; None: texts by their keys."""
    target: Callable[[Example], str | None] | None = None
    """The target as text to text, or None where it is not known; None: the label."""
    ranks: Literal["labels", "keys", "choices", ""] = "labels"
    """Texts of labels or choices that can be ranked; empty: there are none."""
    learns: Literal["all", "right", "answers", ""] = "all"
    """Its own examples that are trained on as text to text: all, with the first right answer or
    with each of them; right ones alone; or none."""
    is_free: bool = False
    """True where any text may answer."""
    pronoun: str = ""
    """Name of the field of the pronoun."""
    marked: Callable[[Example], str] | None = None
    """Puts stars around the pronoun that is meant."""
    numbers: tuple[str, ...] = ()
    """Names of whole numbers that are needed beside the texts."""
    n_choices: int = 2
    """Choices that most examples have."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Texts of ``outline``; empty: the names of the fields."""
    options: tuple[str, ...] = ("choice1", "choice2")
    """The choices of ``outline``."""
    extra: Mapping[str, int] = field(default_factory=dict)
    """The numbers of ``outline``."""

    @property
    def has_ranks(self) -> bool:
        """Return whether the labels or choices of examples have texts that can be ranked."""
        return bool(self.ranks) and self.task.kind not in ("number", "span")

    def texts(self, example: Example) -> list[str]:
        """Return an example's texts in field order."""
        if self.clean is not None:
            return list(self.clean(example))
        return [example.fields[name] for name in self.task.fields]

    def _worded(
        self, example: Example, patterns: Sequence[str]
    ) -> Iterator[tuple[list[str], list[str]]]:
        """Yield the texts of each row, and its choice, if it has one; patterns make them texts."""
        texts = self.texts(example)
        of_choices = [[text] for text in example.choices] if self.task.kind == "choice" else [[]]
        for choice in of_choices:
            if patterns:
                values = dict(zip(self.task.fields, texts, strict=False))
                for option in choice:
                    values |= {"choice": option}
                    values |= {"filled": self.fill(texts[-1], option)} if self.fill else {}
                yield [pattern.format_map(values) for pattern in patterns], []
            else:
                yield texts, choice

    def pair_rows(self, example: Example) -> tuple[PairRow, ...]:
        """Return an example's pairs: one, or of ``choice`` one for each choice."""
        if self.task.kind == "span":
            passage, question = self.texts(example)
            return (PairRow(question, passage, cut="windows", first_tokens=QUESTION_TOKENS),)
        rows = []
        for (first, *rest), choice in self._worded(example, self.pair or ()):
            second = " ".join([*rest, *choice]) if rest or choice else None
            rows.append(PairRow(first, second, self.cut, second_tokens=self.second_tokens))
        return tuple(rows)

    def traversal_rows(self, example: Example) -> tuple[TraversalRow, ...]:
        """Return an example's traversals: one, two of a symmetric task, or one for each choice."""
        rows = [
            (" ".join(texts), *choice) if choice else tuple(texts)
            for texts, choice in self._worded(example, self.traversal)
        ]
        if self.task.is_symmetric:
            return (rows[0], rows[0][::-1])
        return (rows[0][::-1],) if self.task.kind == "span" else tuple(rows)

    def text_input(self, example: Example) -> str:
        """Return the input, as text to text."""
        if self.read is not None:
            return self.read(example)
        if self.task.kind == "span":
            passage, question = map(_pad, self.texts(example))
            return _SPACES.sub(" ", f"question: {question} context: {passage}")
        texts = {self.keys.get(key, key): text for key, text in example.fields.items()}
        if self.ranks == "keys":
            texts |= dict(zip(self.text_targets(example), example.choices, strict=True))
        between = sorted(texts.keys() - {*self.first, *self.last})
        parts = [f"{key}: {texts[key]}" for key in (*self.first, *between, *self.last)]
        return " ".join([self.name or self.task.name, *parts])

    def text_target(self, example: Example) -> str | None:
        """Return the target text; None where it is not known, for which T5 has ``<unk>``.

        Of several gold answers the first, of a pronoun the noun in question, right or wrong.
        """
        if self.target is not None:
            return self.target(example)
        if not example.is_labelled:
            return None
        if self.task.kind == "span":
            return _pad(example.answers[0].text) if example.answers else UNANSWERABLE
        if self.learns == "answers":
            return example.answers[0].text if example.answers else None
        if example.label is None or self.task.kind == "number":
            return None if example.label is None else f"{example.label:g}"
        return self.text_targets(example)[int(example.label)]

    def text_targets(self, example: Example) -> tuple[str, ...]:
        """Return the texts of all labels or choices, by index, to be ranked; none where they have
        no rank.
        """
        if self.ranks == "keys":
            return tuple(f"choice{number}" for number, _ in enumerate(example.choices, 1))
        if self.ranks == "choices":
            return example.choices
        return self.task.labels if self.ranks else ()

    def training_texts(self, example: Example) -> tuple[tuple[str, str], ...]:
        """Return the training rows, input and target; none without a label."""
        if not example.is_labelled or not self.learns:
            return ()
        if self.learns == "right" and example.label != 1:
            return ()
        targets = [self.text_target(example)]
        if self.learns == "answers":
            targets = [answer.text for answer in example.answers]
        read = self.text_input(example)
        return tuple((read, target) for target in targets if target is not None)

    def read_answer(self, example: Example, written: str) -> Prediction:
        """Return the answer that was written; its label is None where it is none of the labels, or
        no number.

        Of a span the passage's own characters where it has these words, and where they begin. Words
        and marks are compared, between which spaces are added and lost: in their own capitals, else
        in any.

        Of a pronoun whether the noun in question is named, or which of two nouns; none where both
        are, as "the dog" of "the big dog" and "the small dog" may be. A noun is named where,
        without determiners and capitals, the words of one are among the other's, and neither or
        both have an apostrophe.
        """
        text = written.strip()
        if self.task.kind == "span":
            if self.task.has_unanswerable and text.lower() == UNANSWERABLE:
                return Prediction(text="", no_answer=1.0)
            passage = example.fields[self.task.fields[0]]
            there, wanted = list(_TOKEN.finditer(passage)), _TOKEN.findall(text)
            for convert in (str, str.lower) if wanted else ():
                needle = [convert(token) for token in wanted]
                tokens = [convert(token[0]) for token in there]
                for index in range(len(there) - len(wanted) + 1):
                    if tokens[index : index + len(wanted)] == needle:
                        start, stop = there[index].start(), there[index + len(wanted) - 1].end()
                        return Prediction(text=passage[start:stop], start=start)
            return Prediction(text=text)
        if self.task.kind == "text":
            return Prediction(text=text)
        if self.task.kind == "number":
            try:
                number = float(text)
            except ValueError:
                return Prediction(text=text)
            return Prediction(number if math.isfinite(number) else None, text=text)
        targets = self.text_targets(example)
        label = targets.index(text) if text in targets else None
        words = content_words(text) if self.pronoun else set()
        if self.pronoun and not words:
            label = None
        elif self.pronoun and label is None:
            nouns = example.choices or (self.text_target(example) or "",)
            is_named = [
                ("'" in text) == ("'" in noun)
                and (words <= content_words(noun) or content_words(noun) <= words)
                for noun in nouns
            ]
            if not example.choices:
                label = int(is_named[0])
            elif is_named.count(True) == 1:
                label = is_named.index(True)
        return Prediction(label, text=text)

    def may_answer(self, example: Example, begun: str) -> bool:
        """Return whether a text that begins so may be one of the labels, or a number, once it ends.

        Of spans, of nouns that are named and where words are scored every text may answer. Spaces
        are left out of account, as what follows may join or trim them.
        """
        if self.is_free or self.pronoun or self.task.kind in ("span", "text"):
            return True
        text = "".join(begun.rstrip("\N{REPLACEMENT CHARACTER}").split())
        if self.task.kind == "number":
            return _NUMBER.fullmatch(text) is not None
        labels = self.text_targets(example)
        return not labels or any("".join(label.split()).startswith(text) for label in labels)

    def outline(self) -> Example:
        """Return a placeholder example: ``sentence1`` and so on.

        Its label is the last class, the second choice or the number in the middle.
        """
        if self.task.kind == "span":
            fields = {"context": "context with answer", "question": "question"}
            answer = Answer("answer", fields["context"].index("answer"))
            return Example("0", fields, answers=(answer,))
        fields = dict(self.parts or {name: name for name in self.task.fields})
        label: float | None = len(self.task.labels) - 1
        if self.task.kind == "number":
            label = sum(self.task.numbers) / 2
        if self.task.kind != "choice":
            return Example("0", fields, label, extra=self.extra)
        if self.learns == "answers":
            answers = (Answer(self.options[1]),)
            return Example("0", fields, choices=self.options, answers=answers)
        return Example("0", fields, 1, self.options)


WORDINGS: dict[Kind, Callable[[Task], Wording]] = {
    "classes": Wording,
    "number": Wording,
    "choice": partial(Wording, ranks="keys"),
    "span": partial(Wording, ranks=""),
    "text": partial(Wording, ranks="", learns="answers"),
}
"""Wordings of tasks that have none of their own."""


def marking(mark: Callable[[Example], str], pronoun: str) -> Mapping[str, Any]:
    """Return the fields of a wording of pronouns: texts have the name of WSC."""
    return {"marked": mark, "pronoun": pronoun, "read": lambda example: f"wsc: {mark(example)}"}


def content_words(text: str) -> set[str]:
    """Return the words of a text without determiners, in small letters."""
    return set(text.lower().split()) - _DETERMINERS


def fill_query(query: str, entity: str) -> str:
    """Return ReCoRD's query with an entity in its place. Source: jiant's record.py."""
    return query.replace(PLACEHOLDER, entity)


def answered(question: str, option: str) -> str:
    """Return RACE's question with an option in each of its blanks, or behind it without one.

    Source: ALBERT's race_utils.py.
    """
    return question.replace("_", option) if "_" in question else f"{question} {option}"


def _pad(text: str) -> str:
    return _SPACES.sub(" ", _PUNCTUATION.sub(r" \1 ", text))
