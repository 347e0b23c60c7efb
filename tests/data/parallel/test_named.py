"""Parallel corpora by name: divided as their published scripts do, either way round."""

from pathlib import Path
from typing import Any

import pytest

from sublayer.config.data import DataConfig
from sublayer.config.layering.layers import load_recipe, vary
from sublayer.config.text.corpora import PARALLEL_CORPORA as NAMES
from sublayer.data.parallel.named import PARALLEL_CORPORA
from sublayer.data.parallel.sources import PairText, find_pairs, read_pairs
from sublayer.data.text.splitting import SplitName
from sublayer.data.texts import find_texts
from sublayer.errors import ConfigError, DataError

IWSLT = {"de": "Das ist Satz {}.", "en": "This is sentence {}."}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUBLAYER_DATA", str(tmp_path))
    return tmp_path


def write_iwslt(folder: Path, n_pairs: int = 60) -> None:
    place = folder / "iwslt14" / "de-en"
    place.mkdir(parents=True)
    sets = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    for language, text in IWSLT.items():
        lines = [
            "<url>http://www.ted.com/talks/x</url>",
            "<keywords>talks, x</keywords>",
            "<talkid>1</talkid>",
            f"<title>{text.format('title')}</title>",
            f"<description>TED Talk: {text.format('description')}</description>",
            *(f" {text.format(number)} " for number in range(n_pairs - 2)),
        ]
        (place / f"train.tags.de-en.{language}").write_text("\n".join(lines) + "\n")
        end = "&amp; it\N{RIGHT SINGLE QUOTATION MARK}s </seg>"
        for number, name in enumerate(sets):
            segments = (
                f'<seg id="{id_}"> {text.format(10 * number + id_)} {end}\n' for id_ in (1, 2)
            )
            body = f'<doc docid="1">\n<title>no segment</title>\n{"".join(segments)}</doc>'
            xml = f'<?xml version="1.0"?>\n<srcset>{body}</srcset>\n'
            (place / f"IWSLT14.{name}.de-en.{language}.xml").write_text(xml)


def config_of(**fields: Any) -> DataConfig:
    languages = {"source_language": "de", "target_language": "en"}
    return DataConfig(**{"corpus": "iwslt14", **languages, "tokenizer": "word-bpe", **fields})


def pairs_of(data: DataConfig, folder: Path) -> dict[SplitName, list[PairText]]:
    texts = find_texts(data, folder / "cache", is_utf8=True)
    return {split: read_pairs(texts.ranges(split)) for split in ("train", "valid", "test")}


def test_iwslt14_is_divided_as_its_script_does(folder: Path) -> None:
    write_iwslt(folder)
    splits = pairs_of(config_of(), folder)
    assert [len(pairs) for pairs in splits.values()] == [58, 2, 10]
    every = [IWSLT["de"].format("title"), f"TED Talk: {IWSLT['de'].format('description')}"]
    every += [IWSLT["de"].format(number) for number in range(58)]
    assert [pair.source for pair in splits["valid"]] == [every[22], every[45]]
    training = [text for text in every if text not in (every[22], every[45])]
    assert [pair.source for pair in splits["train"]] == training
    assert splits["test"][0].target == "This is sentence 1. & it's"
    assert splits["test"][-1].source == "Das ist Satz 42. & it's"
    # Every 23rd is counted after the filters: the description has more words, so that all behind
    # it come one earlier.
    valid = pairs_of(config_of(max_words=5), folder)["valid"]
    assert [pair.source for pair in valid] == [IWSLT["de"].format(21), IWSLT["de"].format(44)]
    turned = pairs_of(config_of(source_language="en", target_language="de"), folder)["test"]
    sides = [(pair.target, pair.source) for pair in turned]
    assert sides == [(pair.source, pair.target) for pair in splits["test"]]


def test_wmt14_joins_its_texts_and_scores_the_source_side_of_its_test(folder: Path) -> None:
    place = folder / "wmt14" / "training"
    place.mkdir(parents=True)
    names = ("europarl-v7", "commoncrawl", "news-commentary-v12")
    for language in ("de", "en"):
        for name in names:
            (place / f"{name}.de-en.{language}").write_text(f"{name} {language}\n")
        (place / f"newstest2013.{language}").write_text(f"valid {language}\n")
    for side, language in (("src", "en"), ("ref", "de")):
        text = f'<doc sysid="{side}">\n<p><seg id="1">test {language}</seg></p>\n</doc>\n'
        (place / f"newstest2014-deen-{side}.{language}.sgm").write_text(text)
    data = config_of(corpus="wmt14", source_language="en", target_language="de")
    splits = pairs_of(data, folder)
    assert [pair.source for pair in splits["train"]] == [f"{name} en" for name in names]
    assert [(pair.source, pair.target) for pair in splits["test"]] == [("test en", "test de")]
    assert [pair.target for pair in splits["valid"]] == ["valid de"]


def test_missing_files_and_languages_are_refused(folder: Path) -> None:
    assert tuple(PARALLEL_CORPORA) == NAMES
    with pytest.raises(DataError, match=r"iwslt14 is not there: unpack its publisher's files"):
        find_pairs(config_of(), folder / "cache", "train")
    write_iwslt(folder)
    (folder / "iwslt14" / "de-en" / "train.tags.de-en.en").unlink()
    with pytest.raises(DataError, match=r"has no train.tags.de-en.en: unpack all"):
        find_pairs(config_of(), folder / "cache", "train")
    with pytest.raises(ConfigError, match="iwslt14 has de and en, not fr and en"):
        find_pairs(config_of(source_language="fr"), folder / "cache", "train")


@pytest.mark.parametrize(
    ("recipe", "settings", "field"),
    [
        ("iwslt14-small-transformer", ["data.corpus=enwik8"], "data.corpus = enwik8 has no trans"),
        (
            "iwslt14-small-transformer",
            ["data.corpus=iwslt14", "data.source_path=a", "data.target_path=b"],
            "data.corpus = iwslt14 and a path both name pairs",
        ),
        ("gpt", ["data.corpus=wmt14"], "data.corpus = wmt14 is translations"),
    ],
)
def test_recipes_that_contradict_their_corpus_are_refused(recipe, settings, field) -> None:
    with pytest.raises(ConfigError, match=field):
        load_recipe(recipe, settings)


def test_files_of_pairs_replace_a_recipes_corpus() -> None:
    files = ["data.source_path=a", "data.target_path=b"]
    loaded = load_recipe("iwslt14-small-transformer", files)
    data = loaded.recipe.data
    assert (data.corpus, data.source_path, data.target_path) == (None, "a", "b")
    for key, value in (("data.path", "pairs.tsv"), ("data.corpus", "iwslt14")):
        other = vary(loaded, {key: value}).recipe.data
        assert (other.source_path, other.target_path) == (None, None)
        assert {"data.path": other.path, "data.corpus": other.corpus}[key] == value
