"""Corpora of translations are read from files as their publishers lay them out."""

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
        for number, name in enumerate(
            ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
        ):
            segments = "\n".join(
                f'<seg id="{each}"> {text.format(10 * number + each)} '
                "&amp; it\N{RIGHT SINGLE QUOTATION MARK}s </seg>"
                for each in (1, 2)
            )
            body = (
                f'<srcset><doc docid="1">\n<title>no segment</title>\n{segments}\n</doc></srcset>\n'
            )
            (place / f"IWSLT14.{name}.de-en.{language}.xml").write_text(
                f'<?xml version="1.0"?>\n{body}'
            )


def config_of(**fields: Any) -> DataConfig:
    given = {
        "corpus": "iwslt14",
        "source_language": "de",
        "target_language": "en",
        "tokenizer": "word-bpe",
        **fields,
    }
    return DataConfig(**given)


def pairs_of(data: DataConfig, split: SplitName, cache: Path) -> list[PairText]:
    return read_pairs(find_texts(data, cache, is_utf8=True).ranges(split))


def test_iwslt14_is_divided_as_its_script_does(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_iwslt(folder)
    splits = {
        name: pairs_of(config_of(), name, folder / "cache") for name in ("train", "valid", "test")
    }
    assert {name: len(pairs) for name, pairs in splits.items()} == {
        "train": 58,
        "valid": 2,
        "test": 10,
    }
    every = [IWSLT["de"].format("title"), f"TED Talk: {IWSLT['de'].format('description')}"]
    every += [IWSLT["de"].format(number) for number in range(58)]
    assert [pair.source for pair in splits["valid"]] == [every[22], every[45]]
    assert [pair.source for pair in splits["train"]] == [
        text for text in every if text not in (every[22], every[45])
    ]
    assert splits["test"][0].target == "This is sentence 1. & it's"
    assert splits["test"][-1].source == "Das ist Satz 42. & it's"
    assert "iwslt14 train: 58 pairs, where its papers have 160,239" in capsys.readouterr().err


def test_every_23rd_is_counted_after_the_filters(folder: Path) -> None:
    write_iwslt(folder)
    valid = pairs_of(config_of(max_words=5), "valid", folder / "cache")
    # The description has more words, so that all behind it come one earlier.
    assert [pair.source for pair in valid] == [IWSLT["de"].format(21), IWSLT["de"].format(44)]


def test_the_other_direction_turns_the_pairs(folder: Path) -> None:
    write_iwslt(folder)
    turned = pairs_of(
        config_of(source_language="en", target_language="de"), "test", folder / "cache"
    )
    plain = pairs_of(config_of(), "test", folder / "cache")
    assert [(pair.target, pair.source) for pair in turned] == [
        (pair.source, pair.target) for pair in plain
    ]


def test_wmt14_joins_its_texts_and_scores_the_source_side_of_its_test(folder: Path) -> None:
    place = folder / "wmt14" / "training"
    place.mkdir(parents=True)
    for language in ("de", "en"):
        for name in ("europarl-v7", "commoncrawl", "news-commentary-v12"):
            (place / f"{name}.de-en.{language}").write_text(f"{name} {language}\n")
        (place / f"newstest2013.{language}").write_text(f"valid {language}\n")
    for side, language in (("src", "en"), ("ref", "de")):
        text = f'<doc sysid="{side}">\n<p><seg id="1">test {language}</seg></p>\n</doc>\n'
        (place / f"newstest2014-deen-{side}.{language}.sgm").write_text(text)
    data = config_of(corpus="wmt14", source_language="en", target_language="de")
    found = {split: pairs_of(data, split, folder / "cache") for split in ("train", "valid", "test")}
    assert [pair.source for pair in found["train"]] == [
        "europarl-v7 en",
        "commoncrawl en",
        "news-commentary-v12 en",
    ]
    assert [(pair.source, pair.target) for pair in found["test"]] == [("test en", "test de")]
    assert [pair.target for pair in found["valid"]] == ["valid de"]


def test_what_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(
        DataError, match=r"iwslt14 is not there: unpack its publisher's files \(https://wit3"
    ):
        find_pairs(config_of(), folder / "cache", "train")
    write_iwslt(folder)
    (folder / "iwslt14" / "de-en" / "train.tags.de-en.en").unlink()
    with pytest.raises(DataError, match=r"has no train.tags.de-en.en: unpack all"):
        find_pairs(config_of(), folder / "cache", "train")
    with pytest.raises(ConfigError, match="iwslt14 has de and en, not fr and en"):
        find_pairs(config_of(source_language="fr"), folder / "cache", "train")


def test_the_names_are_those_of_the_corpora() -> None:
    assert tuple(PARALLEL_CORPORA) == NAMES


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["data.corpus=enwik8"],
            "data.corpus = enwik8 has no translations: give one of iwslt14, wmt14",
        ),
        (
            ["data.corpus=iwslt14", "data.source_path=a", "data.target_path=b"],
            "data.corpus = iwslt14 and a path both name pairs",
        ),
    ],
)
def test_recipes_that_contradict_themselves_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe("iwslt14-small-transformer", settings)


def test_files_of_pairs_replace_a_recipes_corpus() -> None:
    files = ["data.source_path=a", "data.target_path=b"]
    loaded = load_recipe("iwslt14-small-transformer", files)
    data = loaded.recipe.data
    assert (data.corpus, data.source_path, data.target_path) == (None, "a", "b")
    for key, value in (("data.path", "pairs.tsv"), ("data.corpus", "iwslt14")):
        other = vary(loaded, {key: value}).recipe.data
        assert (other.source_path, other.target_path) == (None, None)
        assert {"data.path": other.path, "data.corpus": other.corpus}[key] == value


def test_translations_are_for_translators() -> None:
    with pytest.raises(
        ConfigError, match="data.corpus = wmt14 is translations, which objective.kind = causal"
    ):
        load_recipe("gpt", ["data.corpus=wmt14"])
