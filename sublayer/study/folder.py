"""Folder of a study: request and settled settings (``study.toml``), a folder for each run."""

import itertools
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

import tomli_w

from sublayer.config.data import TOKENIZERS
from sublayer.config.load import dump_recipe, recipe_of
from sublayer.config.recipe import HEADINGS, Recipe
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError
from sublayer.files.checkpoints import Input
from sublayer.files.parsing import check_typed, parse_toml, read_toml
from sublayer.files.storage import describe_absence, write_file
from sublayer.model.parameters import DRAWING_RULE
from sublayer.runs.folder import RunFolder, folders_named
from sublayer.runs.resume import check_same_inputs, list_inputs, of_checksums
from sublayer.study.arms import LONGEST_PART, Arm, differing_stages, in_path
from sublayer.study.budget import ORIGIN, settle
from sublayer.study.definition import Study
from sublayer.study.plan_file import (
    PLAN,
    About,
    Request,
    StudyPlan,
    describe_plan,
    differing_parts,
    seal_hash,
)
from sublayer.system.terminal import note
from sublayer.training.warm_start import StartModel


def _inputs(arm: Arm, data: Mapping[str, Data]) -> list[Input]:
    recipe = arm.loaded.recipe
    return list_inputs(recipe, data[arm.name], StartModel(recipe.init))


def arm_folder(study: Path, position: int, name: str) -> Path:
    """Return the folder of all runs of the arm at ``position``."""
    return study / "arms" / f"{position}-{in_path(name)[:LONGEST_PART]}"


