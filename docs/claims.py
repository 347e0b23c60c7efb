"""Write the page of claims, ``claims.md``, and the tables of records in other pages.

``python docs/claims.py``, after ``python benchmarks/judge_again.py records/*``. Claims are those of
``records/claims.toml``; differences, intervals and verdicts are those of each record's
``judged.json``: none is written by hand. Another page has a table between the comments ``<!--
record: NAME -->``, perhaps with further columns, and ``<!-- end -->``.
"""

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sublayer.statistics.contrasts import CONFIDENCE
from sublayer.statistics.looks import detectable_effect, seeds_for

PAGES = Path(__file__).parent
PAGE = Path(__file__).parent / "claims.md"
RECORDS = Path(__file__).parent.parent / "records"
_MINUS = "\N{MINUS SIGN}"
_TODAY = {"undecided": "cannot tell"}
"""Today's names of the verdicts of earlier versions."""
_SHORT = {"nats per target token": "nats", "nats per token": "nats", "bits per byte": "bits"}
_DECIMALS = {"points": 1, "BLEU": 2}
"""Of a shown difference, by the first word of its unit; 3 of all others."""
_LABELS = {
    "bits_per_byte": "bits per byte",
    "loss": "nats",
    "bleu": "BLEU",
    "sacrebleu": "BLEU of text",
    "chrf": "chrF",
    "Avg": "average of four tasks",
    "sst2": "SST-2",
    "mlm_accuracy": "masked tokens, %",
    "nsp_accuracy": "next sentence, %",
    "sop_accuracy": "sentence order, %",
}
_OPPOSITE = {"better": "worse", "worse": "better"}

_HEAD = """\
# Claims of the papers

Each claim of the five papers, and of modifications since: the published value, the measurement
here, its verdict, and the cost of a run that could decide it.

Models here have 0.1 to 5.3 million parameters and were trained for seconds to an hour and a half,
while GPT-1 has 117 million and the character Transformer 219 million: "cannot tell" is the usual
verdict, and no row says that a paper is wrong. `python docs/claims.py` writes this page from
`records/claims.toml` and each record's `judged.json`: no verdict is written by hand, and all
records are judged by today's rule ([verdicts](verdicts.md)).

- *Difference*: the first arm minus the second, with its interval. One seed gives neither interval
  nor verdict; a secondary metric gives no verdict. In a study with several looks, the difference is
  that of the look which decides by today's rule, which may be earlier than the last.
- *Verdict*: the verdict on the arms, and whether it is *as claimed*, *the reverse* or *below the
  margin*. Some comparisons are no test of the claim.
- *At first*: interval and verdict in the record's own `results.json`.
- *Level*: the probability of a false verdict that a look spends, shared by all of its comparisons.
- *Published effect*: the paper's effect, in the unit of the difference, and whether it lies
  inside the interval. Some are of another metric, or of another comparison.
- *Seeds to find it*: the number of seeds of each arm that detects a difference as large as the
  published effect, or as the margin if there is none, with a power of 80 %, at the spread that the
  record estimates.
- *Not run*: hours of all runs of the study's file, tuning included, on one core of two, as
  extrapolated by `sublayer plan STUDY --scale SCALE --measure` from a minute of steps.
"""


def claims_page() -> str:
    """Lay out all claims, paper by paper."""
    asked = tomllib.loads((RECORDS / "claims.toml").read_text(encoding="utf-8"))
    lines = [_HEAD]
    for paper in asked["paper"]:
        claims = [claim for claim in asked["claim"] if claim["paper"] == paper["number"]]
        lines += [f"## {paper['title']}", "", f"{paper['by']}; [its page]({paper['page']}).", ""]
        lines += _judged_table(claims)
        lines += _records_table(claims, asked["record"])
        lines += _not_run_table(claims)
    return "\n".join(lines)


