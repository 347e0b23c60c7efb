"""The seconds of a step of several processes: computing, and sending at a link's rate."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepSeconds:
    """The parts of a step's time, in seconds."""

    computing: float
    sending: float | None
    """None where the rate of links is not known: sending is left out then."""

    @property
    def overlapped(self) -> float:
        """Return a step's seconds where all is sent beside computing."""
        return max(self.computing, self.sending or 0.0)

    @property
    def in_turn(self) -> float:
        """Return a step's seconds where nothing is."""
        return self.computing + (self.sending or 0.0)


def step_seconds(
    operations: float, sent: int, *, operations_per_s: float, bytes_per_s: float | None
) -> StepSeconds:
    """Divide a process's operations and the bytes that it sends by its rates."""
    sending = None if bytes_per_s is None else sent / bytes_per_s
    return StepSeconds(operations / operations_per_s, sending)
