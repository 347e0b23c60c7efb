"""Results of studies that were never run, with every kind of finding in them."""

from dataclasses import replace

import numpy as np

from sublayer.objective.causal.family import BITS_PER_BYTE
from sublayer.objective.families import FAMILIES
from sublayer.objective.metric import Metric
from sublayer.study.judgement.difference import FEWEST_SEEDS, Difference
from sublayer.study.judgement.judge import Evidence, judge
from sublayer.study.results import ArmResult, Costs, Curve, Failure, Further, Reproduction, Results


def encoder_results() -> Results:
    """Three encoders compared by sentence order; one has no sentence head, a seed of one failed."""
    mlm, nsp, sop, loss = FAMILIES["masked"].metrics
    arms = {
        "no loss": (0.524, 0.533, 0.549),
        "NSP": (0.905, 0.52, 0.545),
        "SOP": (0.789, 0.865, 0.54),
    }
    rng = np.random.default_rng(3)
    made = []
    for name, (next_sentence, order, hidden) in arms.items():
        seeds = range(5) if name != "NSP" else range(4)
        plain = synthetic_results({name: 0.0}).arms[0]
        scores = {seed: order + rng.normal(0, 0.004) for seed in seeds}
        curves = tuple(
            replace(plain.curves[0], seed=seed, values=tuple(np.linspace(0.5, scores[seed], 10)))
            for seed in seeds
        )
        further = {
            nsp.name: {}
            if name == "SOP"
            else {seed: next_sentence + rng.normal(0, 0.004) for seed in seeds},
            mlm.name: {seed: hidden + rng.normal(0, 0.0004) for seed in seeds},
            loss.name: {seed: 2.1 + rng.normal(0, 0.01) for seed in seeds},
        }
        made.append(
            replace(
                plain,
                name=name,
                seeds=tuple(seeds),
                values=tuple(scores.values()),
                curves=curves,
                further=further,
            )
        )

    def differences(metric: Metric, values: dict[str, dict[int, float]]) -> tuple[Difference, ...]:
        return judge("no loss", values, metric, planned_seeds=5).differences

    return replace(
        synthetic_results(),
        metric=sop,
        match="none",
        baseline="no loss",
        arms=tuple(made),
        differences=differences(
            sop, {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in made}
        ),
        further=tuple(
            Further(
                metric,
                differences(metric, {arm.name: dict(arm.further[metric.name]) for arm in made}),
            )
            for metric in (mlm, nsp, loss)
        ),
    )


def synthetic_results(
    effects: dict[str, float] | None = None,
    *,
    n_seeds: int = 5,
    failed: tuple[str, int] | None = None,
    sd: float = 0.004,
) -> Results:
    """Draw the runs of arms that differ from the baseline by ``effects`` bits per byte."""
    effects = (
        {"gpt": 0.0, "swiglu": -0.03, "macaron": 0.001, "positions=none": 0.17}
        if effects is None
        else effects
    )
    rng = np.random.default_rng(11)
    by_seed = rng.normal(0, 0.01, size=n_seeds)
    arms = tuple(_arm(name, effect, by_seed, rng, sd, failed) for name, effect in effects.items())
    baseline = arms[0].name
    values = {arm.name: dict(zip(arm.seeds, arm.values, strict=True)) for arm in arms}
    evidence = Evidence(failed={failed[0]: [failed[1]]} if failed else {}, resolution=1e-4)
    judged = judge(baseline, values, BITS_PER_BYTE, planned_seeds=n_seeds, evidence=evidence)
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
            {
                "sublayer": "0.1.0",
                "python": "3.11.2",
                "torch": "2.13.0",
                "processor": "x86-64, 2 threads",
            },
            {"train": "4d3f0c" * 10, "test": "77ab01" * 10},
        ),
    )


def _arm(
    name: str,
    effect: float,
    by_seed: np.ndarray,
    rng: np.random.Generator,
    sd: float,
    failed: tuple[str, int] | None,
) -> ArmResult:
    seeds = tuple(seed for seed in range(len(by_seed)) if (name, seed) != failed)
    values = tuple(float(2.4 + by_seed[seed] + effect + rng.normal(0, sd)) for seed in seeds)
    steps = tuple(range(40, 401, 40))
    return ArmResult(
        name=name,
        parameters={
            "total": 214_016,
            "training": 214_016,
            "non_embedding": 193_000,
            "executed": 214_016,
        },
        seeds=seeds,
        values=values,
        costs=Costs(
            1_310_000,
            400,
            400 * 4096.0,
            61_000.0,
            210e6,
            27.0,
            training_seconds=25.0,
            operations=400 * 4096.0 * 1_310_000,
            planned_operations=400 * 4096.0 * 1_310_000,
        ),
        matched=("model.d_ff=171",) if name == "swiglu" else (),
        curves=tuple(
            Curve(
                seed,
                steps,
                tuple(step * 4096.0 for step in steps),
                tuple(step * 0.07 for step in steps),
                tuple(value + 3 * float(np.exp(-step / 90)) for step in steps),
            )
            for seed, value in zip(seeds, values, strict=True)
        ),
        recipe='[model]\nn_layers = 2\nffn = "gelu"\n',
    )


def taking(
    results: Results,
    name: str,
    *,
    parameters: float = 1.0,
    operations: float | None = 1.0,
    planned: float = 1.0,
    seconds: float = 1.0,
) -> Results:
    """Let an arm take so many times the budget of all arms."""
    (usual,) = (arm for arm in results.arms if arm.name == name)
    costs = usual.costs
    costs = replace(
        costs,
        operations=None if operations is None else operations * costs.operations,
        planned_operations=planned * costs.planned_operations,
        training_seconds=seconds * costs.training_seconds,
    )
    size = {**usual.parameters, "total": round(parameters * usual.parameters["total"])}
    arm = replace(usual, costs=costs, parameters=size)
    return replace(results, arms=tuple(arm if each is usual else each for each in results.arms))
