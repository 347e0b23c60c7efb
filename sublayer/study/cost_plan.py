"""Cost plan of arms and stages, before anything is spent.

Of one process it has the memory, disk and time of each run; of several memory, traffic and time.
"""

import heapq
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sublayer.config.objective import SupervisedObjective
from sublayer.config.resolve import Length, batch_sequences, expected_model, rows_of_example
from sublayer.data.tasks.encoded import TRAVERSAL_NAMES
from sublayer.errors import ConfigError, DataError
from sublayer.estimate.cluster import (
    DEVICES_PER_MACHINE,
    SHARDS,
    Device,
    Group,
    Shard,
    process_memory,
    step_traffic,
    units_of,
)
from sublayer.estimate.memory import (
    TrainingMemory,
    n_frozen_parameters,
    n_orthogonalised,
    training_flops,
    update_flops,
)
from sublayer.model.estimates import (
    FLOAT32_BYTES,
    Parameters,
    Precision,
    count_parameters,
)
from sublayer.numbers import count
from sublayer.runs.folder import check_start
from sublayer.study.arms import PRETRAINING, Arm, Chain, Stage, arm_notes
from sublayer.study.budget import (
    PROGRAM_BYTES,
    TOLERANCE,
    ArmBudget,
    Budget,
    Clock,
    Match,
    Resources,
    Rule,
    Vocabulary,
    apply_match,
    expected_hours,
    expected_length,
    expected_vocabulary,
    match_arms,
    plan_budgets,
    run_disk,
    size_arm,
    tokens_per_step,
)

if TYPE_CHECKING:
    from sublayer.study.definition import Study
    from sublayer.study.stage_recipes import StageRecipes


@dataclass(frozen=True)
class ArmPlan:
    """The costs of one run of an arm; None if unknown."""

    name: str
    parameters: Parameters
    flops_per_token: int
    """Floating-point operations of training."""
    memory_bytes: int
    """Peak of an optimizer step, without the program."""
    seconds_per_step: float | None
    """Seconds of an optimizer step."""
    is_extrapolated: bool | None
    """True if a smaller step was timed."""
    match: Match | None
    excess: ArmBudget
    """Excess over the comparison partner."""
    steps: int | None
    tokens: int | None
    """Tokens of the complete training."""
    hours: float | None
    """Wall clock of the run, evaluations included."""
    disk_bytes: int
    """Peak of the run's folder."""
    scored_bytes: int
    """The part of the run's folder that a study keeps after scoring."""
    precision: Precision
    micro_batch_sequences: int


@dataclass(frozen=True)
class BudgetPlan:
    """The arms, the matching rule, and notes on assumptions and unknown figures."""

    arms: tuple[ArmPlan, ...]
    rule: Rule
    notes: tuple[str, ...]

    def to_json(
        self, resources: Resources, n_seeds: int, n_trials: int = 0, jobs: int = 1
    ) -> dict[str, Any]:
        """Write a plan, and the total of its runs, as plain values.

        Each arm has ``n_trials`` tuning runs, and one per seed of ``n_seeds``. ``jobs`` is the
        number of runs in parallel.
        """
        n_runs = n_trials + n_seeds
        arm_hours = [arm.hours for arm in self.arms if arm.hours is not None]
        hours = None
        if len(arm_hours) == len(self.arms):
            hours = n_runs * sum(arm_hours)
            if jobs > 1:  # each run begins at the end of another
                ends = [0.0] * min(jobs, n_runs * len(self.arms))
                for hours_of_run in n_runs * arm_hours:
                    heapq.heapreplace(ends, ends[0] + hours_of_run)
                hours = max(ends)
        is_single = len(self.arms) == 1
        total = total_to_json([(arm, n_runs) for arm in self.arms], resources, jobs, hours)
        if is_single:
            disk = n_runs * self.arms[0].disk_bytes
            total |= {"disk_bytes": disk, "fits_disk": resources.stores(disk)}
        arms = []
        for arm in self.arms:
            match = None
            if arm.match is not None and not is_single:
                match = {**asdict(arm.match), "is_unequal": abs(arm.match.mismatch) > TOLERANCE}
                match["overrides"] = list(arm.match.overrides)
            fits = {
                "memory": resources.holds(arm.memory_bytes + resources.program_bytes),
                "disk": resources.stores(arm.disk_bytes),
            }
            written = {
                **asdict(arm),
                "match": match,
                "excess": arm.excess.to_json(),
                "fits": fits,
            }
            del written["scored_bytes"]
            arms.append(written)
        return {
            "arms": arms,
            "match": None if is_single else self.rule,
            "total": total,
            "available": {
                "device": resources.device,
                "memory_bytes": resources.memory_bytes,
                "disk_bytes": resources.disk_bytes,
            },
            "notes": list(self.notes),
        }


