"""Wording of examples for a model: pairs of texts, a traversal, or text to text.

Source of the latter, of the tasks of GLUE, SuperGLUE, DPR and SQuAD: T5 (Raffel et al. 2020), by
its released preprocessing, to the letter. All others are written by its general rule; the order of
their parts is ours. Source of WNLI's pairs as pronouns, where the hypothesis has a noun and the
premise a pronoun: T5's ``wnli_simple``, whose authors checked it on the development and test sets
by hand.
"""

import math
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sublayer.errors import DataError
from sublayer.tasks.task import Answer, Example, Prediction, Task


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
    matches = {}
    for place in range(len(words) - n_words + 1):
        match = pattern.fullmatch(" ".join(words[place : place + n_words]))
        if match:
            matches[place] = match
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


_PRONOUNS = ("he", "she", "they", "it", "her", "his", "their", "them", "him")
_ARTICLES = ("a", "an", "the")
_END = re.compile(r"[.,?!]$")


@dataclass(frozen=True, slots=True)
class Pronoun:
    """A premise with its pronoun marked, and the noun that the hypothesis has instead."""

    text: str
    referent: str


def as_pronoun(premise: str, hypothesis: str) -> Pronoun:
    """Find the pronoun of the premise whose neighbours the hypothesis shares most.

    The first of equals. Where none has a noun in its place, nothing is marked and the referent is
    the whole hypothesis; T5 fails there.
    """
    words = premise.split()
    clean = [_END.sub("", word.lower()) for word in words]
    spoken = " ".join(_END.sub("", word.lower()) for word in hypothesis.split())
    best = None
    for place, word in enumerate(clean):
        if word not in _PRONOUNS:
            continue
        before, after = _shared_before(clean[:place], spoken), _shared(clean[place + 1 :], spoken)
        n_shared = len(before) + len(after)
        if best is None or n_shared > best[0]:
            best = n_shared, place, before, after
    noun = None
    if best is not None and best[0]:
        _, place, before, after = best
        noun = _between(before, after, spoken)
    if noun is None:
        return Pronoun(premise, hypothesis)
    referent = _as_written(noun, hypothesis)
    return Pronoun(_marked(words, place), referent)


def _shared(words: list[str], text: str) -> list[str]:
    n_shared = 0
    while n_shared < len(words) and " ".join(words[: n_shared + 1]) in text:
        n_shared += 1
    return words[:n_shared]


def _shared_before(words: list[str], text: str) -> list[str]:
    backwards = " ".join(reversed(text.split(" ")))
    return _shared(words[::-1], backwards)[::-1]


def _between(before: list[str], after: list[str], text: str) -> str | None:
    left, right = ([re.escape(word) for word in words] for words in (before, after))
    patterns = [*left, "(.+)", *right], ["^(.+)", *right], [*left, "(.+)$"]
    for pattern in patterns:
        match = re.search(" ".join(pattern), text)
        if match:
            return match[1]
    return None


def _as_written(noun: str, hypothesis: str) -> str:
    words = noun.split(" ")
    # The match may begin too early: an article that follows begins the noun.
    articles = [words.index(article) for article in _ARTICLES if article in words]
    words = words[max(articles, default=0) :]
    pattern = " ".join(rf"{re.escape(word)}[.,?!]?" for word in words)
    match = re.search(pattern, " ".join(hypothesis.split()), re.IGNORECASE)
    assert match, "the noun was found in the hypothesis"
    written = _END.sub("", match[0])
    # A noun is never possessive, even where its pronoun is.
    for possessive in ("'s", "'"):
        if written.endswith(possessive):
            return written.removesuffix(possessive)
    return written


def _marked(words: list[str], place: int) -> str:
    word = words[place]
    marked = f"*{word[:-1]}* {word[-1]}" if _END.search(word) else f"*{word}*"
    return " ".join([*words[:place], marked, *words[place + 1 :]])


# COPA asks with one word. Source: jiant's copa.py.
_COPA_QUESTIONS = {
    "cause": "What was the cause of this?",
    "effect": "What happened as a result?",
}
PLACEHOLDER = "@placeholder"
"""What ReCoRD's query has where an entity is asked for."""
_BLANK = "_"
_BOLD = re.compile("</?b>")


