"""The folder of a study: its request and settings (``study.toml``), a folder for each run."""

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import tomli_w

from sublayer.config.catalog import HEADINGS
from sublayer.config.load import vary
from sublayer.config.recipe import Recipe
from sublayer.config.run_recipe import dump_recipe, recipe_of
from sublayer.config.texts import TOKENIZERS
from sublayer.data.prepare import Data
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import ConfigError
from sublayer.files.checkpoints import Input
from sublayer.files.parsing import check_typed, parse_toml, read_toml
from sublayer.files.storage import write_file
from sublayer.model.init import DRAWING_RULE
from sublayer.runs.folder import RunFolder, earlier_folders_named, folders_named
from sublayer.runs.inputs import check_same_inputs, list_inputs, of_checksums
from sublayer.study.arms import LONGEST_PART, Arm, folder_part, in_path
from sublayer.study.budget.match import ORIGIN, settle
from sublayer.study.definition import Study
from sublayer.study.plan_file import PLAN, About, Plan, Request
from sublayer.study.seal import describe_plan, differing_parts, new_seal
from sublayer.study.stages import differing_stages
from sublayer.system.stages import note
from sublayer.training.warm_start import Pretrained

_WAY_ON = "give another --out"


def _inputs(arm: Arm, data: Mapping[str, Data]) -> list[Input]:
    recipe = arm.loaded.recipe
    return list_inputs(recipe, data[arm.name], Pretrained(recipe.init))


def arm_folder(study: Path, position: int, name: str) -> Path:
    """Return the folder of all runs of the arm at ``position``."""
    return study / "arms" / f"{position}-{in_path(name)[:LONGEST_PART]}"


