"""Rules for the ends of sentences: English prose, and the marks of other scripts.

A sentence may end after ``.``, ``?``, ``!``, an ellipsis, or a run of them, and after Greek's
question mark, with the quotes and brackets that close there; whitespace follows. It continues where

- the next word begins in lower case: ``"What?" he said``;
- the full stop belongs to an abbreviation that stands before something (Mr., St., e.g.), before a
  number (No., p., vol.), or that ends no sentence but before a capital (etc., Jr., Inc.);
- it belongs to an initial (J. Smith, W. H. Auden; "I" is one after another name or initial);
- it belongs to several initials (U.S., Ph.D., p.m.), unless a word follows that often begins a
  sentence and seldom a name (The, She, After);
- all that stands before it is a number of a list or a heading: ``2.``, ``IV.``, ``(b).``;
- what follows is no word, number, or quote or bracket that opens.

A full stop within a word or a number (3.14, U.S.A, a.m) has no whitespace after it, so it never
counts. The marks of other scripts (``OTHER_ENDS``: 。 ！ ？ । ؟ ۔ ። ...) end a sentence, with what
closes there, whether a space follows or not, unless

- a particle of Japanese or a comma follows what closes: 「はい。」と言った;
- the mark is a wide full stop between digits.
"""

import re

from sublayer.tasks.scripts import OTHER_ENDS

_OTHER_CLOSERS = "\"'”’»)\\]}」』）】》〉〕〗］｝"
_OTHER = re.compile(
    rf"(?:[{OTHER_ENDS.replace('．', '')}]|．(?![0-9０-９]))[.!?…{OTHER_ENDS}]*"
    rf"(?P<close>[{_OTHER_CLOSERS}]*)\ ?"
)
_GOES_ON = re.compile(r"[\u3041-\u309f,、，]")
# A space follows what closes: „so“, »so«, ‚so‘.
_CLOSERS = "\"'”’»“‘«›‹)\\]}_*"
_OPENERS = "\"'“‘«„‚»‹›¿¡(\\[{_*—–-"
_GREEK = "\u0370-\u03ff\u1f00-\u1fff"
_END = re.compile(
    rf"(?P<mark>[.!?…]+(?:\ \.+)*|(?<=[{_GREEK}])[;\u037e])(?P<close>[{_CLOSERS}]*)\ "
    rf"(?=(?P<open>[{_OPENERS}]*\ ?)(?P<next>\w*))"
)
_WORD = re.compile(r"[^\s\"'“”‘’«»()\[\]{}_*—–,;:!?…-]+\Z")
_ENUMERATOR = re.compile(
    r"[\"'“‘(\[_*]*(?:\d{1,4}|[IVXLCDM]{1,7}|[ivxl]{1,6}|[A-Za-z])[\"'”’)\]_*]*\Z"
)
_INITIAL = re.compile(r"(?:[^\W\d_]h?\.)*[^\W\d_]\Z")
_WORD_CHARACTERS = 24

_NAMED = """
adm brig capt cdr cmdr col dr esqrs fr gen gov hon lieut lt maj messrs mlle mlles mme mmes mr mrs ms
msgr mt mssrs pres prof rep rev revd sen sergt sgt sr sra srta st ste supt viz vs cf e.g i.e eg ie
ald atty det insp mons
"""
_BEFORE_A_NAME = frozenset(_NAMED.split())
_NUMBERED = """
art ch chap chs fig figs fol l ll lib lin no nos nr p par pp pt pts sec sect ser v ver vol vols jan
feb mar apr jun jul aug sept sep oct nov dec
"""
_BEFORE_A_NUMBER = frozenset(_NUMBERED.split())
_STARTING = """
A After Although An And Are As At Because Before Both But By Did Do Does During Each Even Every For
From Has Have He Her Here His How However I If In Is It Its Many May Most My No Not Now On Once One
Only Or Our She Since So Some Such That The Their Then There These They This Those Though Thus To
Today Under Until Was We Were What When Where Which While Who Why With Yet You Your
"""
_STARTERS = frozenset(_STARTING.split())


def split_sentences(text: str) -> list[str]:
    """Split a paragraph of single spaces, without a line break, into its sentences.

    No other character is lost.
    """
    return [sentence for part in split_other_scripts(text) for sentence in _split_spaced(part)]


def split_other_scripts(text: str) -> list[str]:
    """Split a paragraph behind the marks of ``OTHER_ENDS`` alone, and what closes there."""
    if text.isascii():
        return [text]
    parts = []
    start = 0
    for end in _OTHER.finditer(text):
        is_quoted = bool(end["close"]) and not end[0].endswith(" ")
        if is_quoted and _GOES_ON.match(text, end.end()):
            continue
        parts.append(text[start : end.end()].rstrip(" "))
        start = end.end()
    return [*parts, text[start:]] if start < len(text) else parts


def _split_spaced(text: str) -> list[str]:
    """Split at the marks that a space follows."""
    sentences = []
    start = 0
    for end in _END.finditer(text):
        if _ends(text, start, end):
            stop = end.end("close")
            sentences.append(text[start:stop])
            start = end.end()
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _ends(text: str, start: int, end: re.Match[str]) -> bool:
    following = end["next"]
    if not following and not end["open"]:
        # A symbol follows, or another mark: such as ". . ." with what belongs to it.
        return False
    if following[:1].islower():
        return False
    mark = end["mark"]
    if mark == ".":
        return not _is_abbreviated(text, start, end.start(), following)
    return not (mark[0] in ".…" and following == "I" and end["close"] == "")


def _is_abbreviated(text: str, start: int, stop: int, following: str) -> bool:
    window = text[max(start, stop - _WORD_CHARACTERS) : stop]
    match = _WORD.search(window)
    if match is None:
        return _ENUMERATOR.fullmatch(text, start, stop) is not None
    word = match[0]
    lower = word.lower()
    if lower in _BEFORE_A_NAME:
        return True
    if lower in _BEFORE_A_NUMBER and following[:1].isdigit():
        return True
    if _INITIAL.fullmatch(word):
        return _is_initial(text, start, stop - len(word), word, following)
    if stop - start > _WORD_CHARACTERS:
        return False
    return _ENUMERATOR.fullmatch(text, start, stop) is not None


def _is_initial(text: str, start: int, stop: int, word: str, following: str) -> bool:
    if len(word) > 1:
        return following not in _STARTERS
    if not word.isupper():
        return stop == start
    if word != "I":
        return True
    # "I" is a name's after a capitalised word (Charles I. of England), else the pronoun, at whose
    # stop a sentence ends.
    if stop == start:
        return True
    words = text[start:stop].split(" ")
    before = words[-2:-1]
    return any(_is_of_a_name(each) for each in before)


def _is_of_a_name(word: str) -> bool:
    """Return whether a word is capitalised, or a capital with a full stop."""
    is_initial = word[1:] == "."
    return word[:1].isupper() and (word.isalpha() or is_initial)