def texts_of(task: Task, example: Example) -> list[str]:
    """Return an example's texts in the order of the task's fields, as models of every kind read
    them: WSC's and DPR's pronoun marked and left out, COPA's question in words, MultiRC without
    marks of HTML.
    """
    if task.name in ("wsc", "dpr"):
        texts = [marked_text(task, example)]
        if task.name == "wsc":
            texts.append(example.fields["span1_text"])
        return texts
    texts = [example.fields[name] for name in task.fields]
    if task.name == "copa":
        texts[-1] = _COPA_QUESTIONS.get(texts[-1], texts[-1])
    if task.name == "multirc":
        texts = [without_markup(text) for text in texts]
    return texts


def marked_text(task: Task, example: Example) -> str:
    """Return WSC's or DPR's text, with stars around the pronoun that is meant."""
    text = example.fields["text"]
    if task.name == "dpr":
        return mark_first(text, example.fields["pronoun"])
    return mark_word(text, example.fields["span2_text"], example.extra["span2_index"])


def without_markup(text: str) -> str:
    """Replace line breaks of HTML by spaces and drop the marks of bold type, but not what is bold.

    Source: T5's preprocessing of MultiRC.
    """
    return _BOLD.sub("", text.replace("<br>", " "))


def fill_query(query: str, entity: str) -> str:
    """Return ReCoRD's query with an entity in its place. Source: jiant's record.py."""
    return query.replace(PLACEHOLDER, entity)


def answered(question: str, option: str) -> str:
    """Return RACE's question with an option in each of its blanks, or behind it without one.

    Source: ALBERT's race_utils.py.
    """
    if _BLANK in question:
        return question.replace(_BLANK, option)
    return f"{question} {option}"


Cut = Literal["longest", "first", "windows"]
"""What gives way where a row is too long: the end of the longer text, token by token; the end of
the first; or nothing, since the second is read in windows."""

QUESTION_TOKENS = 64
"""How many tokens of SQuAD's question are read. Source: BERT's run_squad.py."""
_RACE_TOKENS = 128


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


def pair_rows(task: Task, example: Example) -> tuple[PairRow, ...]:
    """Return an example's rows: one, or of ``choice`` one for each choice.

    The first field is the first text, all others the second, joined by spaces, and a choice at its
    end. Otherwise written are:

    - BoolQ: the question before the passage (jiant);
    - COPA: premise and question, then the choice (jiant);
    - MultiRC: the passage gives way (jiant, which writes the question into the first text);
    - ReCoRD: the query with the entity in its place (jiant);
    - RACE: the question with the option in its blanks, of which the last 128 tokens are read, after
      the article, which gives way (ALBERT);
    - WSC, DPR: the text with the pronoun marked, then the noun (ours: jiant reads out both spans);
    - WiC: the word before the first sentence, where no cut takes it (ours: jiant writes it as a
      third text);
    - SQuAD: the question, then the passage in windows (BERT).
    """
    texts = texts_of(task, example)
    if task.kind == "choice":
        return tuple(_with_choice(task, texts, choice) for choice in example.choices)
    if task.kind == "span":
        passage, question = texts
        return (PairRow(question, passage, cut="windows", first_tokens=QUESTION_TOKENS),)
    if task.name == "boolq":
        texts.reverse()
    if task.name == "wic":
        first, second, word = texts
        texts = [f"{word} {first}", second]
    first, *rest = texts
    cut: Cut = "first" if task.name == "multirc" else "longest"
    return (PairRow(first, " ".join(rest) if rest else None, cut=cut),)


def _with_choice(task: Task, texts: list[str], choice: str) -> PairRow:
    first, *rest = texts
    if task.name == "record":
        return PairRow(first, fill_query(rest[0], choice))
    if task.name == "copa":
        return PairRow(" ".join(texts), choice)
    if task.suite == "race":
        second = answered(rest[0], choice)
        return PairRow(first, second, cut="first", second_tokens=_RACE_TOKENS)
    return PairRow(first, " ".join([*rest, choice]))


TraversalRow = tuple[str, ...]
"""The texts between which ``_delimiter_`` stands: after ``_start_``, before ``_classify_``."""


