"""Judgement of a comparison: simultaneous intervals, rank tests of failed runs, verdicts."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sublayer.errors import ConfigError
from sublayer.numbers import count
from sublayer.statistics.contrasts import (
    ERROR,
    FEWEST_SEEDS,
    MOST_SEEDS,
    Contrast,
    Difference,
    Judgement,
    Numbers,
    Pairing,
    RunScores,
    Tuned,
    Verdict,
    weights_of,
)
from sublayer.statistics.covariance import FEWEST_DOCUMENTS, ItemSpreads, SeedSpreads, known_spread
from sublayer.statistics.looks import detectable_effect, seeds_for
from sublayer.statistics.simultaneous import Largest, Uncertainty, correlation_of

ALONE = Largest(np.eye(1), 1)
"""A single comparison, without correction."""
_GAP = 3.0
"""Least gap between two clusters of scores, relative to the wider cluster's range."""
_FEWEST_SPLIT = 5
"""Runs per arm from which on two clusters are evidence."""
_FAR = 100.0
"""Gap of two arms over the range of either, above which few runs show no equivalence."""


@dataclass
class ContrastFamily:
    """Contrasts of arms judged as one family; see ``docs/verdicts.md``."""

    scores: RunScores
    contrasts: Sequence[Contrast]
    is_lower_better: bool = field(kw_only=True)
    n_seeds: int = field(kw_only=True)
    """Seeds planned until this look."""
    level: float = ERROR
    """Probability of a false verdict allotted to this look, over all comparisons."""
    next_level: float | None = None
    """The level of the next look, to estimate the further seeds; None: the same."""
    margin: float | None = None
    """The smallest difference that matters, in the metric's unit."""
    n_awaited: int = 0
    """Further comparisons that count in the correction, though none of their runs has ended."""
    tuned: Mapping[str, Tuned] = field(default_factory=dict)
    """Trials of arms tuned by the judged metric."""
    resolution: float = 0.0
    """The smallest step of the metric, in its unit."""
    scored_elsewhere: Collection[str] = ()
    """Arms scored on other items than their baseline: no verdict."""
    over_items: bool = False
    """Judge a single seed of each arm over the test items: a verdict on these trained models only.
    Otherwise fewer than three planned seeds give none."""
    _found: dict[tuple[str, str], Uncertainty] = field(default_factory=dict, init=False)
    _largest: Largest = field(default=ALONE, init=False)
    _by_ranks: bool = field(default=False, init=False)

    @property
    def n_comparisons(self) -> int:
        """Count the comparisons in the correction of intervals and p values."""
        return len(self.contrasts) + self.n_awaited

    @property
    def _has_verdicts(self) -> bool:
        return self.over_items or self.n_seeds >= FEWEST_SEEDS

    def judge(self) -> Judgement:
        """Judge the contrasts.

        Raises ConfigError for no planned seeds, and for a margin that is not above 0.
        """
        if self.n_seeds < 1:
            raise ConfigError(f"seeds = {self.n_seeds} is too few to compare: give at least 1")
        if self.margin is not None and not 0.0 < self.margin < math.inf:
            raise ConfigError(
                f"margin = {self.margin:g} is not above 0: give the size of a difference, in "
                "either direction"
            )
        pairing, scores = None, self.scores
        names = [contrast.baseline for contrast in self.contrasts if contrast.baseline]
        usual_baseline = max(names, key=names.count) if names else ""
        items = ItemSpreads(scores, usual_baseline)
        are_separate = items.are_separate
        if self._has_verdicts and self.over_items:
            for contrast in self.contrasts:
                values = list(contrast.of_seeds(scores).values())
                spread = items.spread(contrast)
                if values and spread is not None:
                    none = known_spread(math.fsum(values) / len(values), 0.0, 1.0, len(values))
                    self._found[contrast.names] = Uncertainty(none, replace(spread, both=0.0))
            covariance = items.covariance(self._known)
        elif self._has_verdicts:
            pairing = _pairing(scores)
            spreads = SeedSpreads(scores, usual_baseline, self.resolution)
            are_separate = are_separate or spreads.are_separate
            self._by_ranks = is_two_valued(scores.values)
            choice = {
                arm: tuned.of_seeds(scores.seeds).choice_variance(
                    spreads.unshared_variance(arm, scores.arms)
                )
                for arm, tuned in self.tuned.items()
            }
            for contrast in self.contrasts:
                over_seeds = spreads.spread(contrast)
                if over_seeds is not None:
                    weights = contrast.weights.items()
                    tuning = math.fsum(weight**2 * choice.get(arm, 0.0) for arm, weight in weights)
                    uncertainty = Uncertainty(over_seeds, items.spread(contrast), tuning)
                    self._found[contrast.names] = uncertainty
            covariance = spreads.covariance(self._known)
            rows = weights_of(self._known, list(choice))
            covariance += (rows * np.array(list(choice.values()))) @ rows.T
            # Over items, less the interaction that seeds contain.
            of_items = [self._found[contrast.names].items for contrast in self._known]
            sds = np.sqrt([0.0 if spread is None else spread.alone for spread in of_items])
            covariance += correlation_of(items.covariance(self._known)) * np.outer(sds, sds)
        if self._has_verdicts:
            self._largest = Largest(np.eye(1), max(1, self.n_comparisons))
            if are_separate:
                self._largest = Largest(None, self.n_comparisons)
            elif len(self._found) > 1:
                self._largest = Largest(correlation_of(covariance), self.n_comparisons)
            self._found = {
                names: uncertainty.calibrated(self.level, self._largest)
                for names, uncertainty in self._found.items()
            }
        differences = tuple(map(self._difference, self.contrasts))
        return Judgement(differences, pairing)

    @property
    def _known(self) -> list[Contrast]:
        return [contrast for contrast in self.contrasts if contrast.names in self._found]

    def _difference(self, contrast: Contrast) -> Difference:
        """Return the verdict on one contrast."""
        scores, n_documents = self.scores, self.scores.n_documents
        paired = contrast.of_seeds(scores)
        n_failed = scores.n_failed(contrast.side(1.0)), scores.n_failed(contrast.side(-1.0))
        mean = contrast.mean_of(scores)
        if not self._has_verdicts and paired:
            mean = math.fsum(paired.values()) / len(paired)
        is_narrow = n_documents is not None and n_documents < FEWEST_DOCUMENTS
        effect = Difference(
            contrast.arm,
            contrast.baseline,
            tuple(paired),
            mean,
            verdict="cannot tell" if self._has_verdicts else "no verdict",
            level=self.level,
            n_items=scores.n_items,
            n_documents=n_documents,
            on_this_text=self._has_verdicts and is_narrow,
            n_failed=n_failed,
            n_seeds=self.n_seeds,
        )
        if not self._has_verdicts:
            return effect
        uncertainty = self._found.get(contrast.names)
        if uncertainty is not None:
            effect = self._with_interval(effect, contrast, uncertainty)
        if any(n_failed) or (self._by_ranks and uncertainty is not None):
            effect = self._with_ranks(effect, contrast)
        if contrast.arm in self.scored_elsewhere:
            effect = replace(effect, verdict="no verdict")
        if len(paired) != self.n_seeds and paired:
            note = f"{len(paired)} of {count(self.n_seeds, 'seed')} finished in both arms"
            effect = replace(effect, note=note)
        return effect

    def _with_interval(
        self, effect: Difference, contrast: Contrast, uncertainty: Uncertainty
    ) -> Difference:
        mean = uncertainty.seeds.mean
        half = uncertainty.half_width(self.level, self._largest)
        low, high = mean - half, mean + half
        # Equivalence is two one-sided tests at the level of the look (Schuirmann 1987). With
        # several arms both ends of the margin may err, so Bonferroni's bound corrects.
        one_sided = min(1.0, 2.0 * self.level / self.n_comparisons)
        inner = min(half, uncertainty.half_width(one_sided, ALONE))
        # Over seeds, of a contrast of single runs.
        paired = list(contrast.of_seeds(self.scores).values())
        sd = float(np.std(paired, ddof=1)) if len(paired) > 1 else None
        runs = [self.scores.scores_of(arm) for arm in contrast.weights]
        if sd is None and all(len(scores) > 1 for scores in runs):
            variance = 0.0
            for weight, values in zip(contrast.weights.values(), runs, strict=True):
                variance += weight**2 * float(values.var(ddof=1))
            sd = math.sqrt(variance)
        single_level = uncertainty.p(half, ALONE)
        detectable = self._detectable(uncertainty, 1.0, single_level)
        effect = replace(
            effect,
            mean=mean,
            sd=sd,
            low=low,
            high=high,
            p=self._over_looks(uncertainty.p(mean, self._largest)),
            p_raw=uncertainty.p(mean, ALONE),
            standard_error=uncertainty.error,
            parts=uncertainty.parts,
            single_level=single_level,
            excluded=max(abs(low), abs(high)),
            equivalent=abs(mean) + inner,
            detectable=detectable,
        )
        scores = self.scores
        pair = scores.scores_of(contrast.arm), scores.scores_of(contrast.baseline)
        luck = 0.0 if self.over_items else separation_p(*pair)  # items need no other seeds
        if luck > self.level:
            effect = replace(effect, p=self._over_looks(luck), p_raw=luck, by_ranks=True)
        verdict: Verdict = "cannot tell"
        if self.margin is not None and abs(mean) + inner < self.margin:
            verdict = "no difference that matters"
        elif not (low <= 0.0 <= high or effect.by_ranks):
            verdict = "better" if (high < 0.0) == self.is_lower_better else "worse"
        effect = replace(effect, verdict=verdict)
        # Tied runs may share one of two values by chance: no evidence of equivalence.
        places = [scores.arms.index(arm) for arm in contrast.weights]
        luck = max(separation_p(*pair, _FAR), one_cluster_p(scores.values, places))
        is_lucky = luck * self.n_comparisons > self.level and not self.over_items
        if is_lucky and effect.verdict == "no difference that matters":
            p = self._over_looks(min(1.0, luck * self.n_comparisons))
            unclear = replace(effect, verdict="cannot tell", by_ranks=True)
            effect = replace(unclear, p=p, p_raw=luck, equivalent=None)
        if effect.verdict != "cannot tell" or self.margin is None:
            return effect
        next_half = uncertainty.half_width(self.next_level or self.level, self._largest)
        next_level = uncertainty.p(next_half, ALONE)
        n_now = uncertainty.seeds.n
        needed = seeds_for(
            lambda n: self._detectable(uncertainty, n / n_now, next_level), self.margin, MOST_SEEDS
        )
        return replace(effect, more_seeds=None if needed is None else max(1, needed - n_now))

    def _detectable(self, uncertainty: Uncertainty, times: float, single_level: float) -> float:
        """Return the difference that ``times`` as many seeds detect with power 0.8."""
        variance = uncertainty.seeds.variance / times + uncertainty.apart
        freedom = round(uncertainty.freedom_with(times), 1)
        return detectable_effect(max(freedom, 1.0), single_level) * math.sqrt(variance)

    def _with_ranks(self, effect: Difference, contrast: Contrast) -> Difference:
        """Judge by ranks: a failed run is the worst, and two-valued scores are not normal."""
        of_interval = ("p", "p_raw", "more_seeds", "detectable", "excluded", "equivalent")
        nothing: dict[str, Any] = dict.fromkeys(of_interval)
        ranked = replace(effect, verdict="cannot tell", by_ranks=True, **nothing)
        scores, rest = map(self.scores.scores_of, contrast.names)
        n, n_rest = effect.n_failed
        if not contrast.baseline or not len(scores) + n or not len(rest) + n_rest:
            return ranked  # several arms, or one of two without an ended run
        p_raw, surplus = rank_p(scores, rest, n, n_rest, is_lower_better=self.is_lower_better)
        p = self._over_looks(min(1.0, self.n_comparisons * p_raw))
        verdict: Verdict = "better" if surplus > 0 else "worse"
        return replace(ranked, p=p, p_raw=p_raw, verdict=verdict if p <= ERROR else "cannot tell")

    def _over_looks(self, p: float) -> float:
        """Return p scaled so that 0.05 is the level of the look."""
        return min(1.0, p * ERROR / self.level)