def make_plan(
    arms: Sequence[Arm],
    rule: Rule,
    resources: Resources,
    clock: Clock | None = None,
    *,
    multiple: int = 1,
    vocabularies: Sequence[Vocabulary] | None = None,
) -> BudgetPlan:
    """Plan one run of every arm, the first of them the baseline; ``clock`` measures steps.

    ``multiple`` is that of ``match_arms``. ``vocabularies`` are the arms' expected ones, before
    their tokenizers exist. Raises ConfigError for arms that cannot be matched or have no meaning.
    """
    for arm in arms:
        check_start(arm.loaded, "plan")
    vocabularies = vocabularies or [expected_vocabulary(arm.loaded.recipe) for arm in arms]
    sizes = [vocabulary.size for vocabulary in vocabularies]
    unmatched = [size_arm(arm, size).model for arm, size in zip(arms, sizes, strict=True)]
    # Widths are matched first: they determine the cost of a step, and so the lengths.
    matches = match_arms(arms, unmatched, rule, multiple=multiple)
    matched = [
        replace(arm, loaded=apply_match(arm, match))
        for arm, match in zip(arms, matches, strict=True)
    ]
    all_sized = [size_arm(arm, size) for arm, size in zip(matched, sizes, strict=True)]
    models = [sized.model for sized in all_sized]
    times = clock(all_sized) if clock else [None] * len(arms)
    notes = [*arm_notes(arms), *(vocab.note for vocab in vocabularies if vocab.note)]
    baseline = all_sized[0].recipe
    length = steps = None
    with suppress(ConfigError):  # its minutes hold no step: noted below
        length = expected_length(baseline, times[0])
        steps = None if length is None else length.steps
    if rule in ("flops", "time"):
        seconds_per_step = [time.seconds for time in times if time is not None]
        matches = match_arms(arms, models, rule, steps=steps, step_seconds=seconds_per_step or None)
    plans: list[ArmPlan] = []
    seconds: list[float | None] = []
    for sized, time, match in zip(all_sized, times, matches, strict=True):
        recipe, vocab_size, span = sized.recipe, sized.vocab_size, None
        # Minutes are the baseline's; other arms get its steps, or its time.
        minutes = None if plans and rule != "time" else recipe.train.minutes
        try:
            overrides = match.overrides if match else ()
            matched_steps = [text for text in overrides if text.startswith("train.steps=")]
            if matched_steps:
                span = replace(length or Length(1), steps=int(matched_steps[0].partition("=")[2]))
            elif length and recipe.train.minutes and recipe.train.minutes == baseline.train.minutes:
                # Minutes become steps once, for the baseline; an arm with other batches gets as
                # many tokens.
                tokens = length.steps * tokens_per_step(baseline)
                span = replace(length, steps=max(1, round(tokens / tokens_per_step(recipe))))
            else:
                span = expected_length(recipe, time)
            if recipe.train.minutes is not None:
                expected_length(recipe, time)
        except ConfigError as error:
            notes.append(f"{sized.arm.name}: {error}")
        n_steps = None if span is None else span.steps
        seconds.append(n_steps * time.seconds if n_steps and time and rule == "time" else None)
        if n_steps is not None and recipe.train.minutes is None:
            recipe.train.check_keep_steps(n_steps)
        disk_bytes, scored_bytes = run_disk(recipe, vocab_size)
        plans.append(
            ArmPlan(
                name=sized.arm.name,
                parameters=count_parameters(sized.model, recipe.objective),
                flops_per_token=training_flops(recipe, sized.model),
                memory_bytes=resources.step_memory(recipe, vocab_size).total,
                seconds_per_step=None if time is None else time.seconds,
                is_extrapolated=None if time is None else not time.is_measured,
                match=match,
                excess=ArmBudget(sized.arm.name, None),
                steps=n_steps,
                tokens=n_steps and n_steps * tokens_per_step(recipe),
                hours=expected_hours(recipe, span, time, minutes),
                disk_bytes=disk_bytes,
                scored_bytes=scored_bytes,
                precision=resources.precision(recipe),
                micro_batch_sequences=resources.batches(recipe).micro_batch_sequences,
            )
        )
    budgets = plan_budgets(matched, models, [plan.steps for plan in plans], rule, seconds=seconds)
    plans = [replace(plan, excess=budget) for plan, budget in zip(plans, budgets, strict=True)]
    if steps is None and baseline.train.epochs is not None:
        notes.append("the number of steps of an epoch is unknown before the text is read")
    if None in matches:
        needs_seconds = rule == "time" or baseline.train.minutes is not None
        lacking = "--measure" if needs_seconds else "train.steps or train.tokens"
        notes.append(f"matching by {rule} changes the number of steps: give {lacking} to know them")
    return BudgetPlan(tuple(plans), rule, tuple(dict.fromkeys(notes)))  # arms often have the same