def traversal_rows(task: Task, example: Example) -> tuple[TraversalRow, ...]:
    """Return an example's rows: one, two of a symmetric task, or one for each choice.

    Source: Radford et al. 2018, sec. 3.3 and figure 1:

    - one text; premise, then hypothesis;
    - symmetric tasks: both orders, whose final states are added;
    - choices: document and question as one text, then the answer (so in RACE, whose blanks are not
      filled; Story Cloze: the story, then the ending).

    All else is ours. Any other pair is written like an entailment, in the order of the task's
    fields, and

    - MultiRC like RACE: passage and question, then the answer;
    - WiC as three texts: both sentences, then the word.

    COPA asks in words, of ReCoRD the second text is the query with the entity in its place, WSC and
    DPR have the pronoun marked. SQuAD's question stands before the passage, or no state of the
    passage would know what is asked.
    """
    texts = texts_of(task, example)
    if task.kind == "choice":
        return tuple(_traversal_with_choice(task, texts, choice) for choice in example.choices)
    if task.kind == "span":
        passage, question = texts
        return ((question, passage),)
    if task.name == "multirc":
        passage, question, answer = texts
        return ((f"{passage} {question}", answer),)
    if task.is_symmetric:
        first, second = texts
        return ((first, second), (second, first))
    return (tuple(texts),)


def _traversal_with_choice(task: Task, texts: list[str], choice: str) -> TraversalRow:
    if task.name == "record":
        passage, query = texts
        return passage, fill_query(query, choice)
    return " ".join(texts), choice


UNANSWERABLE = "unanswerable"
"""What is written of a question that has no answer in its passage; ours."""

UNRANKED = ("wsc", "wnli")
"""Tasks of which one noun alone is written, which has no rank."""
REFERENTS = ("wsc", "wnli", "dpr")
"""Tasks of which the noun that a pronoun stands for is written."""

# Diagnostic sets are written as the tasks that they diagnose.
_NAMES = {
    "ax": "mnli",
    "axb": "rte",
    "axg": "rte",
    "sg_rte": "rte",
    "race_middle": "race",
    "race_high": "race",
}
_KEYS = {
    "ax": {"sentence1": "premise", "sentence2": "hypothesis"},
    "axb": {"sentence1": "premise", "sentence2": "hypothesis"},
}
# What a cut at the end may take stands last.
_FIRST = {
    "multirc": ("question", "answer"),
    "race": ("question",),
}
_LAST = {"race": ("article",)}

_PUNCTUATION = re.compile(f"([{re.escape(string.punctuation)}])")
_SPACES = re.compile(r"\s+", re.ASCII)
_SENTENCE_END = re.compile(r"([.?!\"'])\n@highlight\n")
_HIGHLIGHT = "\n@highlight\n"


def text_input(task: Task, example: Example) -> str:
    """Return what is read: the task's name, and each text after its key, by the alphabet.

    MultiRC's question and answer and RACE's question and options stand before the passage. The
    options of a choice are the texts ``choice1``, ``choice2`` and so on; those of ReCoRD are
    listed. WSC, WNLI and DPR are a text with the pronoun marked. SQuAD's punctuation has spaces on
    both sides, also at the end of a text.
    """
    if task.name in REFERENTS:
        return f"wsc: {_text_marked(task, example)}"
    if task.kind == "span":
        passage, question = (_pad(example.fields[name]) for name in task.fields)
        return _SPACES.sub(" ", f"question: {question} context: {passage}")
    if task.name == "record":
        return _record(example)
    name = _NAMES.get(task.name, task.name)
    renamed = _KEYS.get(task.name, {})
    texts = {renamed.get(key, key): text for key, text in example.fields.items()}
    for number, choice in enumerate(example.choices, start=1):
        texts[f"choice{number}"] = choice
    first, last = _FIRST.get(name, ()), _LAST.get(name, ())
    between = sorted(key for key in texts if key not in first + last)
    parts = [f"{key}: {texts[key]}" for key in (*first, *between, *last)]
    joined = " ".join([name, *parts])
    return without_markup(joined) if name == "multirc" else joined


def text_target(task: Task, example: Example) -> str | None:
    """Return what is to be written; None where it is not known, for which T5 has ``<unk>``.

    Of several gold answers the first, of a pronoun the noun in question, right or wrong.
    """
    if task.name == "wsc":
        return example.fields["span1_text"]
    if task.name == "wnli":
        return as_pronoun(*example.fields.values()).referent
    if not example.is_labelled:
        return None
    if task.kind == "span":
        return _pad(example.answers[0].text) if example.answers else UNANSWERABLE
    if task.name == "record" or task.kind == "text":
        return example.answers[0].text if example.answers else None
    if example.label is None:
        return None
    if task.kind == "number":
        return _written_number(task, example.label)
    return text_targets(task, example)[int(example.label)]


