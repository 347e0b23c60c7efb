import pytest

from sublayer.config.data import DataConfig
from sublayer.config.text.corpora import source_names
from sublayer.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"corpus": "enwik"}, "data.corpus = 'enwik' .*did you mean enwik8"),
        ({"corpus": ("python", "novels")}, "data.corpus = 'novels'"),
        ({"corpus": {"novels": 1.0}}, "data.corpus = 'novels'"),
        ({"path": {"a": 0.0}}, "the weight 0 of 'a'"),
        ({"path": ()}, "is empty"),
        ({"path": {}}, "is empty"),
        ({"tokenizer": "byte"}, "data.tokenizer = 'byte' .*did you mean bytes"),
        ({"path": {"a": 1.0}, "corpus": "python"}, "give weights to both"),
        ({"corpus": "albert-intrinsic"}, "needs data.path"),
        ({"corpus": ("albert-intrinsic", "c4"), "path": "a"}, "albert-intrinsic reads data.path"),
        ({"corpus": "albert-intrinsic", "path": {"a": 1.0}}, "albert-intrinsic reads data.path"),
        ({"path": {"a": 1.0}, "windows": "shuffled"}, "data.windows = shuffled"),
    ],
)
def test_sources_that_contradict_are_refused(values, words):
    with pytest.raises(ConfigError, match=words):
        DataConfig(**values)


def test_sources_have_names_however_they_are_written():
    assert source_names(None) == ()
    assert source_names("a") == ("a",)
    assert source_names(("a", "b")) == source_names({"a": 1.0, "b": 2.0}) == ("a", "b")
