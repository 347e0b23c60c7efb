"""What a study can find is foreseen as drawn studies find it, and the seeds that would do, do."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.study.definition import Study, load_study
from sublayer.study.foresight import UNKNOWN, foresee
from sublayer.study.judgement.looks import ERROR, Looks, fixed, until_decided
from sublayer.study.question import Question

SPREAD = 0.02


@pytest.fixture
def two_arms() -> Study:
    return load_study("gpt", vary_texts=["model.ffn=gelu,swiglu"])


def said(study: Study, looks: Looks, *, margin: float) -> list[str]:
    question = Question(margin=f"{margin} bits per byte", spread=f"{SPREAD} bits per byte")
    return list(foresee(replace(study, question=question), BITS_PER_BYTE, looks))


def found(lines: list[str]) -> float:
    (line,) = (each for each in lines if "four times in five" in each)
    return float(re.search(r"a difference of ([\d.]+)", line)[1])


def enough(lines: list[str]) -> int | None:
    texts = [each for each in lines if each.startswith("warning: ")]
    return int(re.search(r"about (\d+) seeds would do", texts[0])[1]) if texts else None


@pytest.mark.parametrize("n_seeds", [3, 5, 20])
def test_drawn_studies_of_a_fixed_number_of_seeds_find_it_four_times_in_five(
    two_arms: Study, n_seeds: int
) -> None:
    size = found(said(two_arms, fixed(n_seeds), margin=1.0))
    draws = np.random.default_rng(0).normal(0.0, SPREAD, (20_000, 2, n_seeds))
    # One look spends four fifths of the error, as said where looks are planned.
    p = stats.ttest_ind(draws[:, 0] + size, draws[:, 1], axis=1).pvalue
    assert (p <= 0.8 * ERROR).mean() == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("plan", [fixed, until_decided], ids=["a fixed number", "looks on the way"])
@pytest.mark.parametrize("margin", [0.05, 0.035, 0.02])
def test_as_many_seeds_as_would_do_are_enough_under_the_same_plan(
    two_arms: Study, plan, margin: float
) -> None:
    few = enough(said(two_arms, plan(4), margin=margin))
    assert few is not None and few > 4
    assert enough(said(two_arms, plan(few), margin=margin)) is None
    assert enough(said(two_arms, plan(few - 1), margin=margin)) == few


def test_looks_on_the_way_ask_for_more_seeds_than_one_at_the_end(two_arms: Study) -> None:
    once = enough(said(two_arms, fixed(4), margin=0.02))
    often = enough(said(two_arms, until_decided(4), margin=0.02))
    assert once is not None and often is not None and often > once


def test_without_a_spread_it_is_not_known(two_arms: Study) -> None:
    without = replace(two_arms, question=Question())
    assert UNKNOWN in list(foresee(without, BITS_PER_BYTE, fixed(5)))
