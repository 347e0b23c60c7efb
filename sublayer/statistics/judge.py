"""Judge a comparison: differences with intervals that hold together, and verdicts."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.objective.metric import Metric
from sublayer.statistics.contrast import Contrast, arm_less
from sublayer.statistics.correlation import correlate
from sublayer.statistics.difference import (
    CONFIDENCE,
    FEWEST_SEEDS,
    Difference,
    Judgement,
    Verdict,
)
from sublayer.statistics.items import ArmEffects, ItemSpread, item_spread
from sublayer.statistics.looks import AT_FIRST, ERROR
from sublayer.statistics.power import seeds_for, spread_interval
from sublayer.statistics.ranks import rank_p
from sublayer.statistics.seeds import SeedSpread, Values, of_seeds
from sublayer.statistics.simultaneous import Family
from sublayer.statistics.tuning import Tuned, choice_variance
from sublayer.statistics.whole_estimate import WholeEstimate


@dataclass(frozen=True)
class Evidence:
    """What a comparison is judged by beside the values of its runs."""

    effects: Mapping[str, ArmEffects] | None = None
    """By arm and seed, how much each unit of the test moves the metric; None or missing: not known.
    """
    failed: Mapping[str, Collection[int]] | None = None
    """The seeds of each arm that ended without a score."""
    scored_elsewhere: Collection[str] = ()
    """Arms that were scored on other items than their baseline: there is no verdict on them."""
    margin: float | None = None
    """Differences smaller than this do not matter, in the metric's unit."""
    tuned: Mapping[str, Tuned] | None = None
    """By arm, what its trials scored, where it was tuned by the metric that is judged."""
    resolution: float = 0.0
    """The smallest step of the metric that is believed, in its unit."""


NO_EVIDENCE = Evidence()


def judge(
    baseline: str,
    values: Values,
    metric: Metric,
    *,
    planned_seeds: int,
    against: Mapping[str, str] | None = None,
    further: Sequence[Contrast] = (),
    n_awaited: int = 0,
    evidence: Evidence = NO_EVIDENCE,
    level: float = AT_FIRST * ERROR,
) -> Judgement:
    """Compare every arm with the baseline, or its arm in ``against``; see ``docs/verdicts.md``.

    ``values`` maps an arm's name to the metric of each seed that finished. All comparisons are one
    family, ``further`` contrasts and those that no run has ended of (``n_awaited``) among them; an
    arm that is against itself is compared with none. ``level`` is the probability of a false
    verdict that this look may spend. Of fewer than three planned seeds there is no verdict. Raises
    ConfigError for no ``planned_seeds``.
    """
    if planned_seeds < 1:
        raise ConfigError(f"seeds = {planned_seeds} is too few to compare: give at least 1")
    against = against or {}
    contrasts = [
        arm_less(arm, against.get(arm, baseline))
        for arm in values
        if against.get(arm, baseline) != arm
    ]
    contrasts += further
    judged = _Judged(values, metric, contrasts, n_awaited, evidence, level, planned_seeds)
    differences = tuple(judged.difference(contrast) for contrast in contrasts)
    return Judgement(differences, judged.pairing, evidence.margin, level)


