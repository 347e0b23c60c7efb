"""What a process sends to others in a step, by ring algorithms.

Sizes are bytes that each process sends; it receives as many. Around a ring of n, all-gather and
reduce-scatter of N bytes send ``N (n - 1) / n``, all-reduce twice that (Patarasuk & Yuan 2009).
Norms, Adafactor's means, losses and counts are next to nothing, and are left out.
"""

from dataclasses import dataclass

from sublayer.estimate.cluster.group import Group, Units
from sublayer.estimate.cluster.memory import tree_sums


@dataclass(frozen=True)
class Traffic:
    """Bytes that each process sends in a step."""

    gathering: int
    """Of weights: all-gather."""
    summing: int
    """Of gradients: all-reduce, reduce-scatter, or all-to-all and all-gather with ``exact``."""

    @property
    def total(self) -> int:
        """Return all that a process sends."""
        return self.gathering + self.summing


def step_traffic(units: Units, gradients: int, *, n_passes: int, group: Group) -> Traffic:
    """Count the bytes that each process sends in a step of ``n_passes`` micro-batches.

    ``gradients`` are the bytes of all of them. They are summed once a step. Weights that are
    divided are gathered once, too; with ``full`` those of blocks for both passes of every
    micro-batch.
    """
    n = group.size
    if n == 1:
        return Traffic(0, 0)
    if group.exact:
        _, n_sums = tree_sums(n_passes)
        return Traffic(0, _ring((n_sums + 1) * gradients, n))
    if group.shard == "none":
        return Traffic(0, _ring(2 * gradients, n))
    n_gathered = 2 * n_passes if group.shard == "full" else 1
    gathered = units.root + n_gathered * sum(units.blocks)
    return Traffic(_ring(gathered, n), _ring(gradients, n))


def _ring(size: int, n: int) -> int:
    return size * (n - 1) // n
