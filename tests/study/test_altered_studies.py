"""A study of which any file is altered: one line of error, or the same verdict as before."""

import json
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from sublayer import cli
from tests.alterations import alterations, copy
from tests.at_length import at_length

TINY = [
    *("model.n_layers=1", "model.d_model=8", "model.n_heads=2", "data.context=16", "train.steps=2"),
    *("train.batch_sequences=2", "train.precision=float32", "train.threads=1"),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study, beside its text."""
    folder = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        (folder / "text.txt").write_text(
            "The cat sat on the mat. Another dog ran over the fields.\n" * 40
        )
        assert cli.main(words(folder, folder / "study")) == 0
        yield folder / "study"


def words(place: Path, out: Path) -> list[str]:
    text = f"data.path={place / 'text.txt'}"
    options = ["--vary", "model.ffn=gelu,relu", "--match", "none", "--seeds", "3"]
    return ["compare", "gpt", text, *TINY, *options, "--out", str(out)]


def alter_and_compare(study: Path, capsys, number: int, alteration) -> None:
    altered = copy(study, study.parent / "altered")
    files = sorted(
        path for path in altered.rglob("*") if path.is_file() and "tensorboard" not in path.parts
    )
    path = files[number % len(files)]
    alteration(path)
    code = cli.main(words(study.parent, altered))
    said = capsys.readouterr().err
    assert code in (cli.DONE, cli.MISTAKE, cli.FAILED) and "Traceback" not in said
    if code != cli.DONE:
        lines = said.splitlines()
        assert (
            lines[-1].startswith("error: ")
            and sum(line.startswith("error: ") for line in lines) == 1
        )


_EXAMPLE = {"number": st.integers(0, 10**6), "alteration": alterations()}
_SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@given(**_EXAMPLE)
@settings(max_examples=2, suppress_health_check=_SHARED)
def test_an_altered_study_is_one_line_of_error_or_goes_on(
    study, capsys, number, alteration
) -> None:
    alter_and_compare(study, capsys, number, alteration)


@pytest.mark.slow
@given(**_EXAMPLE)
@at_length(40, suppress_health_check=_SHARED)
def test_altered_studies_at_length(study, capsys, number, alteration) -> None:
    alter_and_compare(study, capsys, number, alteration)


def test_a_metric_that_became_a_list_is_refused_by_name(study, capsys) -> None:
    altered = copy(study, study.parent / "altered")
    path = altered / "arms" / "0-ffn=gelu" / "seed-0" / "test.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "bits_per_byte": []}))
    assert cli.main(words(study.parent, altered)) in (cli.MISTAKE, cli.FAILED)
    assert "test.json is damaged: bits_per_byte is no number: remove" in capsys.readouterr().err