def total_to_json(
    plans: Sequence[tuple[ArmPlan, int]], resources: Resources, jobs: int, hours: float | None
) -> dict[str, Any]:
    """Write the memory and disk of all runs as plain values; ``plans`` have their numbers of runs.

    Runs keep their models, and checkpoints of ``train.keep_steps``; only active ones have other
    checkpoints.
    """
    n_runs = sum(n for _, n in plans)
    at_once = min(jobs, n_runs)
    memory = at_once * (max(plan.memory_bytes for plan, _ in plans) + resources.program_bytes)
    disk = sum(n * plan.scored_bytes for plan, n in plans)
    disk += at_once * max(plan.disk_bytes for plan, _ in plans)
    return {
        "runs": n_runs,
        "jobs": at_once,
        "hours": hours,
        "memory_bytes": memory,
        "fits_memory": resources.holds(memory),
        "disk_bytes": disk,
        "fits_disk": resources.stores(disk),
    }


@dataclass(frozen=True)
class Machine:
    """The devices of planned processes, one each."""

    n_processes: int
    resources: Resources
    """Resources of one device; of this machine's processor, shared by all processes."""
    device: Device | None = None
    """None for this machine, which has no datasheet."""
    share: float = 1.0
    """Assumed compute speed, as a share of the device's peak."""
    given_link: float | None = None
    """One-way bytes per second between devices, if not the datasheet's."""
    name: str | None = None
    """The name of the device, as on the command line."""

    @property
    def link_bytes_per_s(self) -> float | None:
        """The send rate of a device; None if unknown."""
        if self.given_link is not None or self.device is None:
            return self.given_link
        is_one_machine = self.n_processes <= DEVICES_PER_MACHINE
        return self.device.link_bytes_per_s if is_one_machine else None

    def to_json(self) -> dict[str, Any]:
        """Describe the devices as plain values."""
        return {
            "number": self.n_processes,
            "device": self.name or self.resources.device,
            "datasheet": None if self.device is None else asdict(self.device),
            "memory_bytes": self.resources.memory_bytes,
            "share": None if self.device is None else self.share,
            "link_bytes_per_s": self.link_bytes_per_s,
        }

    def fits(self, memory: TrainingMemory, shard: Shard) -> bool | None:
        """Return whether a process fits into its device, or all into this machine's free memory."""
        if self.resources.device == "cuda":
            return self.resources.holds(memory.total)
        first = memory.total + PROGRAM_BYTES
        # With full copies only one process saves.
        other = first - memory.saving if shard == "none" else first
        return self.resources.holds(first + (self.n_processes - 1) * other)


