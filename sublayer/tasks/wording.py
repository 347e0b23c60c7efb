"""Wording of examples for a model: pairs of texts, a traversal, or text to text.

Sources: pairs as jiant, ALBERT and BERT write them; traversals: Radford et al. 2018, sec. 3.3 and
figure 1; text to text, of the tasks of GLUE, SuperGLUE, DPR and SQuAD: T5 (Raffel et al. 2020), by
its released preprocessing, to the letter. All others are written by its general rule; the order of
their parts is ours.
"""

import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from sublayer.errors import DataError
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
    """A row of tokens to be."""

    first: str
    second: str | None = None
    cut: Cut = "longest"
    first_tokens: int | None = None
    """At most so many of the first text's tokens are read: those at its beginning."""
    second_tokens: int | None = None
    """At most so many of the second text's tokens are read: those at its end."""


@dataclass(frozen=True)
class Wording:
    """Wording of a task that asks for a class or a number.

    Pairs: the first field is the first text, all others the second, joined by spaces. Traversals:
    the fields in order; symmetric tasks in both orders, whose final states are added. Text to text:
    the task's name, and each text after its key, by the alphabet.
    """

    task: Task
    name: str = ""
    """Name that text to text begins with; empty: the task's. Diagnostic sets are written as the
    tasks that they diagnose."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of fields in text to text that are not their names."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Texts of ``outline``; empty: the names of the fields."""
    is_learned: ClassVar[bool] = True
    """True where its own examples are trained on as text to text."""
    is_ranked: ClassVar[bool] = True
    """True where labels or choices have texts that can be ranked."""
    numbers: ClassVar[tuple[str, ...]] = ()
    """Names of whole numbers that are needed beside the texts."""

    @property
    def has_ranks(self) -> bool:
        """Return whether the labels or choices of examples have texts that can be ranked."""
        return self.is_ranked and self.task.kind != "number"

    def texts(self, example: Example) -> list[str]:
        """Return an example's texts in the order of the fields, as all models read them."""
        return [example.fields[name] for name in self.task.fields]

    def pair_rows(self, example: Example) -> tuple[PairRow, ...]:
        """Return an example's pairs: one, or of ``choice`` one for each choice."""
        first, *rest = self.texts(example)
        return (PairRow(first, " ".join(rest) if rest else None),)

    def traversal_rows(self, example: Example) -> tuple[TraversalRow, ...]:
        """Return an example's traversals: one, two of a symmetric task, or one for each choice."""
        texts = tuple(self.texts(example))
        return (texts, texts[::-1]) if self.task.is_symmetric else (texts,)

    def text_input(self, example: Example) -> str:
        """Return the input, as text to text."""
        return self.keyed({self.keys.get(key, key): text for key, text in example.fields.items()})

    def keyed(
        self, texts: Mapping[str, str], first: Sequence[str] = (), last: Sequence[str] = ()
    ) -> str:
        """Write each text after its key, by the alphabet; a cut at the end takes the last."""
        between = sorted(texts.keys() - {*first, *last})
        parts = [f"{key}: {texts[key]}" for key in (*first, *between, *last)]
        return " ".join([self.name or self.task.name, *parts])

    def text_target(self, example: Example) -> str | None:
        """Return the target text; None where it is not known, for which T5 has ``<unk>``.

        Of several gold answers the first, of a pronoun the noun in question, right or wrong.
        """
        if not example.is_labelled or example.label is None:
            return None
        if self.task.kind == "number":
            return f"{example.label:g}"
        return self.text_targets(example)[int(example.label)]

    def text_targets(self, example: Example) -> tuple[str, ...]:
        """Return the texts of all labels or choices, by index, to be ranked; none where they have
        no rank.
        """
        return self.task.labels

    def training_texts(self, example: Example) -> tuple[tuple[str, str], ...]:
        """Return the rows that are trained on, input and target of each; of no label none."""
        target = self.text_target(example) if example.is_labelled else None
        return () if target is None else ((self.text_input(example), target),)

    def read_answer(self, example: Example, written: str) -> Prediction:
        """Return the answer that was written; its label is None where it is none of the labels, or
        no number.
        """
        text = written.strip()
        if self.task.kind == "number":
            try:
                number = float(text)
            except ValueError:
                return Prediction(text=text)
            return Prediction(number if math.isfinite(number) else None, text=text)
        targets = self.text_targets(example)
        return Prediction(targets.index(text) if text in targets else None, text=text)

    def may_answer(self, example: Example, begun: str) -> bool:
        """Return whether a text that begins so may be one of the labels, or a number, once it ends.

        Of spans, of nouns that are named and where words are scored every text may answer. Spaces
        are left out of account, as what follows may join or trim them.
        """
        text = "".join(begun.rstrip("\N{REPLACEMENT CHARACTER}").split())
        if self.task.kind == "number":
            return _NUMBER.fullmatch(text) is not None
        labels = self.text_targets(example)
        return not labels or any("".join(label.split()).startswith(text) for label in labels)

    def outline(self) -> Example:
        """Return an example that says what stands where: ``sentence1`` and so on.

        Its label is the last class, the second choice or the number in the middle.
        """
        fields = self.parts or {name: name for name in self.task.fields}
        is_number = self.task.kind == "number"
        return Example(
            "0", fields, sum(self.task.numbers) / 2 if is_number else len(self.task.labels) - 1
        )


