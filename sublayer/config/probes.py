"""The names of zero-shot probes, and which of them ``train.probes`` asks along a training."""

from collections.abc import Sequence

from sublayer.config.table import List
from sublayer.errors import ConfigError
from sublayer.nearest import LONGEST_WORD, nearest_hint

PROBES = ("cola", "sst2", "race", "winograd", "dpr")
"""In the order in which they are shown."""
PREFIX = "probes"
"""What their scores are called by among those of an evaluation: ``probes/sst2``."""


Probes = List | dict[str, str]
"""Probes whose files are in the cache, or the folder of each."""


def probe_folders(probes: Probes) -> dict[str, str | None]:
    """Return the folder of each probe; None for the cache."""
    if isinstance(probes, dict):
        return dict(probes)
    return dict.fromkeys(probes)


def check_probes(probes: Probes) -> None:
    """Raise ConfigError for what is no probe, one named twice, and a folder without a name."""
    check_names(list(probes), "train.probes: ")
    for name, folder in probe_folders(probes).items():
        if folder == "":
            raise ConfigError(f"train.probes: {name} names no folder: give that of its files")


def check_names(names: Sequence[str], where: str = "") -> None:
    """Raise ConfigError for what is no probe, and for one that is named twice."""
    for name in names:
        if name not in PROBES:
            raise ConfigError(
                f"{where}{name[:LONGEST_WORD]} is no probe{nearest_hint(name, PROBES)}: there are "
                f"{', '.join(PROBES)}"
            )
        if names.count(name) > 1:
            raise ConfigError(f"{where}probe {name} is named twice")
