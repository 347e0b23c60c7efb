"""A translator of a few words, trained once, and lines translated by one."""

import pytest

from tests.translators import sentences, train_translator, write_pair

ENGLISH = ("a", "cat", "dog", "sees", "the", "and", "runs")
GERMAN = ("ein", "Kater", "Hund", "sieht", "der", "und", "rennt")


@pytest.fixture(scope="session")
def translator(tmp_path_factory):
    """The folder of a run whose last three checkpoints are kept, beside its texts."""
    folder = tmp_path_factory.mktemp("translator")
    write_pair(folder, *(sentences(words, 240, longest=6) for words in (ENGLISH, GERMAN)))
    settings = {"data__lowercase": False, "data__vocab_size": 60, "train__evaluate_steps": 25}
    return train_translator(folder, **settings, train__best_by="bleu", train__keep_checkpoints=3)


@pytest.fixture
def translate(sublayer, standard_input):
    def run(model, given, *options):
        standard_input(given)
        return sublayer("translate", model, *options)

    return run
