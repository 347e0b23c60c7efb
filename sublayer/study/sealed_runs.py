"""The runs in a study's folder, and the sealed plan that each began under."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import read_json_object, read_toml
from sublayer.runs.inputs import read_began
from sublayer.study.execution.ensemble_run import ENSEMBLE
from sublayer.study.plan_file import PLAN
from sublayer.study.seal import (
    SHOWN_DIGITS,
    Seal,
    Sealing,
    describe_changes,
    digest,
    list_additions,
    list_alterations,
    read_seal,
)

_PLACES = ("arms/*/seed-*", "arms/*/*/seed-*", "stages/*/seed-*", "stages/*/*/seed-*")
_EARLIER = "the comparison was begun by a version of sublayer that sealed none"


def run_folders(study: Path) -> list[Path]:
    """Return the folders of all runs that have begun in that of a study, in order."""
    found = [path for place in _PLACES for path in study.glob(place)]
    return sorted(path for path in found if _has_begun(path))


def _has_begun(path: Path) -> bool:
    return any((path / name).is_file() for name in (RUN_RECIPE, ENSEMBLE))


def kept_seal(run: Path) -> Mapping[str, Any] | None:
    """Read the seal that a run began under; None where it kept none.

    Raises CheckpointError where what it kept is damaged.
    """
    if (run / ENSEMBLE).is_file():
        plan = read_json_object(run / ENSEMBLE, CheckpointError).get("plan")
        return plan if isinstance(plan, dict) else None
    began = read_began(run)
    return None if began is None else began.plan


def sealing_of(study: Path, stage_texts: Mapping[str, Mapping[str, str]] | None = None) -> Sealing:
    """Find out whether a study's plan was sealed, and whether it is as it was, and its runs' too.

    ``stage_texts`` are as ``describe_plan`` has them. Raises CheckpointError where what a run
    kept is damaged.
    """
    content = read_toml(study / PLAN, ConfigError)
    seals = [Seal.model_validate(each) for each in content.get("seals", [])]
    strangers = group_strangers(
        {str(run.relative_to(study)): kept_seal(run) for run in run_folders(study)}, seals
    )
    if not seals:
        removed = [describe_strangers(each, seals)[1] for each in strangers if each.seal]
        return Sealing(why_not=removed[0] if removed else _EARLIER)
    altered = [text for _, text in list_alterations(content, seals, stage_texts)]
    altered += [describe_strangers(each, seals)[1] for each in strangers]
    return Sealing(
        date=seals[0].date,
        hash=seals[0].hash,
        additions=tuple(text for _, text in list_additions(seals)),
        alterations=tuple(altered),
    )


@dataclass(frozen=True)
class BeganUnder:
    """Runs that began under one seal that their study does not have, or under none."""

    seal: Seal | None
    runs: tuple[str, ...]
    """Their folders, within that of the study."""

    @property
    def which(self) -> str:
        """Name them."""
        return f"{count(len(self.runs), 'run')} ({self.runs[0]}{' …' * (len(self.runs) > 1)})"


def group_strangers(
    began: Mapping[str, Mapping[str, Any] | None], seals: Sequence[Seal]
) -> list[BeganUnder]:
    """Group the runs that did not begin under a seal of their study, by the seal that they keep.

    ``began`` has what each run keeps, by its folder.
    """
    own = {digest(seal.model_dump()) for seal in seals}
    groups: dict[str, tuple[Seal | None, list[str]]] = {}
    for run, content in began.items():
        seal = None if content is None else read_seal(content)
        key = "" if seal is None else digest(seal.model_dump())
        if key not in own:
            groups.setdefault(key, (seal, []))[1].append(run)
    return [BeganUnder(seal, tuple(runs)) for seal, runs in groups.values()]


def describe_strangers(group: BeganUnder, seals: Sequence[Seal]) -> tuple[list[str], str]:
    """Describe the other plan that runs began under: the parts that differ, and the deviation."""
    if group.seal is None:
        return [], f"{group.which} kept no sealed plan"
    if not group.seal.is_whole:
        return [], f"{group.which} keep a plan that does not match its hash"
    if not seals:
        which = f"{group.which} began under the sealed plan {group.seal.hash[:SHOWN_DIGITS]}"
        return [], f"{which}, which {PLAN} no longer has"
    # The seal that stands in its place.
    same = [seal for seal in seals if seal.former == group.seal.former]
    other = same[0] if same else seals[-1]
    changes = describe_changes(group.seal.plan, other.plan)
    text = f"{group.which} began under plan {group.seal.hash[:SHOWN_DIGITS]}, and {PLAN} has "
    text += other.hash[:SHOWN_DIGITS]
    said = "; ".join(change for _, change in changes)
    return [part for part, _ in changes], f"{text}: {said or 'its date'}"