def text_targets(task: Task, example: Example) -> tuple[str, ...]:
    """Return the texts of all labels or choices, by index, to be ranked.

    None for numbers, spans and texts, and for WSC and WNLI: one noun alone has no rank.
    """
    if task.name in UNRANKED or task.kind == "text":
        return ()
    if task.kind == "classes":
        return task.labels
    if task.name in ("record", "dpr"):
        return example.choices
    return tuple(f"choice{number}" for number, _ in enumerate(example.choices, start=1))


def has_ranks(task: Task) -> bool:
    """Return whether the labels or choices of a task's examples have texts that can be ranked."""
    return task.kind in ("classes", "choice") and task.name not in UNRANKED


def training_texts(task: Task, example: Example) -> tuple[tuple[str, str], ...]:
    """Return the rows that are trained on, input and target of each.

    One, but: ReCoRD's and those of texts are one for each gold answer; of WSC only right nouns are
    learned; WNLI is only evaluated, by a model of WSC or DPR; what has no label is no row.
    """
    if task.name == "wnli" or not example.is_labelled:
        return ()
    if task.name == "wsc" and example.label != 1:
        return ()
    read = text_input(task, example)
    if task.name == "record" or task.kind == "text":
        return tuple((read, answer.text) for answer in example.answers)
    target = text_target(task, example)
    return () if target is None else ((read, target),)


def _text_marked(task: Task, example: Example) -> str:
    if task.name == "wnli":
        return as_pronoun(*example.fields.values()).text
    return marked_text(task, example)


def _record(example: Example) -> str:
    passage = _SENTENCE_END.sub(r"\1 ", example.fields["passage"]).replace(_HIGHLIGHT, ". ")
    entities = ", ".join(example.choices)
    return f"record query: {example.fields['query']} entities: {entities} passage: {passage}"


def _pad(text: str) -> str:
    return _SPACES.sub(" ", _PUNCTUATION.sub(r" \1 ", text))


def _written_number(task: Task, number: float) -> str:
    if task.name != "stsb":
        return f"{number:g}"
    # To the nearest multiple of 0.2, halves to even, in TensorFlow's precision.
    fifths = np.round(np.float32(number) * np.float32(5)) / np.float32(5)
    return f"{float(fifths):.1f}"


# Source, of these and of the rule: T5's postprocessing of WSC.
_DETERMINERS = {
    *("a", "an", "each", "every", "few", "her", "his", "many", "much", "my", "our", "some"),
    *("that", "the", "their", "these", "this", "those", "which", "whose", "your"),
}
_NUMBER = re.compile(r"[+-]?[\d._]*(e[+-]?[\d_]*)?|[+-]?[a-z]{,8}", re.IGNORECASE)
"""The beginning of what is read as a number, and of "inf" and "nan"."""
_TOKEN = re.compile(rf"[{re.escape(string.punctuation)}]|[^\s{re.escape(string.punctuation)}]+")


def read_answer(task: Task, example: Example, written: str) -> Prediction:
    """Return the answer that was written; its label is None where it is none of the labels, or no
    number.

    Of a span, the passage's own characters where it has these words, and where they begin. Of WSC
    and WNLI, whether the noun in question is named; of DPR, which of the two is.
    """
    text = written.strip()
    if task.kind == "number":
        return Prediction(_number(text), text=text)
    if task.kind == "text":
        return Prediction(text=text)
    if task.kind == "span":
        return _span(task, example, text)
    if task.name in REFERENTS:
        return Prediction(_referent(task, example, text), text=text)
    targets = text_targets(task, example)
    return Prediction(targets.index(text) if text in targets else None, text=text)


