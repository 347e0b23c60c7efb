"""The record of a run: what was run, on what, and what came of it."""

import hashlib
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sublayer.estimate.cost import count_parameters, flops_per_token
from sublayer.runs.folder import RECIPE
from sublayer.runs.inputs import read_began
from sublayer.runs.lengthening import as_dicts, read_lengthenings, read_replanned
from sublayer.runs.session import Session
from sublayer.system.machine import describe_machine
from sublayer.training.checkpoints.loop_state import LoopState
from sublayer.training.step_time import describe_use

_LIBRARIES = ("numpy", "safetensors", "sentencepiece", "tokenizers")


def describe_run(
    run: Path, session: Session, state: LoopState, peak_memory_bytes: int | None
) -> dict[str, Any]:
    """Build the record of a finished run, as ``record.json`` keeps it.

    ``valid`` is the evaluation during training whose weights are the run's model: the best, or the
    last; what is watched stands beside it, as ``squad/mlm_accuracy`` does.
    ``tokens_per_s`` counts the optimizer steps alone, ``seconds`` the evaluations and checkpoints
    too; ``date`` is when it finished. Memory is in bytes, beyond what the process held before.
    ``stopped_early`` is there where patience ended it before its last step. ``minutes`` says what
    the run used of those that its recipe asks for, if it does; ``lengthened`` at which steps it was
    given more. Of a run of a comparison ``plan`` says the hash of the sealed plan that it began
    under, and the checksum of the code that made it.
    """
    recipe, data = session.recipe, session.data
    parameters = count_parameters(recipe.model, recipe.objective)
    return {
        "run": str(run.absolute()),
        "title": recipe.title,
        "step": state.step,
        "tokens": state.tokens,
        "tokens_per_s": round(state.tokens / state.step_seconds, 1),
        "valid": state.best,
        **({"task_bests": state.task_bests} if state.task_bests else {}),
        **({"probes": _probes(session)} if session.probes else {}),
        "seconds": round(state.seconds, 3),
        "lengthened": as_dicts(read_lengthenings(run / RECIPE)),
        **({"stopped_early": True} if state.has_stopped else {}),
        "minutes": _minutes(recipe.train.minutes, state.seconds, run),
        "peak_memory_bytes": peak_memory_bytes,
        "parameters": asdict(parameters),
        "flops_per_token": flops_per_token(recipe.model, recipe.data.context, recipe.objective),
        "precision": recipe.train.precision,
        "threads": recipe.train.threads,
        "processes": session.place.world.size,
        "machine": describe_machine(session.place.device),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "sublayer": version("sublayer"),
            **{name: version(name) for name in _LIBRARIES},
        },
        "commit": commit(),
        **_plan(run),
        "data": {
            "tokenizer": data.tokenizer.kind,
            "vocab_size": data.tokenizer.vocab_size,
            "checksums": dict(data.checksums),
            **data.sizes(),
            "watched": {name: split.sizes() for name, split in data.watched.items()},
        },
    }


def _plan(run: Path) -> dict[str, Any]:
    began = read_began(run)
    if began is None or began.plan is None:
        return {}
    return {"plan": {"hash": began.plan.get("hash"), "code": code_sha256()}}


@cache
def code_sha256() -> str:
    """Return the SHA-256 over the package's Python files: each one's path and content, in order.

    Computed once a process: the thousand files take some 0.03 s.
    """
    package = Path(__file__).parents[1]
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py"), key=lambda each: each.relative_to(package).parts):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(package).as_posix()} {content}\n".encode())
    return total.hexdigest()


def _probes(session: Session) -> dict[str, dict[str, Any]]:
    """Describe what was asked along the training: how many examples, and what guessing scores."""
    return {
        each.probe.name: {
            "title": each.probe.title,
            "examples": len(each.items.examples),
            "chance": each.probe.chance,
            "chance_error": each.probe.chance_error(len(each.items.examples)),
            "reference": each.probe.reference,
        }
        for each in session.probes
    }


def _minutes(asked: float | None, seconds: float, run: Path) -> dict[str, Any] | None:
    if asked is None:
        return None
    used = round(seconds / 60, 4)
    replanned = [asdict(each) for each in read_replanned(run / RECIPE)]
    known = {"replanned": replanned} if replanned else {}
    return {"asked": asked, "used": used, "note": describe_use(asked, seconds), **known}


def commit() -> str | None:
    """Return the commit of the source that runs; None outside a checkout of it.

    As ``git describe`` writes it, with ``-dirty`` where tracked files were changed since.
    """
    own = Path(__file__)

    def git(*words: str) -> str:
        command = ["git", "-C", str(own.parent), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
        return done.stdout.strip()

    try:
        # Installed into somebody's environment, the package may stand inside another checkout.
        git("ls-files", "--error-unmatch", own.name)
        return git("describe", "--always", "--dirty", "--abbrev=12") or None
    except (OSError, subprocess.SubprocessError):
        return None
