"""The seeds of a comparison: those that are compared, and those that tune."""

from dataclasses import dataclass

from sublayer.config.limits import LARGEST_SEED, MOST_SEEDS
from sublayer.errors import ConfigError
from sublayer.statistics.difference import FEWEST_SEEDS

FIRST_TUNING_SEED = MOST_SEEDS
"""No comparison has as many seeds, so that those from here on are compared in none."""


@dataclass(frozen=True)
class Seeds:
    """Seeds of the runs of each arm, and of each trial of what is tuned.

    What is tuned is chosen by other runs than those that are compared: what was lucky in the
    choice is not scored.
    """

    first: int = 0
    n_tuning: int = 1
    first_tuning: int = FIRST_TUNING_SEED

    def compared(self, n_seeds: int) -> range:
        """Return the seeds of the runs that are compared."""
        return range(self.first, self.first + n_seeds)

    @property
    def tuning(self) -> range:
        """The seeds of the runs of each trial."""
        return range(self.first_tuning, self.first_tuning + self.n_tuning)

    def check(self, n_seeds: int, *, is_tuned: bool, asked: tuple[str, ...]) -> None:
        """Raise ConfigError where tuning seeds are compared too, or were asked for in vain.

        ``n_seeds`` are the most that are compared, ``asked`` the options that were given.
        """
        if max(self.compared(n_seeds)[-1], self.tuning[-1]) > LARGEST_SEED:
            raise ConfigError(f"there is no seed above {LARGEST_SEED}: give smaller ones")
        if not is_tuned:
            for option in asked:
                raise ConfigError(f"{option} is of --tune, and nothing is tuned: leave it out")
            return
        shared = set(self.compared(n_seeds)) & set(self.tuning)
        if shared:
            raise ConfigError(
                f"seed {min(shared)} would tune and be compared, so that what was lucky in the "
                "choice is scored as skill: give other --first-tuning-seed or --first-seed"
            )


USUAL_SEEDS = Seeds()


def check_seeds(n_seeds: int) -> None:
    """Raise ConfigError for a number of seeds that is nothing to compare by."""
    if n_seeds < 1:
        raise ConfigError(f"--seeds {n_seeds} is too few to compare: give at least 1")
    if 1 < n_seeds < FEWEST_SEEDS:
        raise ConfigError(
            f"--seeds {n_seeds} says too little of how far seeds spread: give at least "
            f"{FEWEST_SEEDS}, or 1 for values without a verdict"
        )
