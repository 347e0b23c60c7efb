"""The ledger of a loop: candidate after candidate against a moving champion, one error for all.

A loop that judges a hundred candidates at 5 % each keeps two or three that are no better. A ledger
is a file that records looks and gives the next one its level, so that over the loop the probability
of keeping any candidate that is no better is at most 5 %, the error of its plan:

- Of ``n`` looks that may still come, the next may spend ``1 / n`` of the error that is left. A
  plan of 100 looks gives each 0.0005, as Bonferroni's correction does; without an end it is as
  much as in a plan of 200, and from the 101st look on ``left / look``, so that it lasts for ever.
- A look that keeps its candidate has its spending returned (Holm 1979; in a sequence: Tian and
  Ramdas 2021, *Online control of the familywise error rate*, online fallback). So whatever was kept
  before, looks at candidates that are no better never spend more than the error together.
- Only a keep is an error, and it is on one side: a two-sided judgement has twice the spending for
  its level.

Every look counts, also a second one at the same candidate with more seeds. Judging the same runs
again is the same look, at no cost. By the union bound this holds for candidates with separate runs
under any dependence; the reuse of a champion's runs, for which it was kept, is validated by
simulation (``benchmarks/ledger_errors.py``).
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sublayer.errors import ConfigError, DataError
from sublayer.files.parsing import parse_json
from sublayer.files.storage import is_at, open_regular, try_lock
from sublayer.statistics.contrasts import Difference
from sublayer.system.terminal import stage

VERSION = 1
ERROR = 0.05
"""Family-wise error of a loop: probability of keeping any candidate that is no better."""
FIRST_HUNDRED = 100
"""Looks that share half of the error equally in a loop without an end."""
Probability = TypeVar("Probability", float, NDArray[np.float64])
_BEGINS = b'{"sublayer_ledger": '
_WAITING_S = 0.05

Line = dict[str, Any]
"""A line of a ledger: the plan, or a look."""
ChampionIs = Literal["first", "unchanged", "kept", "former", "not kept", "new"]
"""Earlier role of the champion's runs: none at the first look, the previous champion, a candidate
kept since, an earlier champion, a candidate not kept, or none at any look."""


@dataclass(frozen=True)
class LedgerPlan:
    """Metric, direction, margin and planned looks of a loop, fixed with its first look."""

    metric: str
    is_lower_better: bool
    margin: float | None = None
    looks: int | None = None
    """None: the loop has no end."""
    error: float = ERROR


@dataclass(frozen=True)
class LedgerRuns:
    """The runs of a candidate or champion, identified by their content."""

    name: str
    seeds: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class LedgerLook:
    """A look, and the error that it leaves."""

    number: int
    """From 1."""
    planned: int | None
    level: float
    """Two-sided, for all candidates of the look together."""
    spending: float
    """The probability of a false keep at this look."""
    is_returned: bool
    """True if its spending was returned, since it kept all of its candidates."""
    left: float
    """Error left for later looks."""
    error: float
    """Error of the loop."""
    candidates: tuple[str, ...]
    kept: tuple[str, ...]
    champion: str
    champion_is: ChampionIs
    is_repeated: bool
    """True if an earlier look judged the same runs, so that nothing was spent."""
    seal: str
    """Seal of the ledger's line: a log of it shows later whether lines were removed."""


def runs_of(
    name: str, values: Mapping[Any, float | None], items: Mapping[Any, ArrayLike] | None = None
) -> LedgerRuns:
    """Describe runs by seed: the metric's value, None for a failed run, and ``[N]`` items."""
    digest = hashlib.sha256()
    seeds = sorted(values, key=str)
    for seed in seeds:
        value = values[seed]
        digest.update(f"{seed}\n{None if value is None else float(value).hex()}\n".encode())
        if items is not None and seed in items:
            array = np.ascontiguousarray(np.asarray(items[seed], dtype=np.float64))
            digest.update(f"{array.shape}\n".encode() + array.tobytes())
    return LedgerRuns(name, tuple(map(str, seeds)), digest.hexdigest())


def looks_to_share(number: int, planned: int | None) -> int:
    """Return the number of looks that share the error left at look ``number``."""
    if planned is not None:
        return planned - number + 1
    return max(2 * FIRST_HUNDRED - number + 1, number)


def level_of(spending: Probability, n_candidates: int) -> Probability:
    """Return the two-sided level of a look with probability ``spending`` of a false keep.

    For several candidates against one champion, some better and some worse, the bound assumes
    estimates without negative correlation.
    """
    if n_candidates == 1:
        return 2 * spending
    return 1 - (1 - spending) ** 2


