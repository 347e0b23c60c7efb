"""The names of zero-shot probes, and which of them ``train.probes`` asks along a training."""

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
    if len(set(probes)) != len(probes):
        raise ConfigError("train.probes names a probe twice: leave one out")
    for name, folder in probe_folders(probes).items():
        if name not in PROBES:
            raise ConfigError(
                f"train.probes: {name[:LONGEST_WORD]!r} is not one of {', '.join(PROBES)}"
                f"{nearest_hint(name, PROBES)}"
            )
        if folder == "":
            raise ConfigError(
                f"train.probes: the folder of {name} is empty; name that of its files"
            )
