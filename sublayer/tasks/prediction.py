"""What a model, or a baseline, says of an example."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prediction:
    """An answer, and how sure it is. Which fields are set is a matter of the task's kind."""

    label: int | float | None = None
    """Of ``classes`` and ``choice`` an index, of ``number`` the number; None where a text that was
    written is none of the labels, or no number."""
    probabilities: tuple[float, ...] = ()
    """Of each label or choice; empty where the model gives none."""
    text: str = ""
    """Of ``span`` the answer, empty for none; of text to text what was written."""
    start: int | None = None
    """Of ``span``: where it begins in the passage, in characters."""
    is_cut: bool = False
    """Whether the example is longer than the model reads, and was cut."""
    no_answer: float = 0.0
    """Of ``span`` with unanswerable questions: the score of no answer, more the likelier."""
