"""Budgets as they came: in the headline, the conditions, the tables, the JSON and the notes."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sublayer.commands.runs.comparison_row import _headline
from sublayer.commands.shared.comparison import render
from sublayer.study.findings.budgets import arm_budgets
from sublayer.study.judgement.contrast import Contrast
from sublayer.study.judgement.judge import judge
from sublayer.study.report.budget_words import (
    describe_excess,
    describe_largest,
    time_caveats,
)
from sublayer.study.report.html import render_report
from sublayer.study.report.messages import conditions, headline, statements
from sublayer.study.results import Results
from sublayer.study.results_json import results_to_json
from tests.wrapping import unwrapped

Synthetic = Callable[..., Results]


def plain(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def taking(
    results: Results,
    name: str,
    *,
    parameters: float = 1.0,
    operations: float | None = 1.0,
    planned: float = 1.0,
    seconds: float = 1.0,
) -> Results:
    """Let an arm take so many times what all arms take."""
    arms = []
    for arm in results.arms:
        if arm.name == name:
            costs = arm.costs
            usual, time = costs.operations, costs.training_seconds
            assert usual is not None and time is not None
            costs = replace(
                costs,
                operations=None if operations is None else operations * usual,
                planned_operations=planned * usual,
                training_seconds=seconds * time,
            )
            total = arm.parameters["total"]
            assert total is not None
            size = round(parameters * total)
            arm = replace(arm, costs=costs, parameters={**arm.parameters, "total": size})
        arms.append(arm)
    return replace(results, arms=tuple(arms))


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.12, "12 % more operations"),
        (-0.12, "12 % fewer operations"),
        (0.00512, "0.5 % more operations"),
        (0.0943, "9.4 % more operations"),
        (0.97, "97 % more operations"),
        (1.0, "2.0 times the operations"),
        (3.8, "4.8 times the operations"),
        (4321.0, "4,322 times the operations"),
        (-0.6, "60 % fewer operations"),
        (-0.9997, "99.9 % fewer operations"),
        (-1.0, "100.0 % fewer operations"),
    ],
)
def test_an_excess_is_a_few_words(share: float, words: str) -> None:
    assert plain(describe_excess({"operations": share})) == words


def test_several_currencies_are_joined() -> None:
    assert describe_excess({}) == ""
    both = describe_excess({"parameters": -0.03, "operations": 0.2})
    assert plain(both) == "3.0 % fewer parameters and 20 % more operations"
    three = describe_excess({"parameters": 0.1, "operations": 0.2, "time": -0.3})
    assert plain(three) == "10 % more parameters, 20 % more operations and 30 % less time"


def test_the_headline_of_one_comparison_says_with_what_it_came(synthetic_results: Synthetic):
    results = synthetic_results({"relu": 0.0, "gelu": -0.02}, sd=1e-4)
    equal = headline(results)
    assert re.fullmatch(r"gelu is better than relu by 0\.0\d+ bits per byte", equal)
    more = taking(results, "gelu", operations=1.12, planned=1.12)
    assert plain(headline(more)) == f"{equal}, with 12 % more operations"
    [statement] = statements(more)
    assert plain(str(statement)).endswith("; with 12 % more operations.")
    within = taking(results, "gelu", operations=1.004, parameters=0.996)
    assert headline(within) == equal
    assert str(statements(within)[0]) == str(statements(results)[0])


def test_the_headline_of_many_arms_says_the_largest_differences(synthetic_results: Synthetic):
    results = synthetic_results({"base": 0.0} | {f"arm{index}": 0.5 for index in range(6)})
    assert headline(results) == "Of 6 arms compared with base: 6 worse"
    wider = taking(results, "arm2", parameters=1.48, operations=1.02)
    wider = taking(wider, "arm4", parameters=1.2, operations=0.99)
    assert plain(headline(wider)) == (
        "Of 6 arms compared with base: 6 worse; budgets differ by up to 48 % in parameters and "
        "2.0 % in operations"
    )
    # A tenth is further from the whole than twice as much.
    narrower = taking(taking(results, "arm1", operations=0.1), "arm3", operations=2.0)
    assert (
        plain(describe_largest(narrower)) == "budgets differ by up to a factor of 10 in operations"
    )


def test_what_differs_on_purpose_is_said_as_well(synthetic_results: Synthetic):
    results = replace(synthetic_results({"6 layers": 0.0, "12 layers": -0.02}), match="none")
    deeper = taking(results, "12 layers", parameters=1.96, operations=1.8, planned=1.8)
    assert plain(headline(deeper)).endswith("with 96 % more parameters and 80 % more operations")
    page = plain(render_report(deeper))
    assert page.count('class="mark">+') == 2
    assert conditions(deeper).startswith("With no budget matched")


def test_one_seed_has_no_verdict_and_budgets_all_the_same(synthetic_results: Synthetic):
    results = taking(synthetic_results({"a": 0.0, "b": 0.1}, n_seeds=1), "b", operations=1.5)
    said = "One seed: values, no verdict; budgets differ by 50 % in operations"
    assert plain(headline(results)) == said


def test_what_was_meant_to_be_equal_and_is_not_is_not_called_so(synthetic_results: Synthetic):
    results = synthetic_results()
    assert conditions(results).startswith("At equal parameters")
    wider = taking(results, "macaron", parameters=1.0072)
    assert conditions(wider).startswith("Matched by parameters, no setting tuned")
    slower = taking(replace(results, match="time"), "macaron", seconds=1.02)
    assert conditions(slower).startswith("At equal time")
    slower = taking(replace(results, match="time"), "macaron", seconds=1.04)
    assert conditions(slower).startswith("Matched by time")
    unknown = taking(replace(results, match="flops"), "macaron", operations=None)
    assert conditions(unknown).startswith("Matched by operations")


def test_each_arm_is_held_against_its_own_control(synthetic_results: Synthetic):
    results = synthetic_results({"a": 0.0, "a wide": 0.1, "b": 0.0, "b wide": 0.1})
    values = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in results.arms}
    against = {"b": "b", "b wide": "b"}
    judged = judge("a", values, results.metric, planned_seeds=5, against=against)
    results = replace(results, differences=judged.differences)
    results = taking(results, "b", parameters=2.0)
    results = taking(results, "b wide", parameters=2.5)
    budgets = {each.arm: each for each in arm_budgets(results)}
    assert [budgets[name].against for name in ("a", "a wide", "b", "b wide")] == [
        None,
        "a",
        None,
        "b",
    ]
    assert budgets["b wide"].realised.parameters == pytest.approx(0.25)
    assert '<th scope="row">b wide, against b</th>' in render_report(results)


def test_contrasts_beside_the_arms_have_the_budgets_of_two_arms_and_none_of_more(
    synthetic_results: Synthetic,
):
    results = synthetic_results({"a": 0.0, "b": 0.1, "c": 0.2, "d": 0.3})
    values = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in results.arms}
    further = [
        Contrast("c", "b", {"c": 1.0, "b": -1.0}),
        Contrast("a − b − c + d", "", {"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0}),
    ]
    judged = judge("a", values, results.metric, planned_seeds=5, further=further)
    results = taking(replace(results, differences=judged.differences), "b", operations=0.5)
    *_, pair, several = statements(results)
    assert plain(str(pair)).endswith("; with 2.0 times the operations.")
    assert "operations" not in str(several)
    assert str(several).startswith("a − b − c + d cannot be told from 0: ")
    assert "against \n" not in render(results, Path("report.html"))
    assert plain(headline(results)).endswith("differ by up to a factor of 2.0 in operations")
    page = render_report(results)
    assert '<th scope="row">c, against b</th>' in page
    assert [each.against for each in arm_budgets(results)] == [None, "a", "a", "a"]


def test_the_tables_have_both_currencies_planned_and_realised(
    synthetic_results: Synthetic, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "100")
    results = taking(
        synthetic_results(), "macaron", parameters=1.0072, operations=1.1, planned=1.05
    )
    text = render(results, Path("report.html"))
    table = text[text.index("beyond gpt") :].partition("\n\n")[0]
    lines = [re.sub(r" {2,}", "|", line) for line in plain(table).splitlines()]
    assert lines[0] == "beyond gpt|parameters|operations"
    assert lines[2:5] == [
        "swiglu|0 %|0 %",
        "macaron|+0.72 % !|+10.00 % (planned +5.00 %) !",
        "positions=none|0 %|0 %",
    ]
    assert lines[5] == "! not equal: differs by more than 0.5 %"
    assert unwrapped(text).startswith("Matched by parameters, no setting tuned")
    assert "differ by up to 0.7 % in parameters and 10 % in operations: " in plain(unwrapped(text))
    page = plain(render_report(results))
    section = page.partition("<h2>Budgets</h2>")[2].partition("</section>")[0]
    assert re.findall(r'class="mark">([^<]*)<', section)[:2] == [
        "+0.72 % ▲",
        "+10.00 % (planned +5.00 %) ▲",
    ]
    assert "of measured time" not in section
    content = results_to_json(results, Path("report.html"))
    first, _, macaron, _ = content["arms"]
    assert first["excess"]["against"] is None
    assert macaron["excess"]["planned"]["operations"] == pytest.approx(0.05)
    assert macaron["excess"]["realised"]["operations"] == pytest.approx(0.1)
    assert macaron["excess"]["realised"]["time"] is None
    said = "budgets differ by up to 0.7 % in parameters and 10 % in operations"
    assert content["budgets"] == said
    # What lists comparisons reads it there.
    assert _headline(content).endswith(
        f"macaron cannot be told from gpt; positions=none is worse than gpt; {said}"
    )


@pytest.mark.slow
def test_of_what_no_run_has_ended_the_plan_stands_alone(synthetic_results: Synthetic):
    results = taking(synthetic_results({"a": 0.0, "b": 0.1}), "b", operations=None, planned=1.5)
    page = plain(render_report(results))
    assert "<td>– (planned +50.00 %)</td>" in page
    assert describe_largest(results) == ""


def test_equal_arms_have_no_mark_and_no_legend_of_one(synthetic_results: Synthetic):
    results = synthetic_results()
    assert describe_largest(results) == ""
    page = render_report(results)
    assert 'class="mark"' not in page
    assert "! not equal" not in render(results, Path("report.html"))


def test_time_is_a_currency_where_it_was_matched_and_noise_is_none(synthetic_results: Synthetic):
    results = synthetic_results({"BERT": 0.0, "ALBERT": 0.1, "wide": 0.2})
    longer = taking(results, "ALBERT", seconds=1.062)
    assert time_caveats(longer) == []
    assert arm_budgets(longer)[1].realised.time is None
    timed = replace(longer, match="time")
    timed = taking(timed, "wide", seconds=0.98)
    assert arm_budgets(timed)[1].realised.time == pytest.approx(0.062)
    said = "; budgets differ by up to 6.2 % in training time"
    assert plain(headline(timed)).endswith(said)
    [caveat] = time_caveats(timed)
    assert plain(caveat) == (
        "Arms were matched by the seconds of a step before the runs, and did not train for equal "
        "time: ALBERT 6.2 % longer than BERT (medians over seeds; what is within 3 % is taken for "
        "the clock's noise). Their verdicts are not at equal time."
    )
    assert time_caveats(taking(timed, "ALBERT", seconds=1.0 / 1.062)) == []
    page = plain(render_report(timed))
    assert '<th scope="col">training time</th>' in page
    assert "of measured time more than 3 %" in page
