"""What the two text rules make different of a text is counted as by hand."""

from collections import Counter

import pytest
from hypothesis import given

from sublayer.data.gpt1.differences import Counts, count_differences
from sublayer.data.gpt1.text_rules import NEWLINE
from tests.data.gpt1 import released
from tests.data.gpt1.test_text_rules import TEXTS
from tests.data.gpt1.test_tokenizer import FAST, TINY

pytest.importorskip("ftfy")
pytest.importorskip("spacy")


def test_differences_are_those_counted_by_hand():
    text = "Don't, don't\n\n“the” th\u00e9 -- low.\nlow a.b\n"
    found = count_differences(TINY.vocabulary, text.encode())
    # Whitespace divides: Don't, / don't / “the” / th\u00e9 / -- / low. / low / a.b
    assert (found.words, found.different) == (8, 6)
    assert found.changes == Counter(
        {
            (("do", "n't"), ("don", "'", "t")): 2,
            (('"',), ("“",)): 1,
            (('"',), ("”",)): 1,
            (("th\u00e9",), ("the",)): 1,
            (("--",), ("-", "-")): 1,
            (("a.b",), ("a", ".", "b")): 1,
        }
    )
    published = released.encode(text, TINY.vocabulary.ids, TINY.vocabulary.merges)
    newline = TINY.vocabulary.ids["\n</w>"]
    assert found.published == Counts(len(published), published.count(0), 2)
    assert published.count(newline) == 2
    fast = FAST.encode(text.encode()).tolist()
    assert found.transformers == Counts(len(fast), fast.count(0), 0)


def test_a_text_without_differences_has_none():
    found = count_differences(TINY.vocabulary, b"the low tower, there")
    assert (found.words, found.different, found.changes) == (4, 0, Counter())


@pytest.mark.slow
@given(TEXTS)
def test_as_many_words_are_changed_as_the_two_have_more_and_less(text):
    found = count_differences(TINY.vocabulary, text.encode())
    library = FAST._tokenizer
    normal = library.normalizer.normalize_str(text)
    n_transformers = len(library.pre_tokenizer.pre_tokenize_str(normal))
    n_published = len([word for word in released.words(text) if word != f"{NEWLINE} "])
    more = sum(
        (len(others) - len(published)) * times
        for (published, others), times in found.changes.items()
    )
    assert more == n_transformers - n_published
    assert sum(found.changes.values()) >= found.different