class ChoiceWording(Wording):
    """Wording of a task whose examples have choices of their own.

    A choice stands at the end of the second text. Traversals: all texts as one, then the choice.
    Text to text: the options are the texts ``choice1``, ``choice2`` and so on.
    """

    n_choices: ClassVar[int] = 2
    """Choices that most examples have."""
    options: ClassVar[tuple[str, ...]] = ("choice1", "choice2")
    """The choices of ``outline``."""

    def choice_row(self, texts: Sequence[str], choice: str) -> PairRow:
        """Return the pair of a choice."""
        first, *rest = texts
        return PairRow(first, " ".join([*rest, choice]))

    def pair_rows(self, example: Example) -> tuple[PairRow, ...]:
        """Return a pair for each choice."""
        texts = self.texts(example)
        return tuple(self.choice_row(texts, choice) for choice in example.choices)

    def traversal_rows(self, example: Example) -> tuple[TraversalRow, ...]:
        """Return document and question as one text, then the answer, for each choice."""
        text = " ".join(self.texts(example))
        return tuple((text, choice) for choice in example.choices)

    def text_input(self, example: Example) -> str:
        """Return the texts and the options by their keys."""
        return self.keyed({**example.fields, **self.numbered(example)})

    def numbered(self, example: Example) -> dict[str, str]:
        """Return the choices by their keys."""
        return {f"choice{n}": choice for n, choice in enumerate(example.choices, 1)}

    def text_targets(self, example: Example) -> tuple[str, ...]:
        """Return the keys of the choices."""
        return tuple(self.numbered(example))

    def outline(self) -> Example:
        """Return an example of two choices, of which the second is right."""
        fields = self.parts or {name: name for name in self.task.fields}
        return Example("0", fields, label=1, choices=self.options)


class SpanWording(Wording):
    """Wording of questions about a passage, as SQuAD's: the question, then the passage in windows.

    So in traversals, where no state of a passage before it would know the question. As text to text
    punctuation has spaces on both sides, also at the end of a text.
    """

    is_ranked = False

    def pair_rows(self, example: Example) -> tuple[PairRow, ...]:
        """Return the question, and the passage in windows (BERT)."""
        passage, question = self.texts(example)
        return (PairRow(question, passage, cut="windows", first_tokens=QUESTION_TOKENS),)

    def traversal_rows(self, example: Example) -> tuple[TraversalRow, ...]:
        """Return the question before the passage."""
        return (tuple(reversed(self.texts(example))),)

    def text_input(self, example: Example) -> str:
        """Return question and passage."""
        passage, question = map(_pad, self.texts(example))
        return _SPACES.sub(" ", f"question: {question} context: {passage}")

    def text_target(self, example: Example) -> str | None:
        """Return the first answer, if there is one."""
        if not example.is_labelled:
            return None
        return _pad(example.answers[0].text) if example.answers else UNANSWERABLE

    def read_answer(self, example: Example, written: str) -> Prediction:
        """Return the passage's own characters where it has these words, and where they begin.

        They are compared by words and marks, between which spaces are added and lost: in their own
        capitals, else in any.
        """
        text = written.strip()
        if self.task.has_unanswerable and text.lower() == UNANSWERABLE:
            return Prediction(text="", no_answer=1.0)
        passage = example.fields[self.task.fields[0]]
        there, wanted = list(_TOKEN.finditer(passage)), _TOKEN.findall(text)
        for convert in (str, str.lower) if wanted else ():
            needle = [convert(token) for token in wanted]
            tokens = [convert(token[0]) for token in there]
            for place in range(len(there) - len(wanted) + 1):
                if tokens[place : place + len(wanted)] == needle:
                    start, stop = there[place].start(), there[place + len(wanted) - 1].end()
                    return Prediction(text=passage[start:stop], start=start)
        return Prediction(text=text)

    def may_answer(self, example: Example, begun: str) -> bool:
        """Return True."""
        return True

    def outline(self) -> Example:
        """Return an example whose passage has the answer."""
        fields = {"context": "context with answer", "question": "question"}
        return Example("0", fields, answers=(Answer("answer", fields["context"].index("answer")),))


