"""What a study asks: a margin in its unit, a hypothesis about its arms, verdicts on either."""

from pathlib import Path

import pytest

from sublayer.errors import ConfigError
from sublayer.study.from_folder import results_of_folder
from sublayer.study.options import Options
from sublayer.study.runner import run_study
from tests.study.test_runner import FFN, Study, files, settings, study  # noqa: F401

SAYS = "Gates help more where the model is wide."
FOUR = """
match = "none"
seeds = 3
{question}
[scale.cpu]
recipe = "gpt"
[scale.cpu.set.model]
n_layers = 1
d_model = 8
n_heads = 2
[scale.cpu.set.data]
context = 16
[scale.cpu.set.train]
steps = 2
batch_sequences = 2
precision = "float32"
threads = 1
[[arms]]
name = "plain"
[[arms]]
name = "gated"
set = {{ model.ffn = "swiglu" }}
[[arms]]
name = "wide"
set = {{ model.d_model = 16 }}
[[arms]]
name = "wide and gated"
set = {{ model.d_model = 16, model.ffn = "swiglu" }}
"""
INTERACTION = (
    f'hypothesis = {{ says = "{SAYS}", contrast = '
    '{ "wide and gated" = 1, wide = -1, gated = -1, plain = 1 } }'
)


def write_study(folder: Path, question: str) -> str:
    path = folder / "four.toml"
    path.write_text(FOUR.format(question=question))
    return str(path)


@pytest.mark.parametrize(
    ("margin", "said"),
    [
        ("-0.1", "margin = -0.1 is not above 0: it is a size, either way"),
        ("0", "margin = 0 is not above 0"),
        ("0.1 BLEU", "told in bits per byte, not in BLEU: give such as .0.1 bits per byte"),
        ("a little", "margin = a little is no number: give such as .0.1 bits per byte"),
        ("nan", "margin = nan is no number"),
        ("inf", "margin = inf is no number"),
    ],
)
def test_a_margin_that_is_none_is_refused_before_anything_is_trained(
    settings: list[str],  # noqa: F811
    margin: str,
    said: str,
) -> None:
    with pytest.raises(ConfigError, match=said):
        run_study(["gpt"], settings, Options(vary=(FFN,), seeds=3, margin=margin))
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (
            'hypothesis = { says = "x", contrast = { gated = 1, plane = -1 } }',
            "the hypothesis is about plane, which is not an arm: there are plain, gated, wide",
        ),
        (
            'hypothesis = { says = "x", contrast = { gated = 1, plain = -0.5 } }',
            "contrast add up to 0.5: give arms weights that add up to 0, such as 1 and -1",
        ),
        (
            'hypothesis = { says = "x", contrast = { gated = 0, plain = 0 } }',
            "contrast add up to 0: give arms weights",
        ),
        ('hypothesis = { says = "x", contrast = { gated = 1 } }', "contrast"),
        ("hypothesis = { contrast = { gated = 1, plain = -1 } }", "says"),
        ('margin = "0.1 points"', "not in points"),
        ('spread = "-1"', "spread = -1 is not above 0"),
        ('also = ["bleu"]', "also = 'bleu' is not"),
    ],
)
def test_a_question_that_does_not_fit_is_refused_before_anything_is_trained(
    settings: list[str],  # noqa: F811
    question: str,
    said: str,
) -> None:
    (text,) = (each for each in settings if each.startswith("data.path"))
    with pytest.raises(ConfigError, match=said):
        run_study([write_study(Path(), question)], [text], Options())
    assert not Path("runs").exists()


@pytest.mark.slow
def test_a_study_of_four_arms_answers_its_hypothesis(settings: list[str]) -> None:  # noqa: F811
    (text,) = (each for each in settings if each.startswith("data.path"))
    source = write_study(Path(), f'{INTERACTION}\nmargin = "9 bits per byte"')
    results, report = run_study([source], [text], Options(out=Path("out")))
    means = {arm.name: arm.mean for arm in results.arms}
    expected = means["wide and gated"] - means["wide"] - means["gated"] + means["plain"]
    *others, found = results.differences
    assert len(others) == 3
    assert found.mean == pytest.approx(expected)
    assert found.verdict == "no difference that matters"
    assert (found.arm, found.baseline) == results.hypothesis_of
    assert results.n_comparisons == 4
    assert found.parts is not None and found.parts.items is not None
    assert SAYS in report.read_text()
    again = results_of_folder(Path("out"))
    assert again.differences == results.differences
    assert (again.hypothesis, again.hypothesis_of) == (results.hypothesis, results.hypothesis_of)
    assert (again.margin, again.margin_reason) == (9.0, "")
    # What decides is what was stated; another number of seeds is not.
    before = files(Path("out"))
    with pytest.raises(
        ConfigError, match="begun with a margin of 9, not a margin of 1, .*-margin 9"
    ):
        run_study([source], [text], Options(out=Path("out"), margin="1"))
    assert files(Path("out")) == before


def test_a_margin_is_not_added_to_a_study_that_has_begun(
    study: Study,  # noqa: F811
    settings: list[str],  # noqa: F811
) -> None:
    copy = study.copied("copy")
    before = files(copy)
    with pytest.raises(ConfigError, match="copy was begun with no margin, not a margin of 0.5"):
        run_study(["gpt"], settings, Options(vary=(FFN,), seeds=3, margin="0.5", out=copy))
    assert files(copy) == before
    # Nor is it begun to be stopped: that has to be planned before.
    until = Options(vary=(FFN,), until="decided", seeds_at_most=5, out=copy)
    with pytest.raises(ConfigError, match="begun with a fixed number of seeds"):
        run_study(["gpt"], settings, until)
    assert files(copy) == before
    # A folder without a report has had its first run, too.
    plan = copy / "study.toml"
    plan.write_text(
        plan.read_text().replace("reported_seeds = [\n    3,\n]", "reported_seeds = []")
    )
    assert "reported_seeds = []" in plan.read_text()
    with pytest.raises(ConfigError, match="begun with no margin"):
        run_study(["gpt"], settings, Options(vary=(FFN,), seeds=3, margin="0.5", out=copy))
