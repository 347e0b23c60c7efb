"""Options of a judgement, and their mutual exclusions."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.statistics.difference import ERROR

COLUMNS, ROWS, FILES = "columns", "rows", "files"
"""Keywords of an option in place of a column's name."""
ROLES = {
    "arm": (COLUMNS, ROWS, FILES),
    "seed": (COLUMNS, ROWS),
    "item": (COLUMNS, ROWS),
    "document": (),
    "step": (),
}
"""The roles of columns, each with its keywords."""
LAST = "last"


@dataclass(frozen=True)
class JudgingOptions:
    """Options by the names of the command's; empty texts and None: not given."""

    arm: str = ""
    seed: str = ""
    item: str = ""
    document: str = ""
    value: str = ""
    step: str = ""
    at: str = ""
    """The step whose values count, or ``last``; empty: the last, if all runs have it."""
    names: str = ""
    """The pattern of run names, such as ``{arm}-{seed}``."""
    task: str = ""
    filter: str = ""
    nan_is_failed: bool = False
    common: bool = False
    """True: leave out seeds and items that some run lacks."""
    baseline: str = ""
    new: str = ""
    lower_is_better: bool | None = None
    margin: float | None = None
    """Smaller differences do not matter, in the metric's unit."""
    look: int | None = None
    looks: int | None = None
    ledger: Path | None = None
    """The ledger file of a loop; ``looks`` are the loop's total."""

    @property
    def level(self) -> float:
        """The probability of a false verdict of this look: an equal share of 5 %."""
        return ERROR / self.looks if self.look and self.looks else ERROR

    def check(self) -> None:
        """Raise ConfigError for options without meaning, by themselves or combined."""
        words = {role: word for role in ROLES if (word := getattr(self, role))}
        for role, word in words.items():
            if word in (COLUMNS, ROWS, FILES) and word not in ROLES[role]:
                remedy = "name a column"
                if word == FILES and role in ("seed", "item"):
                    remedy = "--names says how files are named"
                raise ConfigError(f"--{role} {word} has no meaning: {remedy}")
        for one, other in combinations([role for role in words if role != "document"], 2):
            if words[one] == words[other]:
                raise ConfigError(
                    f"--{one} {words[one]} and --{other} {words[one]} exclude each other: change "
                    "one of them"
                )
        if self.ledger is not None:
            if self.look is not None:
                raise ConfigError(f"--look {self.look} has no effect: --ledger counts the looks")
        elif (self.look is None) != (self.looks is None):
            given, other = ("--look", "--looks") if self.looks is None else ("--looks", "--look")
            raise ConfigError(f"{given} has a meaning beside {other} alone: give both, or neither")
        elif self.look is not None and self.looks is not None and self.look > self.looks:
            raise ConfigError(
                f"--look {self.look} is none of {count(self.looks, 'planned look')}: a verdict "
                "holds for the looks that were planned before the first"
            )

    def choose(self, option: str, names: Iterable[str], where: object, usual: str = "") -> str:
        """Return the chosen name, else the usual or the only one.

        Raises ConfigError if a source lacks the name, or has several, none of them usual.
        """
        known = list(dict.fromkeys(names))
        name = getattr(self, option) or usual or (known[0] if len(known) == 1 else "")
        if not known:
            raise ConfigError(
                f"{where} has nothing that --{option} could name: give another source"
            )
        if name not in known:
            raise ConfigError(f"{where} has {', '.join(known)}: give --{option} NAME, one of them")
        return str(name)

    def refuse(self, *names: str, why: str) -> None:
        """Raise ConfigError for the first given option among some."""
        for name in names:
            if getattr(self, name):
                raise ConfigError(f"--{name} {getattr(self, name)} {why}: leave it out")