class StudyFolder:
    """The files of a study, which resumes where it stood and never takes over another's folder.

    ``study.toml`` is read at once: raises ConfigError where it is damaged.
    """

    def __init__(self, path: Path, request: Request) -> None:
        self.path = path
        self._request = request.model_dump(exclude_unset=True)
        self._margin_factor = request.margin_factor
        self._plan = self._read()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder against other processes.

        The tokenizers that were kept for a study that then did not begin are taken away again.
        Raises ConfigError if another process holds the folder or it is no folder.
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
        """Raise ConfigError, saying what differs, unless the folder is free or holds this study.

        Also where the study's runs began with other weights than a seed gives now: runs of one seed
        are compared, so that the two must not be mixed.
        """
        difference = self._difference()
        if difference is not None:
            raise ConfigError(f"{self.path} holds {difference}: give another --out")
        if self._plan is not None and not self._has_our_weights():
            raise ConfigError(
                f"{self.path} was begun by another version of sublayer, whose seeds give other "
                "initial weights: resume with that version, or give another --out"
            )
        if "stages" not in self._request:  # their margin is of a column, and stated later
            self._check_margin()
        self._check_looks()

    def state_margin(self, margin: float | None, factor: float) -> None:
        """Add to the request the margin that is asked for, ``factor`` times which is shown.

        Raises ConfigError where the study was begun with another.
        """
        if margin is not None:
            self._request = {**self._request, "margin": margin}
        self._margin_factor = factor
        self._check_margin()

    def _check_margin(self) -> None:
        """Raise ConfigError where another margin was stated before the first run."""
        if self._plan is None:
            return
        plans = self._plan["asked"], self._request
        stated, requested = (plan.get("margin") for plan in plans)
        if stated != requested:
            raise ConfigError(
                f"{self.path} was begun with {self._margin(stated)}, not "
                f"{self._margin(requested)}, and a verdict holds for what was stated before: give "
                f"--margin {self._shown(stated)}, or another --out"
            )

    def _check_looks(self) -> None:
        """Raise ConfigError where the study was begun to be stopped elsewhere, or not to be."""
        if self._plan is None:
            return
        looks = self._plan["asked"].get("looks", [])
        if looks == self._request.get("looks", []):
            return
        if looks:
            raise ConfigError(
                f"{self.path} was begun to be looked at with {', '.join(map(str, looks))} seeds, "
                f"which its verdicts hold for: go on with --until decided --seeds-at-most "
                f"{looks[-1]}, or give another --out"
            )
        raise ConfigError(
            f"{self.path} was begun with a fixed number of seeds, and to stop where it is decided "
            "has to be planned before: go on with --seeds, or give another --out"
        )

    def _margin(self, margin: float | None) -> str:
        return "no margin" if margin is None else f"a margin of {self._shown(margin)}"

    def _shown(self, margin: float | None) -> str:
        return '""' if margin is None else f"{margin * self._margin_factor:g}"

    def is_free(self) -> bool:
        """Return whether the folder holds nothing yet."""
        return self._plan is None and not self._is_occupied()

    def is_ours(self) -> bool:
        """Return whether the folder holds this study."""
        return self._plan is not None and self._difference() is None

    def matched_arms(self, arms: Sequence[Arm]) -> list[Arm] | None:
        """Return the arms' settings from when the study began; None if it has not begun.

        ``arms`` are the request's, in its order: ``check`` has passed.
        """
        if self._plan is None:
            return None
        matched_arms = []
        for arm, kept in zip(arms, self._plan["settled"], strict=True):
            matched = tuple(kept["matched"])
            matched_arms.append(settle(arm, kept["settings"], matched, kept["residual"]))
        return matched_arms

    def is_begun(self) -> bool:
        """Return whether the study has begun here."""
        return self._plan is not None

    def begin(self, matched_arms: Sequence[Arm], data: Mapping[str, Data]) -> None:
        """Write the settled arms, and the inputs that they were settled for."""
        arms = [
            {
                "name": arm.name,
                "settings": dict(arm.settled),
                "matched": list(arm.matched),
                "residual": arm.mismatch,
            }
            for arm in matched_arms
        ]
        inputs = {arm.name: _inputs(arm, data) for arm in matched_arms if arm.name in data}
        plan = {
            "asked": self._request,
            "settled": arms,
            "checksums": dict(next(iter(data.values())).checksums) if data else {},
            "inputs": {name: [x.model_dump() for x in files] for name, files in inputs.items()},
            "reported_seeds": [],
            "initial_weights": DRAWING_RULE,
            "seals": [],
        }
        self._write(plan)

    def check_inputs(self, arms: Sequence[Arm], data: Mapping[str, Data]) -> None:
        """Raise DataError, with both values, where an arm's inputs changed since the study began.

        Of a study that an earlier version began the first arm's checksums are compared.
        """
        if self._plan is None:
            return
        known = self._plan.get("inputs") or {}
        if not known:
            first = arms[0]
            recipe, before = first.loaded.recipe, of_checksums(self._plan["checksums"], {})
            now = of_checksums(data[first.name].checksums, {})
            check_same_inputs(str(self.path), recipe, before, now, _WAY_ON)
            note(
                f"{self.path} was begun by an earlier version: of its data the checksums of "
                f"{first.name} alone are compared with what it began with"
            )
        for arm in arms if known else ():
            before = [Input(**file) for file in known.get(arm.name, ())]
            what = f"{self.path}, arm {arm.name},"
            check_same_inputs(what, arm.loaded.recipe, before, _inputs(arm, data), _WAY_ON)

    def reported_seeds(self) -> list[int]:
        """Return the numbers of seeds that a report was written for, in order."""
        return self._listed("reported_seeds")

    def add_report(self, n_seeds: int) -> None:
        """Write that a report for so many seeds exists."""
        self._append("reported_seeds", n_seeds)

    def extended(self) -> list[float]:
        """Return the values that were tried beyond the grid, in order."""
        return self._listed("extended")

    def add_extended(self, value: float) -> None:
        """Write that a value beyond the grid is tried."""
        self._append("extended", value)

    def add_computing(self, jobs: int, cluster: str | None) -> None:
        """Write that so many runs are made at a time, or that a kind of cluster makes them.

        One run at a time leaves nothing to say.
        """
        if jobs > 1:
            self._append("jobs", jobs)
        if cluster is not None:
            self._append("clusters", cluster)

    def keep_command(self, command: str, about: About, *, n_runs: int, n_seeds: int) -> None:
        """Write the command that resumes the study, and its plan, as `sublayer runs` lists it."""
        self._change(
            command=command,
            planned_runs=n_runs,
            planned_seeds=n_seeds,
            about=about.model_dump(exclude_none=True),
        )

    def _listed(self, name: str) -> list[Any]:
        return list(self._plan.get(name, [])) if self._plan else []

    def _append(self, name: str, value: Any) -> None:
        """Add a value to a list of the plan, unless it is there."""
        listed = self._listed(name)
        if value not in listed:
            self._change(**{name: [*listed, value]})

    def _change(self, **changes: Any) -> None:
        """Write what changes in the plan."""
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
        """Seal the plan before its first run; later seal additions, if there are any.

        The arguments are those of ``describe_plan``. A study that was begun before there were seals
        is left without.
        """
        assert self._plan is not None, "a study begins before its runs"
        seals = self._plan.get("seals")
        if seals is None:
            return
        stated = tomllib.loads(tomli_w.dumps(self._plan, multiline_strings=True))
        plan = describe_plan(stated, metric=metric, extend=extend, stage_texts=stage_texts)
        if not seals or differing_parts(seals[-1]["plan"], plan):
            former = seals[-1]["hash"] if seals else ""
            self._change(seals=[*seals, new_seal(plan, former)])

    def last_seal(self) -> Mapping[str, Any] | None:
        """Return the seal that runs begin under now; None where the plan is not sealed."""
        seals = self._plan.get("seals") if self._plan else None
        return seals[-1] if seals else None

    def run(self, position: int, name: str, trial: str, seed: int) -> Path:
        """Return the folder of one run of the arm at ``position``; ``trial`` is "" for none."""
        arm = arm_folder(self.path, position, name)
        parent = arm / folder_part(trial) if trial else arm
        return parent / f"seed-{seed}"

    def _has_our_weights(self) -> bool:
        return self._plan is not None and self._plan.get("initial_weights") == DRAWING_RULE

    def _difference(self) -> str | None:
        """Name the foreign content of the folder; None where it holds this study or nothing."""
        if self._plan is None:
            return "other files" if self._is_occupied() else None
        kept, request = self._plan["asked"], self._request
        stages = differing_stages(kept.get("stages"), request.get("stages"))
        if stages:
            return f"another study, with other {stages}"
        for key in ("match", "tune", "score"):
            if kept.get(key) != request.get(key):
                return f"another study, with {key} = {kept.get(key)}, not {request.get(key)}"
        if kept["tune"] and "tuning_seeds" not in kept:
            return "a study that an earlier version tuned with seed 0, which it compares too"
        usual = {"tune_by": "metric", "first_seed": 0, "tuning_seeds": []}
        for key, default in usual.items():
            before, now = kept.get(key, default), request.get(key, default)
            if before != now and key == "tune_by":
                return f"another study, tuned by its {before}, not its {now}"
            if before != now:
                return f"another study, with {key.replace('_', ' ')} {before}, not {now}"
        recipes = kept.get("recipes", {})
        if list(recipes) != list(request["recipes"]):
            return f"another study, of {', '.join(recipes)}"
        if not self._has_our_weights():
            # Refused by ``check``, also where fields have come or were renamed since.
            return None
        for name, recipe in request["recipes"].items():
            written, asked_for = self._settings_of(recipes[name]), self._settings_of(recipe)
            if written != asked_for:
                old, new = written.splitlines(), asked_for.splitlines()
                gone = next((line for line in old if line not in new), "no setting")
                come = next((line for line in new if line not in old), "none")
                return f"another study: its arm {name} has {gone}, not {come}"
        return None

    def _settings_of(self, recipe: str) -> str:
        """Write an arm's recipe as it is written today, without headings.

        Fields that came since it was written have their defaults. Raises ConfigError for none.
        """
        file = str(self.path / PLAN)
        read = recipe_of(parse_toml(recipe, file, ConfigError), file)
        return dump_recipe(read.model_copy(update=dict.fromkeys(HEADINGS, "")))

    def _is_occupied(self) -> bool:
        if not self.path.is_dir():
            return self.path.exists()
        return any(not path.name.startswith(".") for path in self.path.iterdir())

    def _read(self) -> dict[str, Any] | None:
        path = self.path / PLAN
        if not os.path.lexists(path):
            return None
        content = read_toml(path, ConfigError)
        plan = check_typed(content, Plan, str(path), ConfigError)
        settled_names = [arm.name for arm in plan.settled]
        if settled_names != list(plan.asked.recipes):
            raise ConfigError(
                f"{path} is damaged: what is settled is not settled for the arms that were asked "
                "for"
            )
        return content

    def _write(self, plan: dict[str, Any]) -> None:
        text = tomli_w.dumps(plan, multiline_strings=True)
        write_file(self.path / PLAN, text)
        self._plan = plan


