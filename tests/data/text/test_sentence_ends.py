import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.text.sentence_ends import split_sentences

CASES = [
    "It rained. | We stayed in.",
    "Did it rain? | It did! | We stayed in.",
    "Mr. Bennet and Mrs. Long saw Dr. Watson in St. James's. | They left.",
    "See Messrs. Hill and Col. Forster, Lieut. Denny and Capt. Carter. | Go.",
    "Fruit, e.g. Apples, i.e. Food, vs. Stone. | Yes.",
    "The value is 3.14. | It is 2.5 times 1.256.",
    "J. R. R. Tolkien wrote it. | W. H. Auden read it.",
    "Thomas A. Edison and George W. Bush met. | They spoke.",
    "He came.--Mr. Long left. | J.-P. Sartre stayed.",
    "It is I. | He left.",
    "It was King Charles I. of England.",
    "It was Charles I. Stuart who fell.",
    "He came at 5 p.m. | She left at 6 a.m. sharp.",
    "He lived in the U.S. and died. | She lived in the U.S. | They met.",
    "The U.S. President and U.S. Army met at 5 p.m. Eastern Time. | "
    "J.R.R. Tolkien, Ph.D. Student, came.",
    "See No. 4 and vol. 2, p. 17. | Then rest.",
    "He said no. | Four men came.",
    "It cost £5. | 20 men paid.",
    "“What?” he said. | “Nothing.” | He left.",
    '"Go away!" cried she. | "Never," said he. | "Then stay."',
    "He said “Go.” | (She went.) | [He did not.] | They wept.",
    "‘Oh dear! | Oh dear! | I shall be late!’ | She ran.",
    "She said, ‘Stop.’ | “And then?” | “Nothing.”",
    "He went to London (see fig. 3). | Then he came back.",
    "She spoke _so._ | He heard.",
    "I wonder... perhaps not. | Well... | He left.",
    "I… I do not know. | He paused… | She waited.",
    "Wait . . . what? | Well . . . . | He left.",
    "What?! | No!! | Stop.",
    "Really?—yes. | Come! come along.",
    "2. The second point. | It is short.",
    "IV. The Fourth. | It is long.",
    "(b). The first. | Another.",
    "Then came Jan. 5 and Feb. 6. | It froze.",
    "Was it Smith Jr. or Smith Sr. Jones? | Nobody knew.",
    "Apples, pears, etc. are fruit. | So are plums, etc. | Eat them.",
    "Il est là. | Élan est parti.",
    "The end. | * * *",
    "No end here",
    "a.b.c d.e",
    "",
]


@pytest.mark.parametrize("case", CASES)
def test_sentences_end_where_a_reader_ends_them(case):
    sentences = [each for each in case.split(" | ") if each]
    assert split_sentences(" ".join(sentences)) == sentences


def test_a_dash_or_no_blank_after_a_full_stop_ends_nothing():
    assert split_sentences("He came.--She left, as example.com said.") == [
        "He came.--She left, as example.com said."
    ]


@given(st.lists(st.text("aA1.!?… \"'”’()I—*_", min_size=1).filter(str.strip), max_size=8))
def test_sentences_joined_by_a_space_are_the_paragraph(words):
    paragraph = " ".join(" ".join(words).split())
    assert " ".join(split_sentences(paragraph)) == paragraph
    assert all(each == each.strip() != "" for each in split_sentences(paragraph))
