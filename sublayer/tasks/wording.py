"""Wording of examples: text pairs, traversals, or text to text.

Sources: pairs as in jiant, ALBERT and BERT; traversals: Radford et al. 2018, sec. 3.3 and figure 1;
text to text, for the tasks of GLUE, SuperGLUE, DPR and SQuAD: T5 (Raffel et al. 2020), exactly as
its released preprocessing. All other tasks follow T5's general rule, with our own order of parts.
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
"""Text that is cut where a row is too long: the end of the longer one, token by token; the end of
the first; or none, since the second is read in windows."""
TraversalRow = tuple[str, ...]
"""Texts joined by ``_delimiter_``, between ``_start_`` and ``_classify_``."""
QUESTION_TOKENS = 64
"""Most tokens read of SQuAD's question. Source: BERT's run_squad.py."""
UNANSWERABLE = "unanswerable"
"""Written answer to an unanswerable question. Departure: our own."""
PLACEHOLDER = "@placeholder"
"""Placeholder for the entity in ReCoRD's query."""
_NUMBER = re.compile(r"[+-]?[\d._]*(e[+-]?[\d_]*)?|[+-]?[a-z]{,8}", re.IGNORECASE)
"""Prefix of a text that can be read as a number, "inf" and "nan" included."""
_PUNCTUATION = re.compile(f"([{re.escape(string.punctuation)}])")
_TOKEN = re.compile(rf"[{re.escape(string.punctuation)}]|[^\s{re.escape(string.punctuation)}]+")
_SPACES = re.compile(r"\s+", re.ASCII)
# Source of the list and of its rule: T5's postprocessing of WSC.
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
    """Most tokens read of the first text, from its beginning."""
    second_tokens: int | None = None
    """Most tokens read of the second text, from its end."""