def find_folder(study: Study, request: Request, out: Path | None) -> StudyFolder:
    """Return the folder ``out``, else the one that holds the study, else the first that is free.

    One that an earlier version began, which named it after the recipe alone, is found too. Raises
    ConfigError where a study.toml on the way is damaged.
    """
    if out is not None:
        return StudyFolder(out, request)
    names = study.folder or study.name
    taken = takewhile(os.path.lexists, folders_named(names))
    for path in (*taken, *takewhile(os.path.lexists, earlier_folders_named(study.name))):
        folder = StudyFolder(path, request)
        if folder.is_ours():
            return folder  # its margin and looks are checked where it is gone on with
    every = (StudyFolder(path, request) for path in folders_named(names))
    return next(folder for folder in every if folder.is_free())


_TOKENIZER = ".tokenizer"


def share_tokenizer(
    arms: Sequence[Arm], data: Callable[[Recipe], Data], folder: Path
) -> tuple[Arm, ...]:
    """Share the baseline's tokenizer with arms of the same kind and size on another text.

    It is kept in the study's folder. Arms that ask for another tokenizer, or start from a run, keep
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
            path = keep_tokenizer(folder.absolute(), *kept_forms(tokenizer))
            loaded = vary(arm.loaded, {"data.tokenizer": str(path)}, origin=ORIGIN)
            arm = replace(arm, loaded=loaded)
        shared.append(arm)
    return tuple(shared)


def kept_forms(tokenizer: Tokenizer) -> tuple[bytes, bytes]:
    """Return the content of a tokenizer's file as it is kept now, and as it was."""
    return tokenizer.serialize(is_kept=True), tokenizer.serialize()


def _trained_as(recipe: Recipe) -> tuple[str | int | None, ...] | None:
    """Return the settings of the tokenizer that a recipe trains; None where it trains none."""
    is_trained = recipe.init.run is None and recipe.data.tokenizer in TOKENIZERS
    if not is_trained:
        return None
    data = recipe.data
    return (
        data.tokenizer,
        data.vocab_size,
        data.merges,
        data.normalization,
        data.sentinels,
        data.special_tokens,
    )


def kept_tokenizers(folder: Path) -> set[Path]:
    """Return the files of the tokenizers that a study's folder keeps."""
    return set(folder.glob(f"{_TOKENIZER}*.json"))


def keep_tokenizer(folder: Path, content: bytes, former: bytes = b"") -> Path:
    """Save a tokenizer in a folder, under the first name that is free or already holds it.

    ``former`` is its content as earlier versions kept it.
    """
    known = (content, former or content)
    number = 1
    while True:
        name = f"{_TOKENIZER}.json" if number == 1 else f"{_TOKENIZER}-{number}.json"
        path = folder / name
        if path.is_file() and path.read_bytes() in known:
            return path
        if not os.path.lexists(path):
            write_file(path, content)
            return path
        number += 1
