"""Ledgers: what looks may spend, how often loops err, and files that are refused or shared."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_rel

import sublayer
from sublayer.errors import SublayerError
from sublayer.judging import ledger as ledgers
from sublayer.judging.ledger import ERROR, LedgerPlan, looks_to_share, open_ledger, runs_of
from sublayer.statistics.contrasts import Difference

OF_FILE = LedgerPlan("loss", is_lower_better=True)
PLAN = replace(OF_FILE, looks=4)
BASE = runs_of("base", {0: 1.0, 1: 1.1, 2: 1.2})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "loop.jsonl"


def candidate(number, name="new"):
    return runs_of(name, {0: number, 1: number + 0.1, 2: None})


def look_at(path, *runs, verdict="cannot tell", plan=PLAN, base=BASE):
    with open_ledger(path, plan) as ledger:
        ledger.level_for(runs, base)
        found = (Difference(each.name, base.name, (0, 1), -0.1, verdict=verdict) for each in runs)
        return ledger.record([*found])


def test_looks_share_what_is_left_and_a_keep_has_its_spending_returned(path):
    first = look_at(path, candidate(1))
    assert (first.level, first.spending, first.left) == (0.025, 0.0125, 0.0375)
    second = look_at(path, candidate(2), verdict="better")
    assert (second.level, second.left, second.kept) == (0.025, 0.0375, ("new",))
    several = look_at(path, candidate(3, "a"), candidate(4, "b"), base=candidate(2, "champion"))
    assert several.spending == 0.01875
    assert several.level == pytest.approx(1 - (1 - 0.01875) ** 2)
    assert several.champion_is == "kept"
    again = look_at(path, candidate(3, "a"), runs_of("b", {**dict.fromkeys(range(5), 2.0)}))
    assert (again.number, again.champion_is) == (4, "former")
    with pytest.raises(SublayerError, match="all 4 looks"):
        look_at(path, candidate(5))
    # The first line is the plan; a plan that is not repeated is the file's.
    repeated = look_at(path, candidate(1, "renamed"), plan=OF_FILE)
    assert (repeated.number, repeated.is_repeated, repeated.level) == (1, True, 0.025)
    assert len(path.read_text().splitlines()) == 5
    with pytest.raises(SublayerError, match="look 1"):
        look_at(path, candidate(1), verdict="better")


@given(st.lists(st.booleans(), min_size=100, max_size=300))
def test_no_look_has_less_than_bonferroni_and_all_that_keep_nothing_spend_the_error(keeps):
    for planned in (len(keeps), None):
        left, spent = ERROR, 0.0
        for number, is_kept in enumerate(keeps, start=1):
            spending = left / looks_to_share(number, planned)
            if planned is not None or number <= 100:
                least = ERROR / planned if planned else ERROR / 200
                assert spending >= least * (1 - 1e-9)
            if not is_kept:
                left -= spending
                spent += spending
        assert spent <= ERROR * (1 + 1e-9)


def test_loops_whose_champion_moves_keep_falsely_one_time_in_twenty_at_most():
    rng = np.random.default_rng(3)
    n_loops, n_seeds = 2000, 3
    champion = rng.standard_normal((n_loops, n_seeds))
    mean, left, is_false = np.zeros(n_loops), np.full(n_loops, ERROR), np.zeros(n_loops, dtype=bool)
    for number in range(1, 101):
        gain = 30.0 * (number % 3 == 0)
        runs = mean[:, None] + gain + rng.standard_normal((n_loops, n_seeds))
        spending = left / looks_to_share(number, 100)
        p = ttest_rel(runs, champion, axis=1, alternative="greater").pvalue
        kept = 2 * p <= ledgers.level_of(spending, 1)
        is_false |= kept & (gain == 0)
        left -= spending * ~kept
        mean += gain * kept
        champion[kept] = runs[kept]
    n_false = int(is_false.sum())
    assert binomtest(n_false, n_loops).proportion_ci().low <= ERROR
    assert n_false > n_loops * ERROR / 4  # it is spent, too


@pytest.mark.parametrize("damage, message", [
    (lambda lines: b"".join(lines)[:-9], "line 3 is cut off"),
    (lambda lines: lines[0] + lines[2], "line 2 does not match its seal"),
    (lambda lines: b"".join(lines).replace(b"0.5", b"0.4"), "line 2 does not match"),
    (lambda lines: b"".join(lines).replace(b": 4,", b": 9,", 1), "line 1 does not"),
    (lambda lines: lines[0] + lines[1].strip() + lines[2], "line 2 is not JSON"),
    (lambda lines: b"seed,loss\n0,1.5\n", "is not a ledger"),
    (lambda lines: b"".join(lines).replace(b": 1,", b": 2,", 1), "version 2"),
])  # fmt: skip
def test_a_damaged_ledger_is_refused_and_left_as_it_is(damage, message, path):
    for number in (0.5, 2):
        look_at(path, runs_of("new", {0: number, 0.5: 1.0}))
    path.write_bytes(before := damage(path.read_bytes().splitlines(keepends=True)))
    with pytest.raises(SublayerError, match=message):
        look_at(path, candidate(3))
    assert path.read_bytes() == before


@pytest.mark.parametrize("changed, message", [
    ({"metric": "accuracy"}, "metric loss, not metric accuracy"),
    ({"is_lower_better": False}, "lower is better, not higher"),
    ({"margin": 0.1}, "no margin, not a margin of 0.1"), ({"looks": 5}, "4 looks, not 5"),
    ({"looks": 0}, "--looks 0"),
])  # fmt: skip
def test_another_plan_is_refused(changed, message, path):
    look_at(path, candidate(1))
    with pytest.raises(SublayerError, match=message):
        look_at(path, candidate(2), plan=replace(PLAN, **changed))


def test_a_ledger_without_looks_leaves_nothing_behind(tmp_path):
    def interrupt(path):
        with open_ledger(path, PLAN) as ledger:
            ledger.level_for([candidate(1)], BASE)
            raise SublayerError("the runs cannot be judged")

    for path in (tmp_path / "loop.jsonl", tmp_path / "no" / "loop.jsonl", tmp_path):
        with pytest.raises(SublayerError):
            interrupt(path)
    assert list(tmp_path.iterdir()) == []
    empty = tmp_path / "made-by-mktemp"
    empty.touch()
    with pytest.raises(SublayerError):
        interrupt(empty)
    assert empty.read_bytes() == b""
    assert look_at(empty, candidate(1)).number == 1


def test_processes_that_share_a_ledger_take_looks_in_turn(path):
    program = """if True:
        import sys
        from pathlib import Path
        from sublayer.statistics.contrasts import Difference
        from sublayer.judging.ledger import LedgerPlan, open_ledger, runs_of
        for number in range(10):
            new = runs_of("new", {0: float(sys.argv[2]), 1: float(number)})
            with open_ledger(Path(sys.argv[1]), LedgerPlan("loss", True)) as ledger:
                ledger.level_for([new], runs_of("base", {0: 0.5}))
                ledger.record([Difference("new", "base", (0,), 0.1)])
    """
    command = [sys.executable, "-c", program, str(path)]
    started = [subprocess.Popen([*command, str(number)]) for number in range(3)]
    assert [each.wait() for each in started] == [0, 0, 0]
    look = look_at(path, candidate(7), plan=OF_FILE)
    assert (look.number, len(path.read_bytes().splitlines())) == (31, 32)
    assert look.left == pytest.approx(ERROR * (1 - 31 / 200))


def test_judge_takes_its_level_from_a_ledger_and_a_mistake_spends_nothing(path):
    base, new = (np.random.default_rng(n).normal(4.0 - n, 0.1, 8) for n in (1, 2))
    asked = {"lower_is_better": True, "ledger": path, "looks": 100}
    kept = sublayer.judge({"base": base, "new": new}, **asked)
    assert (kept.exit_code, kept.level, kept.in_loop.kept) == (0, 0.001, ("new",))
    for scores, look in (({"base": new, "a": base[:2]}, None), ({"base": new, "a": base}, 2)):
        with pytest.raises(SublayerError):
            sublayer.judge(scores, look=look, **asked)
    both = sublayer.judge({"base": new, "a": base, "b": base + 1}, **asked)
    assert (both.exit_code, both.in_loop.number, both.in_loop.champion_is) == (12, 2, "kept")
    assert both.level == pytest.approx(ledgers.level_of(both.in_loop.spending, 2))
    assert "look 2 of 100 in loop.jsonl" in str(both)
