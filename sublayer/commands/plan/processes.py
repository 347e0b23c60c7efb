"""Several processes planned: options that contradict each other, figures, and their tables."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.estimate.cluster import (
    DEVICES,
    DEVICES_PER_MACHINE,
    THIS_MACHINE,
    check_device,
)
from sublayer.system.terminal import noted, paragraph, terminal_width
from sublayer.tables import table

if TYPE_CHECKING:
    from sublayer.study.budget.capacity import Resources
    from sublayer.study.budget.plan import Plan
    from sublayer.study.budget.processes import Machine, ProcessPlan
    from sublayer.study.definition import Study


@dataclass(frozen=True)
class AskedProcesses:
    """What the command line says of processes."""

    number: int | None
    device: str | None
    share: float | None
    link: float | None

    @property
    def is_asked(self) -> bool:
        """Return whether processes are planned beside the arms."""
        return self.number is not None or self.device in DEVICES

    def check(self, *, measure: bool, jobs: int) -> None:
        """Raise ConfigError, in one line, for options that contradict each other."""
        if self.device is not None and not self.device.startswith("cuda"):
            check_device(self.device)
        if self.share is not None and self.device not in DEVICES:
            raise ConfigError(
                "--share is of a device's peak, which a datasheet says: give --device "
                f"{', '.join(DEVICES)}"
            )
        if self.share == 0:
            raise ConfigError("--share 0 never ends: give a share of the peak, such as 0.4")
        if self.link is not None and not (self.device in DEVICES and (self.number or 1) > 1):
            raise ConfigError(
                "--link is between devices of a datasheet: give --processes and --device "
                f"{', '.join(DEVICES)}"
            )
        if self.link == 0:
            raise ConfigError("--link 0 never ends: give GB/s, such as 50")
        if not self.is_asked:
            return
        if measure and self.device in DEVICES:
            raise ConfigError(
                f"--measure takes steps on this machine, which says nothing of --device "
                f"{self.device}: leave it out, or give --device {THIS_MACHINE}"
            )
        if jobs > 1:
            raise ConfigError(
                f"--jobs {jobs} makes several runs at a time in one process each: leave it out "
                "with --processes"
            )

    def of_device(self, here: "Resources") -> "Resources":
        """Return the resources of the device that is asked for, where it is not this machine's."""
        device = DEVICES.get(self.device or "")
        if device is None:
            return here
        return replace(
            here, device="cuda", memory_bytes=device.memory_bytes, has_fast_bfloat16=True
        )

    def plan(
        self, study: "Study", plan: "Plan", resources: "Resources", n_runs: int
    ) -> dict[str, Any]:
        """Plan each arm of a study for these processes, as plain values."""
        from sublayer.study.budget.processes import Machine, plan_processes, processes_to_json

        if study.chain is not None:
            raise ConfigError(
                f"{study.name} has stages, which are planned for one process: leave out "
                "--processes, or plan a stage's recipe"
            )
        machine = Machine(
            self.number or 1,
            resources,
            DEVICES.get(self.device or ""),
            1.0 if self.share is None else self.share,
            None if self.link is None else self.link * 1e9,
        )
        plans = []
        for arm, arm_plan in zip(study.arms, plan.arms, strict=True):
            plans.append(plan_processes(arm, arm_plan, machine))
        name = self.device or resources.device
        result = processes_to_json(plans, machine, name, n_runs)
        return {**result, "notes": list(_notes(plans, machine))}


def _notes(plans: "Sequence[ProcessPlan]", machine: "Machine") -> Iterator[str]:
    """Yield what the figures of several processes take for granted."""
    device, rate = machine.device, machine.link_bytes_per_s
    if device is None:
        if plans[0].shards[0].seconds is not None:
            yield (
                "time: that of one process on all cores, as which the processes together are taken "
                "to compute; what they send is not in it"
            )
    else:
        peak = "the peak" if machine.share == 1.0 else f"{100 * machine.share:g} % of the peak"
        time = f"{peak} of {device.title}, nothing sent"
        if rate is not None:
            time = (
                f"from {peak} of {device.title}, sending at {rate / 1e9:g} GB/s one way, all of it "
                "beside computing, to nothing of it"
            )
        yield f"time: {time}; without evaluations, optimizer, or waiting for text"
        if rate is None:
            yield (
                f"{machine.n_processes} processes are more than the {DEVICES_PER_MACHINE} devices "
                "of one machine, and no datasheet says what goes between machines: give --link"
            )
        yield "no figure of a GPU has been held against one: those of memory were, on processors"
    if len(plans[0].shards) == 1:
        yield "train.shard divides nothing here: with train.exact, or this optimizer, it cannot"
    if machine.n_processes == 1:
        yield "train.shard divides nothing: there is one process"


