"""The sealed plan of a study: settled and hashed before its first run, and added to since.

A seal is a table of ``study.toml`` with ``date``, ``former``, ``plan`` and ``hash``: the SHA-256 of
the JSON of the others, keys sorted, without spaces. A later addition, such as more seeds, gets a
further seal, whose ``former`` is the previous hash. Each run keeps the seal under which it began. A
hash proves that the plan came first only to those who received it beforehand.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from sublayer.files.parsing import Typed
from sublayer.statistics.difference import CONFIDENCE
from sublayer.study.question import Seeds

SHOWN_DIGITS = 12
PARTS = {
    "study": "name",
    "match": "matched budget",
    "arms": "arms",
    "stages": "stages",
    "score": "scoring",
    "tune": "tuning grid",
    "tune_by": "tuning criterion",
    "tuning_seeds": "tuning seeds",
    "extend": "tuning extension",
    "seeds": "seeds",
    "looks": "looks",
    "level": "level",
    "metric": "primary metric",
    "margin": "margin",
    "margin_stated": "margin",
    "margin_reason": "reason for the margin",
    "also": "further metrics with verdicts",
    "hypothesis": "hypothesis",
    "contrast": "contrast",
    "texts": "texts",
    "code": "code",
}
"""Parts of a plan, by name in words."""
ADDED = ("seeds", "looks", "extend", "code")
"""Parts that may change after the first run, with a record: verdicts account for them, or they do
not concern the question."""


class Seal(Typed):
    """A sealed plan."""

    date: str
    """UTC, in ISO 8601."""
    hash: str
    former: str = ""
    """The hash of the previous seal; empty for the first."""
    plan: dict[str, Any]

    @property
    def is_whole(self) -> bool:
        """True if its content has its hash."""
        return self.hash == seal_hash(self.model_dump())


def canonical(content: Any) -> bytes:
    """Write JSON that is identical for equal content: keys sorted, without spaces, UTF-8."""
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def digest(content: Any) -> str:
    """Return the SHA-256 of canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(content)).hexdigest()


def seal_hash(seal: Mapping[str, Any]) -> str:
    """Compute the hash of a seal, without its ``hash``."""
    return digest({name: value for name, value in seal.items() if name != "hash"})


def new_seal(plan: Mapping[str, Any], former: str) -> dict[str, Any]:
    """Seal a plan now; ``former`` is the hash of the previous seal, empty for the first."""
    date = datetime.now(UTC).isoformat(timespec="seconds")
    seal = {"date": date, "former": former, "plan": dict(plan)}
    return {**seal, "hash": seal_hash(seal)}


def code_now() -> dict[str, str]:
    """Return version and checksum of the running code, and its commit if known."""
    # Results name seals, and are read without importing PyTorch.
    from sublayer.runs.record import code_sha256, commit

    known = commit()
    code = {"version": version("sublayer"), "sha256": code_sha256()}
    return code if known is None else {**code, "commit": known}