class TextWording(Wording):
    """Wording of a task whose answers are texts of any words."""

    is_ranked = False

    def text_target(self, example: Example) -> str | None:
        """Return the first reference."""
        return example.answers[0].text if example.is_labelled and example.answers else None

    def training_texts(self, example: Example) -> tuple[tuple[str, str], ...]:
        """Return a row for each reference."""
        read = self.text_input(example)
        return tuple((read, answer.text) for answer in example.answers if example.is_labelled)

    def read_answer(self, example: Example, written: str) -> Prediction:
        """Return the written text as the answer."""
        return Prediction(text=written.strip())

    def may_answer(self, example: Example, begun: str) -> bool:
        """Return True."""
        return True


WORDINGS: dict[Kind, type[Wording]] = {
    "classes": Wording,
    "number": Wording,
    "choice": ChoiceWording,
    "span": SpanWording,
    "text": TextWording,
}
"""Wordings of tasks that have none of their own."""


class PronounWording(Wording):
    """Wording of pronouns and the nouns that they stand for: WSC's, WNLI's and DPR's.

    The text has the pronoun marked, and the noun is written. Pairs are ours: jiant reads out both
    spans.
    """

    pronoun: ClassVar[str] = "span2_text"
    """Name of the field of the pronoun."""

    def marked(self, example: Example) -> str:
        """Return the text with stars around the pronoun that is meant."""
        raise NotImplementedError

    def text_input(self, example: Example) -> str:
        """Return the text, by the name of WSC."""
        return f"wsc: {self.marked(example)}"

    def read_answer(self, example: Example, written: str) -> Prediction:
        """Return whether the noun in question is named."""
        text = written.strip()
        referent = self.text_target(example)
        assert referent is not None, "the noun in question is part of the example"
        is_named = names_referent(text, referent) if content_words(text) else None
        return Prediction(None if is_named is None else int(is_named), text=text)

    def may_answer(self, example: Example, begun: str) -> bool:
        """Return True."""
        return True


def names_referent(written: str, referent: str) -> bool:
    """Return whether a text names a noun: without determiners and capitals, the words of one are
    among the other's, and neither or both have an apostrophe.
    """
    words, wanted = content_words(written), content_words(referent)
    if ("'" in written) != ("'" in referent):
        return False
    return words <= wanted or wanted <= words


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


def mark_word(text: str, pronoun: str, index: int) -> str:
    """Put stars around a pronoun, given by its place among the words that spaces separate.

    Punctuation that sticks to it is moved off: ``him,"`` becomes ``*him* ,"``. Where another word
    stands in the place, the pronoun's nearest occurrence is meant. Both repair by rule the two
    texts that T5's ``wsc_simple`` repairs by hand; unlike there, a pronoun may be the first or the
    last word.

    Raises DataError where the text has no such word.
    """
    words = text.split(" ")
    n_words = len(pronoun.split(" "))
    pattern = re.compile(rf"(\W*){re.escape(pronoun)}(\W*)")
    windows = (" ".join(words[place : place + n_words]) for place in range(len(words)))
    found = {place: pattern.fullmatch(window) for place, window in enumerate(windows)}
    matches = {place: match for place, match in found.items() if match}
    if not matches:
        raise DataError(f"{pronoun!r} is no word of {text!r}")
    place = min(matches, key=lambda place: abs(place - index))
    before, after = matches[place].groups()
    parts = [part for part in (before, f"*{pronoun}*", after) if part]
    return " ".join([*words[:place], *parts, *words[place + n_words :]])


def mark_first(text: str, pronoun: str) -> str:
    """Put stars around the first occurrence of a pronoun between a space and a space, full stop or
    comma; without one, around the first that is a whole word, whatever its capitals.

    Source: T5's ``definite_pronoun_resolution_simple``, but for the second rule, which is ours:
    there, such a text stays unmarked. Raises DataError where the text has no such word.
    """
    word = re.escape(pronoun)
    match = re.search(rf"(?<= ){word}(?=[ .,])", text)
    match = match or re.search(rf"\b{word}\b", text, re.IGNORECASE)
    if match is None:
        raise DataError(f"{pronoun!r} is no word of {text!r}")
    return f"{text[: match.start()]}*{match[0]}*{text[match.end() :]}"