class Ledger:
    """An open ledger, locked against other processes: ``level_for``, judge, then ``record``."""

    def __init__(self, path: Path, plan: LedgerPlan, lines: list[Line], descriptor: int) -> None:
        self._path = path
        self._plan = plan
        self._looks = lines[1:]
        self._seal = lines[-1]["seal"]
        self._left = float(lines[-1].get("left", plan.error))
        self._descriptor = descriptor
        self._pending: tuple[LedgerRuns, Sequence[LedgerRuns]] | None = None

    @property
    def n_looks(self) -> int:
        """The number of looks so far."""
        return len(self._looks)

    def level_for(self, candidates: Sequence[LedgerRuns], champion: LedgerRuns) -> float:
        """Return the two-sided level of a joint judgement of candidates against a champion.

        The same runs have the level of their earlier look. Raises ConfigError if all looks of the
        plan are spent.
        """
        self._pending = champion, candidates
        earlier = self._earlier(champion, candidates)
        if earlier is not None:
            return float(earlier["level"])
        return _round(level_of(self._spending(), len(candidates)))

    def record(self, differences: Sequence[Difference]) -> LedgerLook:
        """Record the look of the last level: its judgement and its kept candidates.

        Better candidates are kept. Nothing is written for runs that were judged before. Raises
        DataError if their judgement changed.
        """
        assert self._pending is not None, "a look is recorded once, after its level was asked for"
        champion, candidates = self._pending
        self._pending = None
        judged = {difference.arm: difference for difference in differences}
        assert judged.keys() == {arm.name for arm in candidates}, "each candidate is judged"
        earlier = self._earlier(champion, candidates)
        if earlier is not None:
            then = {row["sha256"]: row["verdict"] for row in earlier["candidates"]}
            for runs in candidates:
                before, now = then[runs.sha256], judged[runs.name].verdict
                if before != now:
                    raise DataError(
                        f"{self._path}, look {earlier['look']}: the same runs of {runs.name} were "
                        f'"{before}", and are "{now}" now: judge them with the same options and '
                        "version, or begin another ledger"
                    )
            return self._look(earlier, is_repeated=True)
        spending = self._spending()
        rows: list[dict[str, Any]] = []
        for candidate in candidates:
            difference = judged[candidate.name]
            row = asdict(candidate)
            for name in ("mean", "low", "high", "p"):
                value = getattr(difference, name)
                is_number = value is not None and np.isfinite(value)
                row["difference" if name == "mean" else name] = float(value) if is_number else None
            verdict = difference.verdict
            rows.append(row | {"verdict": verdict, "kept": verdict == "better"})
        is_returned = all(row["kept"] for row in rows)
        line: Line = {
            "look": self.n_looks + 1,
            "time": _now(),
            "champion": {**asdict(champion), "is": self._champion_is(champion)},
            "candidates": rows,
            "level": _round(level_of(spending, len(rows))),
            "spending": spending,
            "returned": is_returned,
            "left": _round(self._left - (0.0 if is_returned else spending)),
        }
        line["seal"] = _seal(line, self._seal)
        _append(self._descriptor, line, self._path)
        self._looks.append(line)
        self._seal, self._left = line["seal"], line["left"]
        return self._look(line, is_repeated=False)

    def _spending(self) -> float:
        number, planned = self.n_looks + 1, self._plan.looks
        if planned is not None and number > planned:
            raise ConfigError(
                f"{self._path}: all {planned} looks of its plan are spent: begin another ledger, "
                "with new runs of the champion; its error adds to this one's"
            )
        return _round(self._left / looks_to_share(number, planned))

    def _earlier(self, champion: LedgerRuns, candidates: Sequence[LedgerRuns]) -> Line | None:
        """Return the line of the look that judged the same runs, if any."""
        contents = sorted(candidate.sha256 for candidate in candidates)
        for line in self._looks:
            then = sorted(row["sha256"] for row in line["candidates"])
            if line["champion"]["sha256"] == champion.sha256 and then == contents:
                return line
        return None

    def _champion_is(self, champion: LedgerRuns) -> ChampionIs:
        if not self._looks:
            return "first"
        standing = self._looks[0]["champion"]["sha256"]
        hashes: list[str] = []
        former: set[str] = set()
        seen: set[str] = set()
        for line in self._looks:
            used = line["champion"]["sha256"]
            if used != standing:
                former.add(standing)
                standing, hashes = used, []
            hashes = [row["sha256"] for row in line["candidates"] if row["kept"]] or hashes
            seen |= {row["sha256"] for row in line["candidates"] if not row["kept"]}
        if champion.sha256 in hashes:
            return "kept"
        if champion.sha256 == standing:
            return "former" if hashes else "unchanged"
        if champion.sha256 in former:
            return "former"
        return "not kept" if champion.sha256 in seen else "new"

    def _look(self, line: Line, *, is_repeated: bool) -> LedgerLook:
        return LedgerLook(
            number=line["look"],
            planned=self._plan.looks,
            level=line["level"],
            spending=line["spending"],
            is_returned=line["returned"],
            left=self._left,
            error=self._plan.error,
            candidates=tuple(row["name"] for row in line["candidates"]),
            kept=tuple(row["name"] for row in line["candidates"] if row["kept"]),
            champion=line["champion"]["name"],
            champion_is=line["champion"]["is"],
            is_repeated=is_repeated,
            seal=line["seal"],
        )


