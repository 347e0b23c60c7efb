import pytest

from sublayer.config.data import DataConfig
from sublayer.config.text.corpora import source_names
from sublayer.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"corpus": "enwik"},
            "data.corpus = 'enwik' is not one of python, enwik8, .*: did you mean enwik8",
        ),
        ({"corpus": ("python", "novels")}, "data.corpus = 'novels' is not one of"),
        ({"corpus": {"novels": 1.0}}, "data.corpus = 'novels' is not one of"),
        ({"path": {"a": 0.0}}, "the weight 0 of 'a' must be more than 0"),
        ({"path": {"a": -1.0}}, "the weight -1 of 'a' must be more than 0"),
        ({"path": ()}, "is empty; name a text"),
        ({"path": {}}, "is empty; name a text"),
        (
            {"tokenizer": "byte"},
            "data.tokenizer = 'byte' is not one of bytes, characters, bpe.*did you mean bytes",
        ),
        ({"path": {"a": 1.0}, "corpus": "python"}, "give weights to both"),
        (
            {"corpus": "albert-intrinsic"},
            "data.corpus = albert-intrinsic needs data.path: the files of SQuAD and RACE",
        ),
        (
            {"corpus": ("albert-intrinsic", "c4"), "path": "a"},
            "albert-intrinsic reads data.path, so it is not mixed",
        ),
        (
            {"corpus": "albert-intrinsic", "path": {"a": 1.0}},
            "albert-intrinsic reads data.path, so it is not mixed",
        ),
        (
            {"path": {"a": 1.0}, "windows": "shuffled"},
            "data.windows = shuffled contradicts the weights of data.path",
        ),
    ],
)
def test_contradictions_are_refused_in_one_line(values, message):
    with pytest.raises(ConfigError, match=message) as raised:
        DataConfig(**values)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["some/tokenizer.json", "some/spiece.model", "some/vocab.txt"])
def test_a_tokenizer_may_be_a_file(name):
    assert DataConfig(tokenizer=name).tokenizer == name


def test_sources_have_names_however_they_are_written():
    assert source_names(None) == ()
    assert source_names("a") == ("a",)
    assert source_names(("a", "b")) == source_names({"a": 1.0, "b": 2.0}) == ("a", "b")