def plan_processes(arm: Arm, plan: ArmPlan, machine: Machine, n_runs: int = 1) -> dict[str, Any]:
    """Plan an arm for several processes, under each supported ``train.shard``, as plain values.

    Figures of ``shards`` are each process's; None if unknown. Pairs are with full and with no
    overlap of communication and computation; hours are those of ``n_runs`` runs. Raises ConfigError
    if a batch is smaller than the number of processes.
    """
    loaded = apply_match(arm, plan.match)
    recipe, n, device = loaded.recipe, machine.n_processes, machine.device
    vocab_size = expected_vocabulary(recipe).size
    if batch_sequences(recipe) < n:
        raise ConfigError(
            f"--processes {n} exceeds the {batch_sequences(recipe)} windows of a batch: give "
            f"fewer, or train.batch_sequences={n} or more"
        )
    # Each process has its part of the cores, which sets its micro-batches.
    resources = replace(machine.resources, cores=max(1, machine.resources.cores // n))
    train = resources.batches(recipe)
    if recipe.train.exact:
        if train.n_micro_batches < n:
            raise ConfigError(
                f"train.exact divides a step into {count(train.n_micro_batches, 'micro-batch')}, "
                f"fewer than --processes {n}: give "
                f"train.micro_batch_sequences={train.batch_sequences // n}"
            )
        micro = train.micro_batch_sequences
        n_passes = math.ceil(train.n_micro_batches / n)
        sequences = n_passes * micro
    else:
        sequences = math.ceil(train.batch_sequences / n)
        micro = min(sequences, train.micro_batch_sequences)
        step = resources.micro_batch(recipe, vocab_size, micro)
        n_passes = math.ceil(sequences * rows_of_example(recipe) / step.sequences)
    tokens = tokens_per_step(recipe)
    operations = float(plan.flops_per_token * tokens)
    # Processes of this machine share the cores of one, and are assumed as fast in total.
    computing = plan.seconds_per_step
    if device is not None:
        # The slowest process has a full share of an unevenly divided batch.
        # Every process orthogonalises all maps.
        model = expected_model(recipe, vocab_size)
        update = update_flops(model, recipe.objective, recipe.optimizer, recipe.init.frozen)
        most = (operations - update) * min(1.0, sequences / train.batch_sequences) + update
        computing = most / (machine.share * device.peak(plan.precision))
    shards = []
    for shard in SHARDS[:1] if recipe.train.exact else SHARDS:
        try:
            sharded = loaded.vary([f"train.shard={shard}"]).recipe
        except ConfigError:  # an optimizer that needs full matrices
            continue
        group = Group(n, shard, recipe.train.exact, begins_whole=sharded.init.run is not None)
        step = resources.micro_batch(sharded, vocab_size, micro)
        step = replace(step, caches_casts=not group.is_divided)
        memory = process_memory(step, sharded.optimizer, n_passes=n_passes, group=group)
        if resources.copies_in_memory(sharded):
            memory = memory.beside_saving()
        n_trained = count_parameters(step.config, step.objective).training
        n_trained -= n_frozen_parameters(step.config, step.frozen)
        blocks, root = units_of(step.config, step.objective)
        n_maps = n_orthogonalised(step.config, step.objective, sharded.optimizer, step.frozen)
        gathering, summing = step_traffic(
            blocks,
            root,
            FLOAT32_BYTES * n_trained,
            n_passes=n_passes,
            group=group,
            maps=FLOAT32_BYTES * n_maps,
        )
        rate, sending = machine.link_bytes_per_s, None
        if device is not None and rate is not None:
            sending = (gathering + summing) / rate
        pair = hours = peak = None
        if computing is not None:
            pair = [max(computing, sending or 0.0), computing + (sending or 0.0)]
            if device is not None:
                ideal = operations / n / device.peak(plan.precision)
                peak = [ideal / seconds for seconds in pair]
        if recipe.train.minutes is not None:
            hours = 2 * [n_runs * (recipe.train.minutes / 60)]
        elif plan.steps is not None and pair is not None:
            hours = [n_runs * (plan.steps * seconds / 3600) for seconds in pair]
        shards.append(
            {
                "shard": shard,
                "memory": asdict(memory),
                "fits": machine.fits(memory, shard),
                "sent_bytes": {
                    "gathering": gathering,
                    "summing": summing,
                    "total": gathering + summing,
                },
                "computing_seconds": computing,
                "sending_seconds": sending,
                "seconds_per_step": pair,
                "tokens_per_s": pair and [tokens / seconds for seconds in pair],
                "share_of_peak": peak,
                "hours": hours,  # without evaluations
            }
        )
    return {
        "name": plan.name,
        "precision": plan.precision,
        "sequences": sequences,  # of a process's share of a batch
        "micro_batch_sequences": micro,
        "micro_batches": n_passes,  # of a process
        "tokens_per_step": tokens,  # of all processes, as the operations
        "flops_per_step": operations,
        "shards": shards,
    }


@dataclass(frozen=True)
class StagePlan:
    """The cost of the runs of a stage shared by some arms."""

    stage: str
    after: str
    """Its start, in words."""
    arms: tuple[str, ...]
    n_runs: int
    run: ArmPlan
    """Cost of one of them."""


def plan_stages(
    study: "Study",
    plan: BudgetPlan,
    resources: Resources,
    clock: Clock | None,
    *,
    n_seeds: int,
) -> list[StagePlan]:
    """Plan all stages of a chain, shared ones once; ``plan`` is its arms' plan.

    Only the rows of tasks are counted, and only if their folder is named. Raises ConfigError for
    recipes that do not fit together.
    """
    from sublayer.study.stage_recipes import StageRecipes

    chain = study.chain
    assert chain is not None, "a study with stages has a chain"
    arms = {planned.name: planned for planned in plan.arms}
    loaded = {arm.name: apply_match(arm, arms[arm.name].match) for arm in study.arms}
    with TemporaryDirectory(prefix="sublayer-chain-") as scratch:
        recipes = StageRecipes(study.name, chain, loaded, Path(scratch))

        def texts_of(arm: str, stage: Stage) -> list[str]:
            # Texts count as equal if their paths are.
            if stage.name == PRETRAINING or stage.finetunes:
                return []
            return [str(recipes.planned(arm, stage.name).recipe.data.path)]

        keys, plans = recipes.keys(texts_of), []
        for stage in chain.all_stages:
            sharing: dict[str, list[str]] = {}
            for arm, of_arm in keys.items():
                if stage.name in of_arm:
                    sharing.setdefault(of_arm[stage.name], []).append(arm)
            n_trials = len(recipes.trials(stage))
            n_runs = n_seeds * chain.n_runs(stage) + (n_trials if n_trials > 1 else 0)
            for sharers in sharing.values():
                arm_plan = arms[sharers[0]]
                if stage.name != PRETRAINING:
                    arm_plan = _plan_run(recipes, stage, sharers, resources, clock)
                plans.append(StagePlan(stage.name, stage.start, tuple(sharers), n_runs, arm_plan))
    return plans


def _plan_run(
    recipes: "StageRecipes",
    stage: Stage,
    arms: Sequence[str],
    resources: Resources,
    clock: Clock | None,
) -> ArmPlan:
    """Plan a run of a stage shared by arms."""
    from sublayer.study.stage_recipes import steps_of_tasks

    loaded = recipes.planned(arms[0], stage.name)
    data, steps = loaded.recipe.data, None
    is_there = isinstance(data.path, str) and Path(data.path).expanduser().exists()
    if stage.finetunes and is_there:
        with suppress(DataError):  # reported by the comparison
            steps = steps_of_tasks(loaded.recipe)
    if steps is not None:
        loaded = loaded.vary({"train.steps": steps}, origin="study")
    size = expected_vocabulary(recipes.arms[arms[0]].recipe).size
    objective = loaded.recipe.objective
    if isinstance(objective, SupervisedObjective) and objective.format == "traversal":
        size += len(TRAVERSAL_NAMES)
    shared = Arm(f"{', '.join(arms)}: {stage.name}", loaded, {})
    timed = None if stage.ensemble else clock
    [arm_plan] = make_plan([shared], "none", resources, timed, vocabularies=[Vocabulary(size)]).arms
    if not stage.ensemble:
        return arm_plan
    # Its members' weights in memory and no training; the cost of answers is not counted, as after a
    # training.
    memory = len(stage.ensemble) * FLOAT32_BYTES * arm_plan.parameters.total
    return replace(
        arm_plan,
        memory_bytes=memory,
        disk_bytes=0,
        scored_bytes=0,
        seconds_per_step=None,
        is_extrapolated=None,
        steps=0,
        tokens=0,
        hours=0.0,
    )


def stages_to_json(plans: Sequence[StagePlan], resources: Resources, jobs: int) -> dict[str, Any]:
    """Write the stages, and the total of all runs, as plain values."""
    stages: list[dict[str, Any]] = []
    for plan in plans:
        arm_plan, hours = plan.run, plan.run.hours
        stages.append(
            {
                "stage": plan.stage,
                "after": plan.after,
                "arms": list(plan.arms),
                "runs": plan.n_runs,
                "steps": arm_plan.steps,
                "seconds_per_step": arm_plan.seconds_per_step,
                "hours": None if hours is None else plan.n_runs * hours,
                "memory_bytes": arm_plan.memory_bytes,
                "disk_bytes": plan.n_runs * arm_plan.scored_bytes,
            }
        )
    total = total_to_json([(plan.run, plan.n_runs) for plan in plans], resources, jobs, None)
    hours_known = [stage["hours"] for stage in stages if stage["hours"] is not None]
    if len(hours_known) == len(plans):
        total["hours"] = sum(hours_known) / total["jobs"]
    return {"stages": stages, "total": total}


def with_stages(plan: BudgetPlan, stages: Sequence[StagePlan], chain: Chain) -> BudgetPlan:
    """Return the plan of a chain's arms, with budgets over all stages.

    For two pre-trained arms a stage of unknown length is left out: it is the smallest part. If that
    is the pre-training, they differ by their operations per token.
    """
    spent: dict[str, dict[str, float | None]] = {}
    for arm in plan.arms:
        spent[arm.name] = {} if chain.of(arm.name).pretrains else {PRETRAINING: 0.0}
        for stage in stages:
            if arm.name in stage.arms:
                tokens, per_token = stage.run.tokens, stage.run.flops_per_token
                spent[arm.name][stage.stage] = None if tokens is None else float(tokens * per_token)
    arms = []
    for arm in plan.arms:
        other = arm.excess.against
        if other is not None:
            mine, others = spent[arm.name], spent[other]
            are_pretrained = chain.of(arm.name).pretrains and chain.of(other).pretrains
            both = [
                name for name in mine if mine[name] is not None and others.get(name) is not None
            ]
            operations = arm.excess.planned.operations if are_pretrained else None
            if {*both} == {*mine, *others} or (are_pretrained and PRETRAINING in both):
                one, two = (sum(costs[name] or 0.0 for name in both) for costs in (mine, others))
                operations = Budget(1, one).excess_over(Budget(1, two)).operations
            planned = replace(arm.excess.planned, operations=operations)
            arm = replace(arm, excess=replace(arm.excess, planned=planned))
        arms.append(arm)
    return replace(plan, arms=tuple(arms))