def _judged_table(claims: list[dict[str, Any]]) -> Iterator[str]:
    if not any("judged" in claim or "computed" in claim for claim in claims):
        return
    headings = ("claim", "published", "record, arms", "difference", "verdict", "at first")
    yield f"| {' | '.join(headings)} | published effect | seeds to find it |"
    yield f"|{' --- |' * 7} ---: |"
    for claim in claims:
        first = [f"{claim['says']} ({claim['source']})", claim["published"]]
        rows = [_judged_cells(claim, row) for row in claim.get("judged", ())]
        if "computed" in claim:
            rows.insert(0, _computed_cells(claim["computed"]))
        for row in rows:
            yield f"| {' | '.join([*first, *row])} |"
            first = ["", ""]
    yield ""


def _judged_cells(claim: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    record = _Record.of(row["record"])
    metric = record.metric(row.get("metric"))
    found = _difference(metric["differences"], row)
    unit = metric["unit"]
    verdict = _TODAY.get(found["verdict"], found["verdict"])
    here = f"{record.link}: {_arms(row)}"
    here += ", secondary metric" if "metric" in row else ""
    return [
        here,
        f"{_interval(found, metric)} {_SHORT.get(unit, unit)}",
        _worded(found) + _agreement(verdict, row) + _excluded(found, metric),
        record.at_first(row, metric),
        _effect_cell(claim, row, found, metric),
        _seeds_cell(row, found, metric),
    ]


def _arms(row: Mapping[str, Any]) -> str:
    if not row["baseline"]:
        return str(row.get("named", row["arm"]))
    return f"{row['arm']} {_MINUS} {row['baseline']}"


def _agreement(verdict: str, row: Mapping[str, Any]) -> str:
    """Return whether a verdict is what the claim asks for."""
    if "no_test" in row:
        return f"; no test of the claim: {row['no_test']}"
    expected = row["expected"]
    if verdict in _OPPOSITE:
        if expected == "not better":
            return ", not as claimed" if verdict == "better" else ", as claimed"
        if expected == "no difference":
            return ", not as claimed"
        return ", as claimed" if verdict == expected else ", the reverse"
    if verdict == "no difference that matters":
        return ", below the margin" if expected in _OPPOSITE else ", as claimed"
    return ""


def _effect_cell(
    claim: Mapping[str, Any],
    row: Mapping[str, Any],
    found: Mapping[str, Any],
    metric: Mapping[str, Any],
) -> str:
    """Return the published effect, and whether the interval holds it."""
    note = f" ({row['effect_is']})" if "effect_is" in row else ""
    if "effect" not in row:
        has_figures = any(map(str.isdigit, claim["published"]))
        return ("none of this comparison" if has_figures else "no figures") + note
    shown = f"{_signed(row['effect'], metric)}{note}"
    if found["low"] is None:
        return shown
    low, high = (found[end] * metric["factor"] for end in ("low", "high"))
    return f"{shown}: {'inside' if low <= row['effect'] <= high else 'outside'}"


def _worded(found: Mapping[str, Any]) -> str:
    """Return a verdict in today's words, and whether it is of this text alone."""
    verdict = _TODAY.get(found["verdict"], found["verdict"])
    is_decided = verdict not in ("cannot tell", "no verdict")
    return f"{verdict}, on this text" if is_decided and found.get("on_this_text") else verdict


def _excluded(found: Mapping[str, Any], metric: Mapping[str, Any]) -> str:
    """Return which differences an undecided comparison excludes."""
    if found["verdict"] != "cannot tell" or found["low"] is None:
        return ""
    size = max(abs(found["low"]), abs(found["high"])) * metric["factor"]
    return f"; differences above {_signed(size, metric, size)[1:]} are excluded"


def _seeds_cell(row: Mapping[str, Any], found: Mapping[str, Any], metric: Mapping[str, Any]) -> str:
    """Return how many seeds find the published effect, or the margin, with a power of 80 %.

    They are those of a study of its own, of one look and as many comparisons (Bonferroni), whose
    variance over seeds, and over items and tuning, is the one that the record estimates.
    """
    named = abs(row["effect"]) / metric["factor"] if "effect" in row else metric.get("margin")
    if named is None or found["standard_error"] is None or "no_test" in row:
        return ""
    parts = found["parts"]
    apart = (parts["items"] or 0.0) ** 2 + parts["tuning"] ** 2
    seeds = max(found["standard_error"] ** 2 - apart, 0.0) * found["n_seeds"]
    level = (1.0 - CONFIDENCE) / len(metric["differences"])

    def detectable(n: int) -> float:
        return detectable_effect(n - 1.0, level) * math.sqrt(seeds / n + apart)

    needed = seeds_for(detectable, named)
    if needed is not None:
        return f"{needed:,}"
    if not apart:
        return "beyond reach"
    return "not by seeds: items and tuning vary more"


def _computed_cells(computed: Mapping[str, Any]) -> list[str]:
    content = json.loads((RECORDS / "arithmetic" / "arithmetic.json").read_text(encoding="utf-8"))
    link = "[`arithmetic`](reference/records.md#arithmetic)"
    return [
        link,
        computed["finds"].format(**_COMPUTED[computed["key"]](content)),
        "computed",
        "",
        "",
        "",
    ]


def _orders(content: Mapping[str, Any]) -> dict[str, str]:
    """Return exponents of the error of one step, and the ratio of errors, over all equations."""
    found = {}
    for splitting, name in (("Lie (Transformer)", "lie"), ("Strang (Macaron)", "strang")):
        for substeps, how in (("exact", "exact"), ("Euler", "euler")):
            slopes = [
                row["slope"]
                for row in content["orders"]
                if (row["splitting"], row["substeps"]) == (splitting, substeps)
            ]
            found[f"{name}_{how}"] = " and ".join(sorted({f"{slope:.2f}" for slope in slopes}))
    errors = {
        (row["equation"], row["splitting"]): row["error"]
        for row in content["orders"]
        if row["substeps"] == "Euler"
    }
    ratios = [
        error / errors[equation, "Lie (Transformer)"]
        for (equation, splitting), error in errors.items()
        if splitting == "Strang (Macaron)"
    ]
    found["ratio"] = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return found


def _sizes(content: Mapping[str, Any]) -> dict[str, float]:
    size = {name: each["parameters"] for name, each in content["sizes"].items()}
    flops = {name: each["flops"] for name, each in content["sizes"].items()}
    control = "iwslt14-small-transformer-paper"
    return {
        "baseline": size[control],
        "more": size["iwslt14-small-macaron-paper"] - size[control],
        "xxlarge": 100 * size["albert-xxlarge"] / size["bert-large"],
        "xxlarge_flops": flops["albert-xxlarge"] / flops["bert-large"],
        "large": size["bert-large"] / size["albert-large"],
        "large_flops": 100 * flops["albert-large"] / flops["bert-large"],
    }


_COMPUTED = {"orders": _orders, "sizes": _sizes}


def _records_table(claims: list[dict[str, Any]], asked: Mapping[str, Any]) -> Iterator[str]:
    names = dict.fromkeys(row["record"] for claim in claims for row in claim.get("judged", ()))
    if not names:
        return
    yield "| record | seeds | level | test | tuned | budget of a run | margin |"
    yield f"|{' --- |' * 7}"
    limits = []
    for name in names:
        record = _Record.of(name)
        cells = (
            record.seeds,
            record.level,
            record.test(asked[name]),
            record.tuned,
            record.budget(asked[name]),
            record.margin(asked[name]),
        )
        yield f"| {record.link} | {' | '.join(cells)} |"
        limits += [f"- `{name}`: {limit}" for limit in asked[name].get("limits", ())]
    yield from ("", *limits, "")


def _not_run_table(claims: list[dict[str, Any]]) -> Iterator[str]:
    rows = [claim for claim in claims if "not_run" in claim]
    if not rows:
        return
    yield "| not run | published | cost |"
    yield "| --- | --- | --- |"
    for claim in rows:
        own = claim["not_run"]
        parts = []
        if "study" in own:
            parts.append(f"`{own['study']} --scale {own['scale']}`")
        if "what" in own:
            parts.append(own["what"])
        if "hours" in own:
            left_out = ", fine-tunings not counted" if "tasks_not_counted" in own else ""
            parts.append(f"{own['runs']} runs, {own['hours']:g} hours of one core{left_out}")
        yield f"| {claim['says']} ({claim['source']}) | {claim['published']} | {'; '.join(parts)} |"
    yield ""


def with_tables(text: str) -> str:
    """Return a page with its tables of records as these are judged today."""

    def table(match: re.Match[str]) -> str:
        name, *columns = match["asked"].split()
        lines = [match["begin"], "", *_Record.of(name).table(columns), "", "<!-- end -->"]
        return "\n".join(lines)

    return _TABLES.sub(table, text)


_TABLES = re.compile(r"(?P<begin><!-- record: (?P<asked>[^>]+) -->).*?<!-- end -->", re.DOTALL)


class _Record:
    """A recorded study: its results as they were, and as they are judged today."""

    def __init__(self, name: str) -> None:
        folder = RECORDS / name
        self._results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        self._judged = json.loads((folder / "judged.json").read_text(encoding="utf-8"))
        self.link = f"[`{name}`](reference/records.md#{name})"

    @classmethod
    def of(cls, name: str) -> "_Record":
        """Read a record."""
        return cls(name)

    def metric(self, name: str | None) -> dict[str, Any]:
        """Return the judgement of a metric; None: of the one that decides."""
        if name is None:
            return dict(self._judged)
        (found,) = (each for each in self._judged["further"] if each["metric"] == name)
        return dict(found)

    def at_first(self, row: Mapping[str, Any], metric: Mapping[str, Any]) -> str:
        """Return the interval and the verdict that the record had when it was made."""
        differences = self._results["differences"]
        if "metric" in row:
            further = {each["metric"]: each["differences"] for each in self._results["further"]}
            differences = further[row["metric"]]
        try:
            then = _difference(differences, row)
        except LookupError:
            return "not asked"
        now = _difference(metric["differences"], row)
        verdict = _TODAY.get(then["verdict"], then["verdict"])
        shown = _interval(then, metric)
        return (
            "the same"
            if (shown, verdict) == (_interval(now, metric), now["verdict"])
            else f"{shown} {verdict}"
        )

    @property
    def seeds(self) -> str:
        """The seeds and looks of the verdicts."""
        counts = sorted({each["n_seeds"] for each in self._judged["differences"]})
        shown = " and ".join(map(str, counts))
        looks = self._judged["looks"]
        if looks:
            shown += f", looks at {', '.join(map(str, looks))}"
        return f"{shown}; {self._judged['of'].partition(':')[0]}"

    @property
    def level(self) -> str:
        """The probability of a false verdict at a look, and the comparisons that share it."""
        n = len(self._judged["differences"])
        if self._judged["pairing"] is None:
            return ""
        comparisons = f"{n} comparison{'s' * (n > 1)}"
        return f"{100 * self._judged['level']:.2g} % at a look, {comparisons}"

    def table(self, columns: list[str]) -> Iterator[str]:
        """Lay out the arms: scores, differences, verdicts.

        ``columns`` are further ones: ``parameters``, ``rate``, or metrics beside the one that
        decides.
        """
        metric = self._judged
        shown = {"parameters": "parameters", "rate": "rate"}
        further = [_LABELS.get(name, name) for name in columns if name not in shown]
        extra = [shown[name] for name in columns if name in shown]
        names = ["arm", *extra, _LABELS.get(metric["metric"], metric["metric"]), *further]
        names += ["against", "difference", "verdict"]
        yield f"| {' | '.join(names)} |"
        right = " ---: |" * (len(names) - 4)
        yield f"| --- |{right} --- | --- | --- |"
        for arm in self._results["arms"]:
            cells = [arm["name"]]
            if "parameters" in columns:
                cells.append(f"{arm['parameters']['total']:,}")
            if "rate" in columns:
                cells.append(", ".join(each.partition("=")[2] for each in arm["tuned"]))
            cells.append(_mean(arm["values"], metric["factor"]))
            for name in columns:
                if name not in shown:
                    factor = 100.0 if name.endswith("accuracy") else 1.0
                    cells.append(_mean(arm["further"][name]["values"], factor))
            own = [each for each in metric["differences"] if each["arm"] == arm["name"]]
            for each in own or [None]:
                found = ["", "", ""] if each is None else self._verdict_cells(each)
                yield f"| {' | '.join([*cells, *found])} |"
                cells = [""] * len(cells)

    def _verdict_cells(self, found: Mapping[str, Any]) -> list[str]:
        shown = _interval(found, self._judged)
        return [found["baseline"], shown, _worded(found) + _excluded(found, self._judged)]

    def test(self, asked: Mapping[str, Any]) -> str:
        """The documents and items of the test."""
        found = self._judged["test"]
        if "test" in asked:
            return str(asked["test"])
        documents = f"{found['documents']:,} document{'s' * (found['documents'] != 1)}"
        if found["items"] is None or found["items"] == found["documents"]:
            return documents
        return f"{documents}, {found['items']:,} items"

    @property
    def tuned(self) -> str:
        """By how many trials of an arm its settings were chosen."""
        trials = self._judged["tuned"].values()
        if not trials:
            return "no"
        counts = sorted({len(each["scores"]) for each in trials})
        runs = sorted({each["runs"] for each in trials})
        return f"best of {counts[-1]} rates, {runs[-1]} run{'s' * (runs[-1] > 1)} each"

    def budget(self, asked: Mapping[str, Any]) -> str:
        """Steps and tokens of a run of the baseline, and the share of the paper's, if known."""
        (arm,) = (
            each for each in self._results["arms"] if each["name"] == self._results["baseline"]
        )
        steps, tokens = asked.get("steps", arm["steps"]), asked.get("tokens", arm["tokens"])
        read = f"{steps:,} steps, {tokens / 1e6:.1f} million tokens"
        if "paper_tokens" not in asked:
            return read
        return f"{read}, {100 * tokens / asked['paper_tokens']:.1g} % of the paper's"

    def margin(self, asked: Mapping[str, Any]) -> str:
        """The margin in its unit, and its reason."""
        margin = self._judged["margin"]
        if margin is None:
            return "none was stated"
        unit = self._judged["unit"]
        shown = f"{margin * self._judged['factor']:g} {unit}"
        return f"{shown}: {asked.get('margin_reason', self._results['margin_reason'])}"


def _difference(differences: list[dict[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    """Find the difference of a row; raise LookupError where there is none."""
    for each in differences:
        if (each["arm"], each["baseline"]) == (row["arm"], row["baseline"]):
            return each
    raise LookupError(f"no difference of {row['arm']} and {row['baseline']}")


def _interval(found: Mapping[str, Any], metric: Mapping[str, Any]) -> str:
    if found["mean"] is None:
        return "none"
    mean = found["mean"] * metric["factor"]
    if found["low"] is None:
        return _signed(mean, metric)
    low, high = (found[end] * metric["factor"] for end in ("low", "high"))
    shown = [_signed(value, metric, (high - low) / 2) for value in (mean, low, high)]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def _mean(values: list[float], factor: float) -> str:
    """Write the mean of an arm's seeds and their standard deviation."""
    mean = factor * math.fsum(values) / len(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    sd = math.sqrt(math.fsum((factor * value - mean) ** 2 for value in values) / (len(values) - 1))
    decimals = 2 if mean > 10.0 else 3
    return f"{mean:.{decimals}f} ± {sd:.{decimals}f}"


def _signed(value: float, metric: Mapping[str, Any], half: float | None = None) -> str:
    """Write a shown difference; ``half`` is half its interval, which says how many digits."""
    decimals = _DECIMALS.get(metric["unit"].split()[0], 3)
    if half is not None and half < 1.0:
        decimals = max(decimals, 2)
    return f"{value:+.{decimals}f}".replace("-", _MINUS)


if __name__ == "__main__":
    PAGE.write_text(claims_page(), encoding="utf-8")
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