_MEMORY = (
    "memory of a process at the most; gradients, gathered weights and activations are not all "
    "there at once. Peak: of building, steps and evaluations, with copies to be saved, the program "
    "itself not counted"
)
_PARTS = ("weights", "gradients", "optimizer", "gathered", "activations", "saving")


def render_processes(processes: Mapping[str, Any]) -> str:
    """Format the ``processes`` of a plan as ``--json`` has them."""
    arms = processes["arms"]
    lines = [paragraph(_where(processes, arm)) for arm in arms]
    lines += ["", _table(*_memory(processes)), paragraph(_MEMORY), "", _table(*_time(processes))]
    return "\n".join([*lines, *map(noted, processes["notes"])])


def _where(processes: Mapping[str, Any], arm: Mapping[str, Any]) -> str:
    from sublayer.numbers import format_quantity

    datasheet = processes["datasheet"]
    where = processes["device"] if datasheet is None else datasheet["title"]
    n_processes = count(processes["number"], "process")
    memory = format_quantity(processes["memory_bytes"], "B")
    of_memory = "free for all" if processes["device"] == "cpu" else "each"
    return (
        f"{arm['name']} on {n_processes}, {where}, {memory} {of_memory}, {arm['precision']}: each "
        f"has {count(arm['sequences'], 'window')} of a step, in "
        f"{count(arm['micro_batches'], 'micro-batch')} of {arm['micro_batch_sequences']:,}"
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    n_names = headings.index("shard") + 1
    right = range(n_names, len(headings))
    return table(headings, rows, right=right, width=terminal_width())


def _rows(processes: Mapping[str, Any]) -> Iterator[tuple[list[str], Mapping[str, Any]]]:
    """Generate each row's names, with the arm's where there are several, and its figures."""
    for arm in processes["arms"]:
        for shard in arm["shards"]:
            names = [arm["name"]] if len(processes["arms"]) > 1 else []
            yield [*names, shard["shard"]], shard


def _headings(processes: Mapping[str, Any]) -> list[str]:
    return ["arm", "shard"] if len(processes["arms"]) > 1 else ["shard"]


def _memory(processes: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    from sublayer.numbers import format_quantity

    # What none has, such as gathered weights of one process, has no column.
    shown = [part for part in _PARTS if any(shard["memory"][part] for _, shard in _rows(processes))]
    rows = []
    for names, shard in _rows(processes):
        memory = shard["memory"]
        parts = [format_quantity(memory[part], "B") for part in shown]
        fits = {True: "yes", False: "no", None: ""}[shard["fits"]]
        rows.append([*names, *parts, format_quantity(memory["total"], "B"), fits])
    return [*_headings(processes), *shown, "peak", "fits"], rows


def _time(processes: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    from sublayer.numbers import format_duration, format_quantity

    columns: list[tuple[str, str, Callable[[float], str]]] = [
        ("a step", "seconds_per_step", _format_step),
        ("tokens/s", "tokens_per_s", format_quantity),
        ("of peak", "share_of_peak", lambda value: f"{100 * value:.3g} %"),
        ("time", "hours", lambda value: format_duration(3600 * value)),
    ]
    shards = [shard for _, shard in _rows(processes)]
    columns = [column for column in columns if any(shard[column[1]] for shard in shards)]
    rows = []
    for names, shard in _rows(processes):
        sent = format_quantity(shard["sent_bytes"]["total"], "B")
        cells = [_range(shard[key], form) for _, key, form in columns]
        rows.append([*names, sent, *cells])
    return [*_headings(processes), "sent a step", *(heading for heading, _, _ in columns)], rows


def _format_step(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _range(pair: Sequence[float] | None, form: Callable[[float], str]) -> str:
    """Format two figures, or one where they read alike."""
    if pair is None:
        return ""
    first, second = map(form, pair)
    return first if first == second else f"{first} to {second}"