@dataclass(frozen=True)
class Wording:
    """Wording of a task's examples, for each input format.

    Pairs: the first field is the first text, all others joined by spaces are the second; a choice
    is at the end of the second text. Traversals: the fields in order; symmetric tasks in both
    orders, with their final states added; for choices all texts as one, then the choice. Text to
    text: the task's name, then each text after its key, in alphabetical order of keys; options are
    the texts ``choice1``, ``choice2`` and so on.

    Questions about a passage, as SQuAD's: the question, then the passage in windows. Traversals
    have this order too, since the states of a passage before its question could not depend on it.
    Text to text puts spaces around punctuation, also at the end of a text.

    Pronouns and their referents, in WSC, WNLI and DPR: the pronoun is marked in the text, and the
    noun is written. Departure: pairs of these tasks are ours; jiant reads out both spans.
    """

    task: Task
    name: str = ""
    """Name at the beginning of text to text; empty: the task's. Diagnostic sets are written as the
    tasks that they diagnose."""
    clean: Callable[[Example], Sequence[str]] | None = None
    """Texts for all formats, in field order; None: unchanged."""
    pair: tuple[str, str] | None = None
    """Format patterns of a pair's two texts, over field names, ``choice`` and ``filled``."""
    traversal: tuple[str, ...] = ()
    """Format patterns of a traversal's texts, over the same names; empty: as in the class."""
    fill: Callable[[str, str], str] | None = None
    """Fills a choice into the last text: ``filled``."""
    cut: Cut = "longest"
    second_tokens: int | None = None
    """Most tokens read of the second text, from its end."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of fields in text to text where they differ from the field names."""
    first: tuple[str, ...] = ()
    """Keys before all others in text to text."""
    last: tuple[str, ...] = ()
    """Keys after all others: a cut at the end removes their texts first."""
    read: Callable[[Example], str] | None = None
    """Text-to-text input; None: texts by their keys."""
    target: Callable[[Example], str | None] | None = None
    """Text-to-text target, or None where it is unknown; None: the label."""
    ranks: Literal["labels", "keys", "choices", ""] = "labels"
    """Texts of labels or choices to rank; empty: none can be ranked."""
    learns: Literal["all", "right", "answers", ""] = "all"
    """Examples to train on as text to text: all, with the first correct answer or with each of
    them; correct ones only; or none."""
    is_free: bool = False
    """True where any text is a possible answer."""
    pronoun: str = ""
    """Field of the pronoun."""
    marked: Callable[[Example], str] | None = None
    """Puts stars around the pronoun in question."""
    numbers: tuple[str, ...] = ()
    """Names of whole numbers needed along with the texts."""
    n_choices: int = 2
    """Typical number of choices."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Texts of ``outline``; empty: the field names."""
    options: tuple[str, ...] = ("choice1", "choice2")
    """Choices of ``outline``."""
    extra: Mapping[str, int] = field(default_factory=dict)
    """Numbers of ``outline``."""

    @property
    def has_ranks(self) -> bool:
        """Return whether labels or choices have texts to rank."""
        return bool(self.ranks) and self.task.kind not in ("number", "span")

    def texts(self, example: Example) -> list[str]:
        """Return an example's texts in field order."""
        if self.clean is not None:
            return list(self.clean(example))
        return [example.fields[name] for name in self.task.fields]

    def _worded(
        self, example: Example, patterns: Sequence[str]
    ) -> Iterator[tuple[list[str], list[str]]]:
        """Yield each row's texts, and its choice, if separate; patterns merge the two."""
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
        """Return an example's pairs: one, or one for each choice."""
        if self.task.kind == "span":
            passage, question = self.texts(example)
            return (PairRow(question, passage, cut="windows", first_tokens=QUESTION_TOKENS),)
        rows = []
        for (first, *rest), choice in self._worded(example, self.pair or ()):
            second = " ".join([*rest, *choice]) if rest or choice else None
            rows.append(PairRow(first, second, self.cut, second_tokens=self.second_tokens))
        return tuple(rows)

    def traversal_rows(self, example: Example) -> tuple[TraversalRow, ...]:
        """Return an example's traversals: one, two for a symmetric task, or one for each choice."""
        rows = [
            (" ".join(texts), *choice) if choice else tuple(texts)
            for texts, choice in self._worded(example, self.traversal)
        ]
        if self.task.is_symmetric:
            return (rows[0], rows[0][::-1])
        return (rows[0][::-1],) if self.task.kind == "span" else tuple(rows)

    def text_input(self, example: Example) -> str:
        """Return the text-to-text input."""
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
        """Return the target text; None where it is unknown, in place of T5's ``<unk>``.

        Of several gold answers it is the first; for a pronoun the noun in question, right or wrong.
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
        """Return the texts of all labels or choices to rank, by index; empty where there is nothing
        to rank.
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
        """Return the written answer; its label is None where it is none of the labels, or not a
        number.

        For a span it is the passage's own characters, and their start, where the passage has these
        words. Words and punctuation are compared as tokens, without spaces, first case-sensitively.

        For a pronoun it is whether the noun in question is named, or which of two nouns; None where
        both are, as "the dog" of "the big dog" and "the small dog" may be. A noun is named where,
        without determiners and case, the words of one are a subset of the other's, and neither or
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
        """Return whether a text with this beginning may end as one of the labels, or as a number.

        For spans, for named nouns and where words are scored, any text may. Spaces are ignored,
        since the rest may join or trim them.
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

        Its label is the last class, the second choice or the midpoint of the numbers.
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
"""Default wordings by the kind of task."""


def marking(mark: Callable[[Example], str], pronoun: str) -> Mapping[str, Any]:
    """Return the fields of a wording of pronouns: text to text begins with WSC's name."""
    return {"marked": mark, "pronoun": pronoun, "read": lambda example: f"wsc: {mark(example)}"}


def content_words(text: str) -> set[str]:
    """Return the lower-case words of a text without determiners."""
    return set(text.lower().split()) - _DETERMINERS


def fill_query(query: str, entity: str) -> str:
    """Return ReCoRD's query with an entity in its place. Source: jiant's record.py."""
    return query.replace(PLACEHOLDER, entity)


def answered(question: str, option: str) -> str:
    """Return RACE's question with an option in each of its blanks, or after it if it has none.

    Source: ALBERT's race_utils.py.
    """
    return question.replace("_", option) if "_" in question else f"{question} {option}"


def _pad(text: str) -> str:
    return _SPACES.sub(" ", _PUNCTUATION.sub(r" \1 ", text))