def may_answer(task: Task, example: Example, begun: str) -> bool:
    """Return whether a text that begins so may be one of the labels, or a number, once it ends.

    Of spans, of nouns that are named and where words are scored every text may answer. Spaces are
    left out of account, as what follows may join or trim them.
    """
    text = "".join(begun.rstrip("\N{REPLACEMENT CHARACTER}").split())
    if task.kind == "number":
        return _NUMBER.fullmatch(text) is not None
    if task.kind == "text" or task.name in REFERENTS or "token_f1" in task.metrics:
        return True
    labels = text_targets(task, example)
    return not labels or any("".join(label.split()).startswith(text) for label in labels)


def names_referent(written: str, referent: str) -> bool:
    """Return whether a text names a noun: without determiners and capitals, the words of one are
    among the other's, and neither or both have an apostrophe.
    """
    words, wanted = _content(written), _content(referent)
    if ("'" in written) != ("'" in referent):
        return False
    return words <= wanted or wanted <= words


def _content(text: str) -> set[str]:
    return set(text.lower().split()) - _DETERMINERS


def _referent(task: Task, example: Example, text: str) -> int | None:
    if not _content(text):
        return None
    if task.kind == "choice":
        if text in example.choices:
            return example.choices.index(text)
        named = [names_referent(text, choice) for choice in example.choices]
        # Both may be: "the dog" of "the big dog" and "the small dog".
        return named.index(True) if named.count(True) == 1 else None
    referent = text_target(task, example)
    assert referent is not None, "the noun in question is part of the example"
    return int(names_referent(text, referent))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _span(task: Task, example: Example, text: str) -> Prediction:
    if task.has_unanswerable and text.lower() == UNANSWERABLE:
        return Prediction(text="", no_answer=1.0)
    passage = example.fields[task.fields[0]]
    place = _find(text, passage)
    if place is None:
        return Prediction(text=text)
    return Prediction(text=passage[place.start : place.stop], start=place.start)


def _find(text: str, passage: str) -> slice | None:
    # Compared by words and marks, between which spaces are added and lost: in their own capitals,
    # else in any.
    wanted, there = list(_tokens(text)), list(_tokens(passage))
    if not wanted:
        return None
    for convert in (str, str.lower):
        needle = [convert(token) for token, _ in wanted]
        tokens = [convert(token) for token, _ in there]
        for place in range(len(there) - len(wanted) + 1):
            if tokens[place : place + len(wanted)] == needle:
                last, start_of_last = there[place + len(wanted) - 1]
                return slice(there[place][1], start_of_last + len(last))
    return None


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    return ((match[0], match.start()) for match in _TOKEN.finditer(text))


# Where a format does more than to put texts in order.
_TEXTS = {
    "cause_or_effect": {"premise": "premise", "question": "cause"},
    "blank": {"article": "article", "question": "question with _"},
    "query": {"passage": "passage", "query": "query with @placeholder"},
    "passage": {"context": "context with answer", "question": "question"},
    "pronoun": {"text": "Ann told Eve that she won.", "pronoun": "she"},
    "spans": {"text": "Ann told Eve that she won.", "span1_text": "Eve", "span2_text": "she"},
    "wnli": {"sentence1": "Ann told Eve that she won.", "sentence2": "Eve won."},
}
_OF_TASK = {
    "copa": "cause_or_effect",
    "record": "query",
    "dpr": "pronoun",
    "wsc": "spans",
    "wnli": "wnli",
}
_SPANS = {"span1_index": 2, "span2_index": 4}


def outline(task: Task) -> Example:
    """Return an example of a task that says what stands where: ``sentence1`` and so on.

    Its label is the last class, the second choice or the number in the middle.
    """
    kind = _OF_TASK.get(task.name, {"race": "blank", "squad": "passage"}.get(task.suite, ""))
    fields = dict(_TEXTS[kind]) if kind else {name: name for name in task.fields}
    low, high = task.numbers
    if task.kind == "span":
        answer = Answer("answer", fields["context"].index("answer"))
        return Example("0", fields, answers=(answer,))
    if task.kind == "number":
        return Example("0", fields, label=(low + high) / 2)
    if task.kind == "classes":
        extra = _SPANS if task.name == "wsc" else {}
        return Example("0", fields, label=len(task.labels) - 1, extra=extra)
    if task.name == "record":
        answers = (Answer("entity2"),)
        return Example("0", fields, choices=("entity1", "entity2"), answers=answers)
    choices = ("Ann", "Eve") if task.name == "dpr" else ("choice1", "choice2")
    return Example("0", fields, label=1, choices=choices)