class StudyFolder:
    """Files of a study, which resumes in its folder and never takes over another study's.

    ``study.toml`` is read at once: raises ConfigError if it is damaged.
    """

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        self._request = request.model_dump(exclude_unset=True)
        self._margin_factor = request.margin_factor
        self._plan = self._read()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against other processes.

        Kept tokenizers of a study that did not begin are removed. Raises ConfigError if another
        process holds the folder, or if it is not a folder.
        """
        with RunFolder(self.path).held():
            before = kept_tokenizers(self.path)
            try:
                yield
            finally:
                if not self.is_begun():
                    for path in kept_tokenizers(self.path) - before:
                        path.unlink()

    def check(self) -> None:
        """Raise ConfigError, with the differences, unless the folder is free or holds this study.

        Raises it, too, if seeds gave other initial weights when the study began: runs are compared
        by seed, so the two must not be mixed.
        """
        difference = self.foreign_content()
        if difference is not None:
            raise ConfigError(f"{self.path} holds {difference}: give another --out")
        if self._plan is not None and not self._has_our_weights():
            raise ConfigError(
                f"{self.path} was begun by another version of sublayer, with other initial "
                "weights for the same seeds: resume with that version, or give another --out"
            )
        if "stages" not in self._request:  # their margin is in a column's unit, and stated later
            self._check_stated("margin")
        self._check_stated("looks")

    def state_margin(self, margin: float | None, factor: float) -> None:
        """Add the margin to the request; ``factor`` is its display factor.

        Raises ConfigError if the study began with another.
        """
        if margin is not None:
            self._request = {**self._request, "margin": margin}
        self._margin_factor = factor
        self._check_stated("margin")

    def _check_stated(self, name: str) -> None:
        """Raise ConfigError if another margin, or other looks, were planned at the start."""
        plans = [self._plan["asked"], self._request] if self._plan else []
        values = [plan.get(name) for plan in plans]
        if values[:1] == values[1:]:
            return
        if name == "margin":
            values = [value and f"{value * self._margin_factor:g}" for value in values]
            option = f"--margin {values[0] or chr(34) * 2}"
        else:
            looks = values[0]
            option = f"--until decided --seeds-at-most {looks[-1]}" if looks else "--seeds"
        begun, now = ("none" if value is None else value for value in values)
        raise ConfigError(
            f"{self.path} was begun with {name} = {begun}, not {now}, and verdicts require the "
            f"value stated before the first run: continue with {option}, or give another --out"
        )

    def is_ours(self) -> bool:
        """Return whether the folder holds this study."""
        return self._plan is not None and self.foreign_content() is None

    def is_begun(self) -> bool:
        """Return whether a study has begun here."""
        return self._plan is not None

    def matched_arms(self, arms: Sequence[Arm]) -> list[Arm] | None:
        """Return the arms' settings at the start of the study; None if it has not begun.

        ``arms`` are the request's, in its order: ``check`` has passed.
        """
        if self._plan is None:
            return None
        return [
            settle(arm, settled["settings"], tuple(settled["matched"]), settled["residual"])
            for arm, settled in zip(arms, self._plan["settled"], strict=True)
        ]

    def begin(self, matched_arms: Sequence[Arm], data: Mapping[str, Data]) -> None:
        """Write the settled arms, and their inputs."""
        self._write(
            {
                "asked": self._request,
                "settled": [
                    {
                        "name": arm.name,
                        "settings": dict(arm.settled),
                        "matched": list(arm.matched),
                        "residual": arm.mismatch,
                    }
                    for arm in matched_arms
                ],
                "checksums": dict(next(iter(data.values())).checksums) if data else {},
                "inputs": {
                    arm.name: [source.model_dump() for source in _inputs(arm, data)]
                    for arm in matched_arms
                    if arm.name in data
                },
                "reported_seeds": [],
                "initial_weights": DRAWING_RULE,
                "seals": [],
            }
        )

    def check_inputs(self, arms: Sequence[Arm], data: Mapping[str, Data]) -> None:
        """Raise DataError, with both values, if an arm's inputs changed since the study began.

        An earlier version kept only the first arm's checksums.
        """
        if self._plan is None:
            return
        inputs = self._plan.get("inputs")
        for arm in arms if inputs else arms[:1]:
            what = f"{self.path}, arm {arm.name},"
            if inputs:
                before = [Input(**file) for file in inputs.get(arm.name, ())]
                now = _inputs(arm, data)
            else:
                before = of_checksums(self._plan["checksums"], {})
                now = of_checksums(data[arm.name].checksums, {})
                note(
                    f"{self.path} was begun by an earlier version: only the data checksums of "
                    f"{arm.name} are compared with those at its start"
                )
            check_same_inputs(what, arm.loaded.recipe, before, now, "give another --out")

    def listed(self, name: str) -> list[Any]:
        """Return a list of the plan, such as ``reported_seeds``, in order."""
        return list(self._plan.get(name, [])) if self._plan else []

    def add(self, name: str, value: Any) -> None:
        """Add a value to a list of the plan, unless it is there."""
        listed = self.listed(name)
        if value not in listed:
            self._change(**{name: [*listed, value]})

    def keep_command(self, command: str, about: About, *, n_runs: int, n_seeds: int) -> None:
        """Write the command that resumes the study, and its plan, for `sublayer runs`."""
        self._change(
            command=command,
            planned_runs=n_runs,
            planned_seeds=n_seeds,
            about=about.model_dump(exclude_none=True),
        )

    def _change(self, **changes: Any) -> None:
        """Write changes of the plan."""
        assert self._plan is not None, "a study begins before its runs"
        if any(self._plan.get(name) != value for name, value in changes.items()):
            self._write({**self._plan, **changes})

    def seal(
        self,
        metric: str,
        *,
        extend: int = 0,
        stage_texts: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Seal the plan before its first run; later seal additions, if any.

        Takes the arguments of ``describe_plan``. A study begun before seals existed stays unsealed.
        """
        assert self._plan is not None, "a study begins before its runs"
        seals = self._plan.get("seals")
        if seals is None:
            return
        stated = tomllib.loads(tomli_w.dumps(self._plan, multiline_strings=True))
        plan = describe_plan(stated, metric=metric, extend=extend, stage_texts=stage_texts)
        if not seals or differing_parts(seals[-1]["plan"], plan):
            date = datetime.now(UTC).isoformat(timespec="seconds")
            seal = {"date": date, "former": seals[-1]["hash"] if seals else "", "plan": plan}
            self.add("seals", {**seal, "hash": seal_hash(seal)})

    def _has_our_weights(self) -> bool:
        return self._plan is not None and self._plan.get("initial_weights") == DRAWING_RULE

    def foreign_content(self) -> str | None:
        """Name the foreign content of the folder; None if it holds this study or nothing."""
        if self._plan is None:
            return None if is_free(self.path) else "other files"
        begun, request = self._plan["asked"], self._request
        if begun["tune"] and "tuning_seeds" not in begun:
            return "a study that an earlier version tuned with seed 0, also a compared seed"
        stages = differing_stages(begun.get("stages"), request.get("stages"))
        if stages:
            return f"another study, with other {stages}"
        for key, usual in _IDENTITY.items():
            before, now = begun.get(key, usual), request.get(key, usual)
            if before != now:
                return f"another study, with {key} = {before}, not {now}"
        recipes = begun.get("recipes", {})
        if list(recipes) != list(request["recipes"]):
            return f"another study, of {', '.join(recipes)}"
        # Other weights are refused by ``check``, also with new or renamed fields.
        for name, recipe in request["recipes"].items() if self._has_our_weights() else ():
            # In the present format, a line per setting, without headings; newer fields have their
            # defaults.
            file, lines = str(self.path / PLAN), []
            for text in (recipes[name], recipe):
                read = recipe_of(parse_toml(text, file, ConfigError), file)
                plain = read.model_copy(update=dict.fromkeys(HEADINGS, ""))
                lines.append(dump_recipe(plain).splitlines())
            old, new = lines
            if old != new:
                gone = next((line for line in old if line not in new), "no setting")
                come = next((line for line in new if line not in old), "none")
                return f"another study: its arm {name} has {gone}, not {come}"
        return None

    def _read(self) -> dict[str, Any] | None:
        path = self.path / PLAN
        if not os.path.lexists(path):
            return None
        content = read_toml(path, ConfigError)
        plan = check_typed(content, StudyPlan, str(path), ConfigError)
        if [arm.name for arm in plan.settled] != list(plan.asked.recipes):
            raise ConfigError(f"{path} is damaged: its settled arms are not the requested ones")
        return content

    def _write(self, plan: dict[str, Any]) -> None:
        write_file(self.path / PLAN, tomli_w.dumps(plan, multiline_strings=True))
        self._plan = plan