def _pairing(scores: RunScores) -> Pairing | None:
    """Describe how arms correlate over common seeds; None for fewer than two arms of two runs."""
    is_run = ~np.isnan(scores.values)
    arms = is_run.sum(1) > 1
    shared = is_run[arms].all(0)
    if arms.sum() < 2:
        return None
    if shared.sum() < 2:
        return Pairing(is_paired=False, correlation=0.0, n_arms=int(arms.sum()))
    table = scores.values[arms][:, shared]
    residuals = table - table.mean(1, keepdims=True)
    norms = np.sqrt((residuals**2).sum(1))
    norms[norms == 0.0] = np.inf
    correlations = (residuals @ residuals.T) / np.outer(norms, norms)
    pairs = correlations[np.triu_indices(len(table), 1)]
    return Pairing(is_paired=True, correlation=float(pairs.mean()), n_arms=len(table))


def rank_p(
    values: Sequence[float] | Numbers,
    others: Sequence[float] | Numbers,
    n_failed: int,
    n_others_failed: int,
    *,
    is_lower_better: bool,
) -> tuple[float, float]:
    """Test by ranks whether one arm's runs are better than another's, failed ones the worst.

    Returns the two-sided p of the exact permutation test of the rank sum, with ties (Mann and
    Whitney 1947; Lachin 1999 for failures as the worst rank), and the difference in mean rank
    between ``values`` with their failures and the others: positive is better.
    """
    sign = -1.0 if is_lower_better else 1.0
    group = [sign * value for value in values] + [-np.inf] * n_failed
    rest = [sign * value for value in others] + [-np.inf] * n_others_failed
    _, places, times = np.unique([*group, *rest], return_inverse=True, return_counts=True)
    ranks = (np.cumsum(times) - (times - 1) / 2)[places]  # from 1, ties their mean rank
    doubled = np.rint(2 * ranks).astype(np.int64)  # integers, ties too
    n, total = len(group), len(ranks)
    observed = int(doubled[:n].sum())
    # The choices of ``n`` of the ranks by their sum, counted as floating-point numbers.
    most = int(np.sort(doubled)[-n:].sum())
    choices = np.zeros((n + 1, most + 1))
    choices[0, 0] = 1.0
    for rank in doubled:
        for chosen in range(n, 0, -1):
            choices[chosen, rank:] += choices[chosen - 1, : most + 1 - rank]
    counts = choices[n]
    sums = np.arange(len(counts))
    expected = n * float(doubled.sum()) / total
    is_as_far = np.abs(sums - expected) >= abs(observed - expected) - 1e-9
    p = float(counts[is_as_far].sum() / counts.sum())
    surplus = float(ranks[:n].mean() - ranks[n:].mean())
    return min(1.0, p), surplus


