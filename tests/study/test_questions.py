"""What a study asks: a margin in its unit, a hypothesis about its arms, verdicts on either."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.commands.shared.comparison import render
from sublayer.errors import ConfigError
from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study.chain.columns import points_metric
from sublayer.study.from_folder import results_of_folder
from sublayer.study.judgement.judge import judge
from sublayer.study.options import Options
from sublayer.study.question import Hypothesis, Question
from sublayer.study.report.html import render_report
from sublayer.study.report.messages import headline
from sublayer.study.report.spread_words import hypothesis_words
from sublayer.study.results import Results
from sublayer.study.results_json import results_to_json
from sublayer.study.runner import run_study
from tests.study.test_runner import FFN, Study, files, settings, study  # noqa: F401
from tests.wrapping import unwrapped

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
    ("written", "expected"),
    [("0.01", 0.01), (0.01, 0.01), ("0.01 bits per byte", 0.01), ("", None)],
)
def test_a_margin_is_a_number_or_has_the_unit_of_differences(
    written: str | float, expected: float | None
) -> None:
    assert Question(margin=written).margin_of("a study", BITS_PER_BYTE) == expected


def test_a_margin_in_points_is_a_hundredth_of_the_share() -> None:
    accuracy = points_metric("sst2", "SST-2")
    for written in ("0.5 points", "0.5", "1 point"):
        margin = Question(margin=written).margin_of("a study", accuracy)
        assert margin == pytest.approx(float(written.split()[0]) / 100)
    with pytest.raises(ConfigError, match="more than there are points"):
        Question(margin="100 points").margin_of("a study", accuracy)


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


def test_a_hypothesis_about_two_arms_that_are_compared_is_no_further_comparison() -> None:
    values = {
        "a": {0: 1.0, 1: 1.1, 2: 1.2},
        "b": {0: 5.0, 1: 5.1, 2: 5.25},
    }
    judged = judge("a", values, BITS_PER_BYTE, planned_seeds=3)
    assert Hypothesis("", {"a": 2.0, "b": -2.0}).names == ("a", "b")
    # The difference that is judged is b less a, and b is worse: a is better.
    for names, said in ((("a", "b"), "holds"), (("b", "a"), "the contrary holds")):
        results = Results(
            name="",
            title="",
            metric=BITS_PER_BYTE,
            split="test",
            match="none",
            baseline="a",
            n_seeds=3,
            arms=(),
            differences=judged.differences,
            failures=(),
            reproduction=None,  # type: ignore[arg-type]
            hypothesis_of=names,
        )
        found = hypothesis_words(results)
        assert found is not None and found[1] == said
        assert results.of_arms == judged.differences


def interaction(results: Results) -> Results:
    """Return results with a hypothesis about four of their arms, which are far apart."""
    names = [arm.name for arm in results.arms]
    weights = dict(zip(names, (1.0, -1.0, -1.0, 1.0), strict=True))
    contrast = Hypothesis(SAYS, weights).as_contrast
    values = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in results.arms}
    judged = judge(
        names[0], values, results.metric, planned_seeds=results.n_seeds, further=[contrast]
    )
    return replace(
        results,
        differences=judged.differences,
        hypothesis=SAYS,
        hypothesis_of=(contrast.arm, contrast.baseline),
    )


def test_a_contrast_of_four_arms_is_a_row_and_a_sentence_of_its_own(
    synthetic_results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    results = interaction(synthetic_results())
    minus = "\N{MINUS SIGN}"
    name = f"[gpt] {minus} [swiglu] {minus} [macaron] + [positions=none]"
    *of_arms, found = results.differences
    assert (found.arm, found.baseline) == (name, "")
    assert list(results.of_arms) == of_arms
    # 0 + 0.03 - 0.001 + 0.17
    assert found.mean == pytest.approx(0.2, abs=0.02)
    assert found.verdict == "worse"
    said = unwrapped(render(results, Path("report.html")))
    assert f"{name} is worse than 0 by 0.{str(found.mean)[2:4]}" in said
    assert f"Hypothesis, written before the runs: {SAYS} the contrary holds" in said
    page = render_report(results)
    assert f"<strong>{name}</strong> is worse than 0" in page
    assert ">the contrary holds</span>" in page
    assert name not in headline(results)
    assert headline(results).startswith("swiglu is better than gpt; positions=none is worse")
    content = json.loads(json.dumps(results_to_json(results, Path("report.html"))))
    assert content["hypothesis"] == {"says": SAYS, "arm": name, "baseline": ""}
    assert content["differences"][-1]["arm"] == name
    # What the same quality costs is said of two arms.
    assert [each["arm"] for each in content["same_quality"]] != []
    assert len(content["same_quality"]) == len(of_arms)


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
