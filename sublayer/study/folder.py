"""The folder of a study: what was asked and settled (``study.toml``), and a folder for each run."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from sublayer.config.layers import dump_recipe
from sublayer.config.paths import anchored
from sublayer.errors import ConfigError, DataError
from sublayer.parsing import read_toml
from sublayer.run_folder import RunFolder
from sublayer.storage import write_file
from sublayer.study.arms import Arm
from sublayer.study.budget import Settled
from sublayer.study.match import Rule
from sublayer.typed import Count, Number, Typed, check_typed

PLAN = "study.toml"


@dataclass(frozen=True)
class Request:
    """What makes a study the same study: arms, matching, tuning; not the number of seeds, which may grow."""

    arms: tuple[Arm, ...]
    match: Rule
    tune: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Put it into plain values; an arm is its whole recipe, paths absolute."""
        recipes = {arm.name: dump_recipe(anchored(arm.loaded.recipe)) for arm in self.arms}
        return {"match": self.match, "tune": list(self.tune), "recipes": recipes}


class _Asked(Typed):
    match: str
    tune: list[str]
    recipes: dict[str, str]


class _Settled(Typed):
    name: str
    settings: dict[str, Any]
    matched: list[str]
    residual: Number


class _Plan(Typed):
    """What ``study.toml`` holds."""

    asked: _Asked
    settled: list[_Settled]
    checksums: dict[str, str]
    reported_seeds: list[Count]


class StudyFolder:
    """The files of a study; it goes on where it stood, and never takes over another study's folder."""

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        self._request = request.as_dict()
        self._plan = self._read()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder against other processes. Raises ConfigError if one holds it or it is no folder."""
        with RunFolder(self.path).held():
            yield

    def check(self) -> None:
        """Raise ConfigError, saying what differs, unless the folder is free or holds this study."""
        difference = self._difference()
        if difference is not None:
            raise ConfigError(f"{self.path} holds {difference}: give another --out")

    def is_usable(self) -> bool:
        """Whether the folder is free or holds this study."""
        return self._difference() is None

    def settled(self, arms: Sequence[Arm]) -> list[Settled] | None:
        """Give what was settled for the arms when the study began; None if it has not begun."""
        if self._plan is None:
            return None
        return [
            Settled(arm, each["settings"], tuple(each["matched"]), each["residual"])
            for arm, each in zip(arms, self._plan["settled"], strict=True)
        ]

    def begin(self, settled: Sequence[Settled], checksums: Mapping[str, str]) -> None:
        """Keep what was settled, and the text that it was settled for."""
        arms = [
            {"name": each.arm.name, "settings": dict(each.settings), "matched": list(each.matched),
             "residual": each.residual}
            for each in settled
        ]  # fmt: skip
        plan = {"asked": self._request, "settled": arms, "checksums": dict(checksums), "reported_seeds": []}
        self._write(plan)

    def check_text(self, checksums: Mapping[str, str]) -> None:
        """Raise DataError if the text has changed since the study began."""
        if self._plan is not None and self._plan["checksums"] != dict(checksums):
            raise DataError(f"the text has changed since {self.path} began: bring it back, or give another --out")

    def reported_seeds(self) -> list[int]:
        """List the numbers of seeds that a report was written for, in order."""
        return list(self._plan["reported_seeds"]) if self._plan else []

    def add_report(self, n_seeds: int) -> None:
        """Remember that a report for so many seeds was written."""
        assert self._plan is not None, "a study begins before it reports"
        if n_seeds not in self._plan["reported_seeds"]:
            self._write({**self._plan, "reported_seeds": [*self._plan["reported_seeds"], n_seeds]})

    def run(self, position: int, name: str, trial: str, seed: int) -> Path:
        """Name the folder of one run: of the arm at ``position``, with the settings of a ``trial`` ("" for none)."""
        arm = self.path / "arms" / f"{position}-{_slug(name)}"
        return (arm / _slug(trial) if trial else arm) / f"seed-{seed}"

    def _difference(self) -> str | None:
        if self._plan is None:
            is_occupied = self.path.exists() and (
                not self.path.is_dir() or any(not path.name.startswith(".") for path in self.path.iterdir())
            )
            return "other files" if is_occupied else None
        asked = self._plan["asked"]
        for key in ("match", "tune"):
            if asked.get(key) != self._request[key]:
                return f"another study, with {key} = {asked.get(key)}, not {self._request[key]}"
        before, now = asked.get("recipes", {}), self._request["recipes"]
        if list(before) != list(now):
            return f"another study, of {', '.join(before)}"
        changed = next((name for name in now if before[name] != now[name]), None)
        return None if changed is None else f"another study: {_first_change(changed, before[changed], now[changed])}"

    def _read(self) -> dict[str, Any] | None:
        path = self.path / PLAN
        if not os.path.lexists(path):
            return None
        content = read_toml(path, ConfigError)
        plan = check_typed(content, _Plan, str(path), ConfigError)
        if [each.name for each in plan.settled] != list(plan.asked.recipes):
            raise ConfigError(f"{path} is damaged: what is settled is not settled for the arms that were asked for")
        return content

    def _write(self, plan: dict[str, Any]) -> None:
        write_file(self.path / PLAN, tomli_w.dumps(plan, multiline_strings=True))
        self._plan = plan


def _first_change(name: str, before: str, now: str) -> str:
    gone = [line for line in before.splitlines() if line not in now.splitlines()]
    come = [line for line in now.splitlines() if line not in before.splitlines()]
    return f"its arm {name} has {(gone or ['no setting'])[0]}, not {(come or ['none'])[0]}"


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", name).strip("-.")[:60]