_IDENTITY: dict[str, Any] = {
    **dict.fromkeys(("match", "tune", "score")),
    "match_multiple": 1,
    "tune_by": "metric",
    "first_seed": 0,
    "tuning_seeds": [],
}
"""Identifying parts of a request, and their defaults."""


def is_free(folder: Path) -> bool:
    """Return whether a folder is missing, or holds only hidden files."""
    if not folder.is_dir():
        return not folder.exists()
    return all(path.name.startswith(".") for path in folder.iterdir())


def find_folder(
    study: Study, request: Request, out: Path | None, *, resume: bool = False
) -> StudyFolder:
    """Return the folder ``out``, else the folder that holds the study, else the first free folder.

    Raises ConfigError for a damaged study.toml on the way, and with ``resume`` if no folder holds
    the study.
    """
    names = study.folder or study.name
    for path in () if out else takewhile(os.path.lexists, folders_named(names)):
        folder = StudyFolder(path, request)
        if folder.is_ours():
            return folder  # its margin and looks are checked on resume
    folder = StudyFolder(out or next(filter(is_free, folders_named(names))), request)
    if resume and not folder.is_begun():
        first = out or next(folders_named(names))
        held = f"{first} holds {StudyFolder(first, request).foreign_content() or 'no study'}"
        if not os.path.lexists(first):
            held = describe_absence(first)
        raise ConfigError(
            f"{held}, so there is nothing to resume: leave out --resume to begin in "
            f"{folder.path}, or name the study's folder with --out"
        )
    return folder


_TOKENIZER = ".tokenizer"


def share_tokenizer(
    arms: Sequence[Arm], data: Callable[[Recipe], Data], folder: Path
) -> tuple[Arm, ...]:
    """Share the baseline's tokenizer with arms of equal kind and size on another text.

    It is kept in the study's folder. Arms with another tokenizer, or that start from a run, keep
    theirs.
    """
    baseline = arms[0].loaded.recipe
    tokenizer = data(baseline).tokenizer
    training = _trained_as(baseline)
    shared = []
    for arm in arms:
        recipe = arm.loaded.recipe
        arms_tokenizer = data(recipe).tokenizer
        is_another = arms_tokenizer.fingerprint != tokenizer.fingerprint
        if is_another and training is not None and _trained_as(recipe) == training:
            path = keep_tokenizer(folder.absolute(), tokenizer.serialize(is_kept=True))
            loaded = arm.loaded.vary({"data.tokenizer": str(path)}, origin=ORIGIN)
            arm = replace(arm, loaded=loaded)
        shared.append(arm)
    return tuple(shared)


def _trained_as(recipe: Recipe) -> dict[str, Any] | None:
    """Return the settings of the tokenizer that a recipe trains; None without one."""
    if recipe.init.run is not None or recipe.data.tokenizer not in TOKENIZERS:
        return None
    fields = ("tokenizer", "vocab_size", "merges", "normalization", "sentinels", "special_tokens")
    return {name: getattr(recipe.data, name) for name in fields}


def kept_tokenizers(folder: Path) -> set[Path]:
    """Return the files of the tokenizers that a study's folder keeps."""
    return set(folder.glob(f"{_TOKENIZER}*.json"))


def keep_tokenizer(folder: Path, content: bytes) -> Path:
    """Save a tokenizer in a folder, under the first name that is free or already holds it."""
    for number in itertools.count(1):
        path = folder / (f"{_TOKENIZER}.json" if number == 1 else f"{_TOKENIZER}-{number}.json")
        if path.is_file() and path.read_bytes() == content:
            break
        if not os.path.lexists(path):
            write_file(path, content)
            break
    return path
