"""Results of studies that were never run, with every kind of finding in them."""

from dataclasses import replace

import numpy as np

from sublayer.objective.base import family
from sublayer.objective.causal import BITS_PER_BYTE
from sublayer.statistics.contrasts import FEWEST_SEEDS, Difference, RunScores, against_baseline
from sublayer.statistics.judge import ContrastFamily
from sublayer.study.results import ArmResult, Costs, Curve, Failure, Further, Reproduction, Results


def encoder_results() -> Results:
    """Three encoders compared by sentence order; one has no sentence head, a seed of one failed."""
    mlm, nsp, sop, loss = family("masked").metrics
    rng = np.random.default_rng(3)

    def draw(mean: float, sd: float) -> dict[int, float]:
        return {seed: mean + rng.normal(0, sd) for seed in seeds}

    made = []
    for name, next_sentence, order, hidden in (
        ("no loss", 0.524, 0.533, 0.549),
        ("NSP", 0.905, 0.52, 0.545),
        ("SOP", 0.789, 0.865, 0.54),
    ):
        seeds = tuple(range(4 if name == "NSP" else 5))
        plain = synthetic_results({name: 0.0}).arms[0]
        scores = draw(order, 0.004)
        rising = {seed: tuple(np.linspace(0.5, scores[seed], 10)) for seed in seeds}
        curves = (replace(plain.curves[0], seed=seed, values=rising[seed]) for seed in seeds)
        further = {nsp.name: {} if name == "SOP" else draw(next_sentence, 0.004)}
        further |= {mlm.name: draw(hidden, 0.0004), loss.name: draw(2.1, 0.01)}
        values = {"values": tuple(scores.values()), "curves": tuple(curves), "further": further}
        made.append(replace(plain, name=name, seeds=seeds, **values))

    def differences(metric) -> tuple[Difference, ...]:
        own = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in made}
        values = {arm.name: arm.further.get(metric.name, own[arm.name]) for arm in made}
        return judge_values("no loss", values, metric, planned_seeds=5).differences

    further = tuple(Further(metric, differences(metric)) for metric in (mlm, nsp, loss))
    named = {"metric": sop, "match": "none", "baseline": "no loss", "arms": tuple(made)}
    return replace(synthetic_results(), **named, differences=differences(sop), further=further)


def judge_values(
    baseline, values, metric, *, planned_seeds, against=None, further=(), failed=None, effects=None,
    **options,
):  # fmt: skip
    """Judge arms, each by seed, against the baseline, and ``further`` contrasts."""
    contrasts = [*against_baseline(values, baseline, against), *further]
    scores = RunScores.of(values, failed=failed, effects=effects)
    options |= {"is_lower_better": metric.is_lower_better, "n_seeds": planned_seeds}
    return ContrastFamily(scores, contrasts, **options).judge()


def synthetic_results(effects=None, *, n_seeds=5, failed=None, sd=0.004):
    """Draw the runs of arms that differ from the baseline by ``effects`` bits per byte."""
    if effects is None:
        effects = {"gpt": 0.0, "swiglu": -0.03, "macaron": 0.001, "positions=none": 0.17}
    rng = np.random.default_rng(11)
    by_seed = rng.normal(0, 0.01, size=n_seeds)
    arms = tuple(_arm(name, effect, by_seed, rng, sd, failed) for name, effect in effects.items())
    baseline = arms[0].name
    values = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in arms}
    seeds = {failed[0]: [failed[1]]} if failed else {}
    known = {"planned_seeds": n_seeds, "failed": seeds, "resolution": 1e-4}
    judged = judge_values(baseline, values, BITS_PER_BYTE, **known)
    versions = {"sublayer": "0.1.0", "python": "3.11.2", "torch": "2.13.0"}
    return Results(
        name="demo",
        title="Four tiny decoders on the prose of the Python installation",
        metric=BITS_PER_BYTE,
        split="test",
        match="parameters",
        baseline=baseline,
        n_seeds=n_seeds,
        arms=arms,
        differences=judged.differences,
        pairing=judged.pairing,
        looks=(n_seeds,) if n_seeds >= FEWEST_SEEDS else (),
        failures=(Failure(*failed, "the loss is not finite at step 41"),) if failed else (),
        reproduction=Reproduction(
            "sublayer compare gpt --vary model.ffn=gelu,swiglu --seeds 5",
            {**versions, "processor": "x86-64, 2 threads"},
            {"train": "4d3f0c" * 10, "test": "77ab01" * 10},
        ),
    )


def _arm(name, effect, by_seed, rng, sd, failed) -> ArmResult:
    seeds = tuple(seed for seed in range(len(by_seed)) if (name, seed) != failed)
    values = tuple(float(2.4 + by_seed[seed] + effect + rng.normal(0, sd)) for seed in seeds)
    steps = tuple(range(40, 401, 40))
    operations = 400 * 4096.0 * 1_310_000
    spent = {"operations": operations, "planned_operations": operations, "training_seconds": 25.0}
    curves = tuple(
        Curve(
            *(seed, steps, tuple(step * 4096.0 for step in steps)),
            seconds=tuple(step * 0.07 for step in steps),
            values=tuple(value + 3 * float(np.exp(-step / 90)) for step in steps),
        )
        for seed, value in zip(seeds, values, strict=True)
    )
    return ArmResult(
        name=name,
        parameters={**dict.fromkeys(SIZES, 214_016), "non_embedding": 193_000},
        seeds=seeds,
        values=values,
        costs=Costs(*(1_310_000, 400, 400 * 4096.0, 61_000.0, 210e6, 27.0), **spent),
        matched=("model.d_ff=171",) if name == "swiglu" else (),
        curves=curves,
        recipe='[model]\nn_layers = 2\nffn = "gelu"\n',
    )


SIZES = ("total", "training", "non_embedding", "executed")


def taking(results, name, *, parameters=1.0, operations=1.0, planned=1.0, seconds=1.0) -> Results:
    """Let an arm take so many times the budget of all arms; None: of operations not known."""
    (usual,) = (arm for arm in results.arms if arm.name == name)
    costs = replace(
        usual.costs,
        operations=None if operations is None else operations * usual.costs.operations,
        planned_operations=planned * usual.costs.planned_operations,
        training_seconds=seconds * usual.costs.training_seconds,
    )
    size = {**usual.parameters, "total": round(parameters * usual.parameters["total"])}
    arm = replace(usual, costs=costs, parameters=size)
    return replace(results, arms=tuple(arm if each is usual else each for each in results.arms))