@contextmanager
def open_ledger(path: Path, plan: LedgerPlan) -> Iterator[Ledger]:
    """Open a ledger, new if the file is missing or empty; other processes wait.

    A plan without looks takes the file's. A new file without any recorded look is removed again.
    Raises ConfigError for a plan other than the file's, DataError for an incomplete ledger.
    """
    if plan.looks is not None and plan.looks < 1:
        raise ConfigError(f"--looks {plan.looks} is too few: give at least 1")
    descriptor, is_made = _acquire(path)
    try:
        is_begun = os.fstat(descriptor).st_size == 0
        if is_begun:
            header = {"sublayer_ledger": VERSION, **asdict(plan), "time": _now()}
            header["seal"] = _seal(header, "")
            _append(descriptor, header, path)
        lines = _read(descriptor, path)
        for name, now in asdict(plan).items():
            then = lines[0][name]
            if then != now and not (name == "looks" and now is None):
                raise ConfigError(
                    f"{path} was begun with {_named(name, then)}, not {_named(name, now)}: judge "
                    "with the original value, or begin another ledger"
                )
        kept_plan = LedgerPlan(**{name: lines[0][name] for name in asdict(plan)})
        ledger = Ledger(path, kept_plan, lines, descriptor)
        try:
            yield ledger
        finally:
            if is_begun and ledger.n_looks == 0:
                os.ftruncate(descriptor, 0)
                if is_made:
                    path.unlink()  # still locked: waiting processes see that it is gone
    finally:
        os.close(descriptor)


def _acquire(path: Path) -> tuple[int, bool]:
    """Open and lock a ledger; return its descriptor, and whether it is new, empty."""
    flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    while True:
        is_made = not os.path.lexists(path)
        try:
            descriptor = open_regular(path, flags | os.O_CREAT * is_made)
            try:
                if not try_lock(descriptor):
                    with stage(f"waiting for another judgement by {path}"):
                        while not try_lock(descriptor):
                            time.sleep(_WAITING_S)
                if is_at(descriptor, path.resolve()):
                    return descriptor, is_made
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        except FileNotFoundError:
            if is_made or path.is_symlink():
                raise ConfigError(
                    f"--ledger {path} is in a missing folder, or is a dangling link: make the "
                    "folder, or name another file"
                ) from None
            # Removed in between.
        except OSError as problem:
            why = problem.strerror or problem
            raise DataError(
                f"--ledger {path} cannot be opened and locked: {why}; name another file"
            ) from None


def _read(descriptor: int, path: Path) -> list[Line]:
    """Read and check all lines of a ledger, the plan first."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        if file.read(len(_BEGINS)) != _BEGINS:
            raise DataError(
                f"{path} is not a ledger: give --ledger a new or empty file, or a ledger"
            )
        texts = (_BEGINS + file.read()).split(b"\n")
    if texts.pop():
        raise DataError(
            f"{path}, line {len(texts) + 1} is cut off: delete this line if a call was stopped "
            "while writing, before its judgement was shown; else restore the file"
        )
    lines: list[Line] = []
    for number, text in enumerate(texts, start=1):
        where = f"{path}, line {number}"
        line = parse_json(text, where, DataError)
        if number == 1 and line.get("sublayer_ledger") != VERSION:
            raise DataError(
                f"{path} is a ledger of version {line.get('sublayer_ledger')}, this program writes "
                f"version {VERSION}: use the version that began it, or begin another ledger"
            )
        before = lines[-1]["seal"] if lines else ""
        if not isinstance(line, dict) or line.get("seal") != _seal(line, before):
            raise DataError(
                f"{where} does not match its seal: it or the line before was altered or deleted; "
                "restore the file, or begin another ledger, with new runs of the champion"
            )
        lines.append(line)
    return lines


def _named(name: str, value: Any) -> str:
    words = {
        "is_lower_better": "lower is better" if value else "higher is better",
        "margin": "no margin" if value is None else f"a margin of {value}",
        "looks": "no end" if value is None else f"{value} looks",
    }
    return words.get(name, f"{name} {value}")


def _round(value: float) -> float:
    """Round a probability for the file: twelve digits, so that 0.05 / 100 stays 0.0005."""
    return float(f"{max(value, 0.0):.12g}")


def _seal(line: Line, before: str) -> str:
    """Return the seal of a line: the hash of its content and of the previous line's seal."""
    content = {name: value for name, value in line.items() if name != "seal"}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()[:32]


def _append(descriptor: int, line: Line, path: Path) -> None:
    """Write a line and sync it to disk; a partial write is undone."""
    size = os.fstat(descriptor).st_size
    data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    except OSError as problem:
        os.ftruncate(descriptor, size)
        why = problem.strerror or problem
        raise DataError(f"{path} cannot be written: {why}: nothing was recorded") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
