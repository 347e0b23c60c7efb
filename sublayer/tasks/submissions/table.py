"""What writes predictions as their publishers take them, by suite."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sublayer.tasks.submissions.answers import Answers
from sublayer.tasks.submissions.folder import Submission
from sublayer.tasks.submissions.glue import write_glue
from sublayer.tasks.submissions.race import write_race
from sublayer.tasks.submissions.squad import write_squad
from sublayer.tasks.submissions.superglue import write_superglue

SUBMISSIONS: dict[str, Callable[[Path, Sequence[Answers]], Submission]] = {
    "glue": write_glue,
    "superglue": write_superglue,
    "squad": write_squad,
    "race": write_race,
}
"""By ``Task.suite``; the others' publishers take no predictions."""


def hand_in(suite: str, folder: Path, answers: Sequence[Answers]) -> Submission:
    """Write predictions as the publisher of a suite takes them. Raises as its own writer does."""
    return SUBMISSIONS[suite](folder, answers)
