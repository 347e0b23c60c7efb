"""Reports say which runs had machines that differ."""

from pathlib import Path
from typing import Any

from sublayer.study.execution.one_run import Outcome
from sublayer.study.findings.machines import list_differing_machines

XEON = {"processor": "Xeon", "instructions": "AVX512", "cores": 64, "device": "cpu"}


def runs(*machines: dict[str, Any]) -> list[Outcome]:
    return [Outcome(Path(), {"machine": machine}) for machine in machines]


def test_runs_on_equal_machines_need_no_word():
    outcomes = {"a": runs(XEON, {**XEON, "cores": 2}), "b": [Outcome(Path(), failure="diverged")]}
    assert list_differing_machines(outcomes) == []


def test_runs_on_other_processors_or_instructions_are_counted_by_arm():
    epyc = {**XEON, "processor": "EPYC"}
    older = {**XEON, "instructions": "AVX2"}
    (note,) = list_differing_machines({"a": runs(XEON, XEON, epyc), "b": runs(XEON, older)})
    assert note.endswith(
        "cpu, Xeon, AVX512: 2 of a, 1 of b; cpu, EPYC, AVX512: 1 of a; cpu, Xeon, AVX2: 1 of b."
    )


def test_a_gpu_is_named():
    machines = [{**XEON, "device": "cuda", "gpu": name} for name in ("H100", "A100")]
    (note,) = list_differing_machines({"a": runs(*machines)})
    assert "cuda, H100, Xeon, AVX512: 1 of a; cuda, A100, Xeon, AVX512: 1 of a" in note