def describe_plan(
    study: Mapping[str, Any],
    *,
    metric: str,
    extend: int = 0,
    stage_texts: Mapping[str, Mapping[str, str]] | None = None,
    level: float | None = None,
    code: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the plan in the content of a ``study.toml``, as it is sealed.

    Recipes, settled settings and stages are in that file in full, here by their digests. ``metric``
    decides; ``extend`` is the most extensions of a grid; ``stage_texts`` are digests of the files
    of stages, by arm and stage. ``level`` and ``code`` are by default the current ones.
    """
    request = study["asked"]
    about = study.get("about", {})
    question = about.get("question", {})
    against = about.get("against", {})
    settled = {arm["name"]: arm["settings"] for arm in study["settled"]}
    arms = {}
    for name, recipe in request["recipes"].items():
        arm = {"recipe": recipe, "settings": settled.get(name), "against": against.get(name, "")}
        arms[name] = digest(arm)
    looks = request.get("looks") or [study.get("planned_seeds", 0)]
    texts = {
        arm: {file["name"]: file["digest"] for file in inputs}
        for arm, inputs in study.get("inputs", {}).items()
    }
    plan = {
        "study": about.get("name", ""),
        "match": request["match"],
        "arms": arms,
        "stages": digest(request["stages"]) if "stages" in request else "",
        "score": request.get("score", {}),
        "tune": request["tune"],
        "tune_by": request.get("tune_by", "metric") if request["tune"] else "",
        "tuning_seeds": request.get("tuning_seeds", []),
        "extend": extend,
        "seeds": list(Seeds(request.get("first_seed", 0)).compared(looks[-1])),
        "looks": looks,
        "level": round(1.0 - CONFIDENCE, 9) if level is None else level,
        "metric": metric,
        "margin": request.get("margin", ""),
        "margin_stated": question.get("margin", ""),
        "margin_reason": question.get("margin_reason", ""),
        "also": question.get("also", []),
        "hypothesis": question.get("says", ""),
        "contrast": question.get("contrast", {}),
        "texts": {**texts, **(stage_texts or {})},
        "code": dict(code_now() if code is None else code),
    }
    # Missing parts are left out.
    return {name: value for name, value in plan.items() if value not in ("", [], {}, 0)}


def differing_parts(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the differing parts of two plans, in the order of ``PARTS``."""

    def content(plan: Mapping[str, Any], part: str) -> bytes:
        value = plan.get(part)
        if part == "code" and isinstance(value, Mapping):  # another commit may have the same code
            value = {name: fact for name, fact in value.items() if name != "commit"}
        return canonical(value)

    names = dict.fromkeys([*PARTS, *sorted({*one, *other})])
    return [name for name in names if content(one, name) != content(other, name)]


def describe_changes(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the differing parts of two plans, with the changes: ``margin 0.5, now 0.1``."""
    changes: dict[str, str] = {}
    parts = differing_parts(one, other)
    # The single look of a fixed number of seeds repeats the seeds.
    is_fixed = "seeds" in parts and all(len(plan.get("looks", [])) < 2 for plan in (one, other))
    for part in parts:
        text, before, now = PARTS.get(part, part), one.get(part), other.get(part)
        if part in ("arms", "texts") and isinstance(before, Mapping) and isinstance(now, Mapping):
            names = [key for key in {**before, **now} if before.get(key) != now.get(key)]
            text += f" ({', '.join(names)})"
        elif part != "stages":
            text += f" {_shown(part, before)}, now {_shown(part, now)}"
        if part != "looks" or not is_fixed:
            changes.setdefault(text, part)
    return [(part, text) for text, part in changes.items()]


def _shown(part: str, value: Any) -> str:
    match value:
        case None:
            return "none"
        case {"version": release, "sha256": code} if part == "code":
            return f"{release} {str(code)[:SHOWN_DIGITS]}"
        case [first, _, *_] if part == "seeds":
            return f"{first} to {value[-1]}"
        case list():
            return ", ".join(map(str, value))
        case dict():
            return ", ".join(f"{key}: {part}" for key, part in value.items())
    return str(value)


@dataclass(frozen=True)
class Sealing:
    """The sealed plan of a study, or its absence, and its changes since."""

    date: str = ""
    """Date of the first seal; empty without one."""
    hash: str = ""
    additions: tuple[str, ...] = ()
    """Changes recorded later, each with its date and hash."""
    alterations: tuple[str, ...] = ()
    """Unrecorded changes of the sealed plan."""
    why_not: str = ""
    """Reason for the absence of a seal."""

    def describe(self) -> str:
        """Describe it in one line, for a report."""
        if not self.hash:
            return f"Plan: not sealed; {self.why_not}."
        kinds = {
            "recorded since": self.additions,
            "changed since without a record": self.alterations,
        }
        changes = [f"{kind}: {'; '.join(texts)}" for kind, texts in kinds.items() if texts]
        return (
            f"Plan: sealed before the first run, on {shown_date(self.date)} (hash "
            f"{self.hash[:SHOWN_DIGITS]}); {'. '.join(changes) or 'unchanged since'}."
        )


def shown_date(date: str) -> str:
    """Write an ISO 8601 date for people, to the minute."""
    try:
        return f"{datetime.fromisoformat(date).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return date


def list_additions(seals: Sequence[Seal]) -> list[tuple[str, str]]:
    """Return each part that a later seal changed, and the change in words with date and hash."""
    return [
        (part, f"{change} ({shown_date(seal.date)}, hash {seal.hash[:SHOWN_DIGITS]})")
        for before, seal in itertools.pairwise(seals)
        for part, change in describe_changes(before.plan, seal.plan)
    ]


def list_alterations(
    study: Mapping[str, Any],
    seals: Sequence[Seal],
    stage_texts: Mapping[str, Mapping[str, str]] | None = None,
) -> Iterator[tuple[str, str]]:
    """Yield each part that differs from the last seal, with the change; "" for a damaged seal."""
    former = ""
    for seal in seals:
        if not seal.is_whole or seal.former != former:
            name = f"seal {seal.hash[:SHOWN_DIGITS]} of {shown_date(seal.date)}"
            yield "", f"{name} does not match its hash, or the seal before it: one was edited"
        former = seal.hash
    # Parts only in the seal are taken from there.
    sealed = seals[-1].plan
    stated = describe_plan(
        study,
        metric=study.get("about", {}).get("metric") or sealed.get("metric", ""),
        extend=sealed.get("extend", 0),
        stage_texts=stage_texts,
        level=sealed.get("level"),
        code=sealed.get("code", {}),
    )
    yield from describe_changes(sealed, stated)