class _Judged:
    """The comparisons of a family, with what they share."""

    def __init__(
        self,
        values: Values,
        metric: Metric,
        contrasts: Sequence[Contrast],
        n_awaited: int,
        evidence: Evidence,
        level: float,
        planned_seeds: int,
    ) -> None:
        self._values = values
        self._metric = metric
        self._evidence = evidence
        self._level = level
        self._planned = planned_seeds
        self._n_comparisons = len(contrasts) + n_awaited
        self._estimates: dict[str, WholeEstimate] = {}
        choice: dict[str, float] = {}
        self.pairing = None
        if planned_seeds >= FEWEST_SEEDS:
            spread = SeedSpread(values, evidence.resolution)
            self.pairing = spread.pairing
            estimates = spread.estimates(contrasts)
            tuned = evidence.tuned or {}
            choice = {
                arm: choice_variance(own, spread.variance_of(arm)) for arm, own in tuned.items()
            }
            for each in contrasts:
                if each.name in estimates:
                    own = sum(
                        weight**2 * choice.get(arm, 0.0) for arm, weight in each.weights.items()
                    )
                    whole = WholeEstimate(estimates[each.name], self._items(each), own)
                    self._estimates[each.name] = whole
        known = [each for each in contrasts if each.name in self._estimates]
        found = [self._estimates[each.name] for each in known]
        freedoms = [each.freedom for each in found]
        # What is not known yet is counted, as if it varied with none of the others.
        missing = self._n_comparisons - len(known)
        correlation = np.eye(self._n_comparisons)
        if known:
            correlation[: len(known), : len(known)] = correlate(
                known, found, evidence.effects, choice
            )
        usual = float(np.median(freedoms)) if freedoms else 1.0
        self._family = Family(correlation, [*freedoms, *[usual] * missing])
        self._single = self._family.single(level)

    def difference(self, contrast: Contrast) -> Difference:
        """Return what is said of one contrast."""
        paired = of_seeds(self._values, contrast)
        arms = [self._values.get(arm, {}) for arm in contrast.weights]
        mean = None
        if self._planned < FEWEST_SEEDS and paired:
            mean = float(np.mean(list(paired.values())))
        elif all(arms):
            weighted = zip(contrast.weights.values(), arms, strict=True)
            mean = math.fsum(weight * _mean(own) for weight, own in weighted)
        found = Difference(
            contrast.arm,
            contrast.baseline,
            tuple(paired),
            mean,
            n_failed=(self._n_failed(contrast.positive), self._n_failed(contrast.negative)),
            n_seeds=self._planned,
        )
        if self._planned < FEWEST_SEEDS:
            return replace(found, verdict="no verdict")
        whole = self._estimates.get(contrast.name)
        if whole is not None:
            n_now = min(len(own) for own in arms)
            found = self._with_interval(found, whole, n_now)
        if any(found.n_failed):
            found = self._by_ranks(found, contrast)
        if contrast.arm in self._evidence.scored_elsewhere:
            found = replace(found, verdict="no verdict")
        return self._with_missing_seeds(found)

    def _n_failed(self, arms: Sequence[str]) -> int:
        failed = self._evidence.failed or {}
        return sum(len(failed.get(arm, ())) for arm in arms)

    def _with_interval(self, found: Difference, whole: WholeEstimate, n_now: int) -> Difference:
        from scipy.special import stdtr, stdtrit

        mean = whole.seeds.mean
        error, freedom = whole.error, whole.freedom
        half = -float(stdtrit(freedom, self._single / 2)) * error
        p_raw = 2 * float(stdtr(freedom, -abs(mean) / error)) if error else float(mean == 0.0)
        low, high = mean - half, mean + half
        found = replace(
            found,
            mean=mean,
            sd=math.sqrt(whole.seeds.single),
            low=low,
            high=high,
            p=self._over_looks(self._family.adjusted(p_raw)),
            p_raw=p_raw,
            verdict=self._verdict(low, high),
            standard_error=error,
            parts=whole.parts,
            detectable=whole.detectable(1.0, self._single),
        )
        if found.verdict != "cannot tell":
            return found
        narrow, wide = spread_interval(1.0, whole.seeds.freedom)
        fewest, usual, most = (
            self._more_seeds(whole, mean, n_now, scale) for scale in (narrow, 1.0, wide)
        )
        return replace(found, more_seeds=usual, fewest_more_seeds=fewest, most_more_seeds=most)

    def _more_seeds(
        self, whole: WholeEstimate, mean: float, n_now: int, scale: float
    ) -> int | None:
        needed = seeds_for(lambda n: whole.detectable(n / n_now, self._single, scale), mean)
        return None if needed is None else max(1, needed - n_now)

    def _by_ranks(self, found: Difference, contrast: Contrast) -> Difference:
        """Judge by ranks: what failed is the worst, so that no verdict is the survivors' alone."""
        ranked = replace(
            found,
            p=None,
            p_raw=None,
            verdict="cannot tell",
            by_ranks=True,
            more_seeds=None,
            fewest_more_seeds=None,
            most_more_seeds=None,
            detectable=None,
        )
        if not contrast.baseline:
            return ranked
        own, rest = (
            list(self._values.get(arm, {}).values()) for arm in (contrast.arm, contrast.baseline)
        )
        n_failed, n_rest_failed = found.n_failed
        if not (own or n_failed) or not (rest or n_rest_failed):
            return ranked  # of one of them no run has ended
        p_raw, surplus = rank_p(
            own, rest, n_failed, n_rest_failed, is_lower_better=self._metric.is_lower_better
        )
        p = self._over_looks(min(1.0, self._n_comparisons * p_raw))
        verdict: Verdict = "cannot tell"
        if p <= 1.0 - CONFIDENCE:
            verdict = "better" if surplus > 0 else "worse"
        return replace(ranked, p=p, p_raw=p_raw, verdict=verdict)

    def _over_looks(self, p: float) -> float:
        """Return a p that is 0.05 where a look has spent what it may."""
        return min(1.0, p * (1.0 - CONFIDENCE) / self._level)

    def _verdict(self, low: float, high: float) -> Verdict:
        margin = self._evidence.margin
        if margin is not None and -margin < low and high < margin:
            return "no difference that matters"
        if low <= 0.0 <= high:
            return "cannot tell"
        is_lower = high < 0.0
        return "better" if is_lower == self._metric.is_lower_better else "worse"

    def _items(self, contrast: Contrast) -> ItemSpread | None:
        effects = self._evidence.effects
        if effects is None or self.pairing is None:
            return None
        return item_spread(effects, contrast, is_paired=self.pairing.is_paired)

    def _with_missing_seeds(self, found: Difference) -> Difference:
        n_pairs = len(found.seeds)
        if n_pairs == self._planned:
            return found
        note = f"{n_pairs} of {count(self._planned, 'seed')} finished in both arms"
        return replace(found, note=note)


def _mean(values: Mapping[int, float]) -> float:
    return math.fsum(values.values()) / len(values)