def is_two_valued(values: Numbers) -> bool:
    """Return whether scores, ``[A, S]``, fall into two clusters that follow neither arms nor seeds.

    Fine-tunings that sometimes collapse do so. The gap is at least three times either cluster's
    range, each cluster has two runs or more, and some arm and some seed have runs in both: clusters
    that follow arms or seeds are their effects.
    """
    ordered = values[~np.isnan(values)]
    if len(ordered) < 4 or np.ptp(ordered) == 0.0:
        return False
    low, high = _clusters(ordered)
    if min(len(low), len(high)) < 2:
        return False
    if high[0] - low[-1] < _GAP * _widest(low, high):
        return False
    is_high, is_low = values > low[-1], values <= low[-1]
    return all(bool((is_high.any(axis) & is_low.any(axis)).any()) for axis in (0, 1))


def one_cluster_p(values: Numbers, rows: Sequence[int]) -> float:
    """Bound the probability that an arm's runs are all in one of two clusters by chance.

    If the runs of two arms or more, and of at least half, ``values`` ``[A, S]``, form two clusters
    each, the ``n`` runs of an arm in ``rows`` may be in one by chance, ``2 / 2 ** n``: its small
    spread is weak evidence. 0 without such an arm.
    """
    runs = [row[~np.isnan(row)] for row in values]
    are_split = np.zeros(len(runs), np.bool_)
    for row, scores in enumerate(runs):
        if len(scores) >= _FEWEST_SPLIT:
            low, high = _clusters(scores)
            are_split[row] = high[0] - low[-1] > _GAP * _widest(low, high)
    if are_split.sum() < max(2.0, len(runs) / 2.0):
        return 0.0
    return max((2.0 * 0.5 ** len(runs[row]) for row in rows if not are_split[row]), default=0.0)


def _clusters(values: Numbers) -> tuple[Numbers, Numbers]:
    """Divide scores, in order, at the widest gap."""
    ordered = np.sort(values)
    cut = int(np.diff(ordered).argmax()) + 1
    return ordered[:cut], ordered[cut:]


def _widest(*groups: Numbers) -> float:
    return max(float(np.ptp(group)) for group in groups)


def separation_p(values: Numbers, others: Numbers, times: float = 20.0) -> float:
    """Bound the probability that chance separates two equal arms, if runs were two-valued.

    A gap above ``times`` the range of either arm may divide two clusters by chance, each run with
    probability one half: ``2 / 4 ** n``, ``n`` the runs of the smaller arm. 0 for closer arms.
    """
    n = min(len(values), len(others))
    if not n:
        return 0.0
    gap = max(float(values.min() - others.max()), float(others.min() - values.max()))
    return 2.0 * 0.25**n if gap > times * _widest(values, others) else 0.0
