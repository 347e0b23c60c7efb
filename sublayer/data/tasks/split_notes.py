"""What of the examples of a split is not read whole, in words."""

from sublayer.counts import count
from sublayer.data.tasks.assembly import Assembler, RowRule
from sublayer.data.tasks.span_examples import SpanExamples
from sublayer.data.tasks.task_split import TaskPart, TaskSplit


def describe_cuts(split: TaskSplit, rule: RowRule) -> list[str]:
    """Return a line on how many rows of a split are cut, and one on its targets, if any are."""
    assembler = Assembler(split.encoded, rule)
    notes = []
    if assembler.n_cut:
        n_rows = assembler.n_rows
        notes.append(
            f"{assembler.n_cut:,} of {count(n_rows, 'row')} ({assembler.n_cut / n_rows:.0%}) of "
            f"the {split.name} part, longer than data.context = {rule.context}, cut to it: "
            f"{assembler.share_read:.0%} of their tokens are read"
        )
    if assembler.n_cut_targets:
        longest = assembler.longest_target
        notes.append(
            f"{count(assembler.n_cut_targets, 'target')} of the {split.name} part, longer than "
            f"objective.target_length = {rule.target_length}, cut to it: no such answer can be "
            f"written whole; objective.target_length={longest} has room for all"
        )
    return notes


def describe_windows(part: TaskPart) -> list[str]:
    """Return what training on windows of passages has, and what it leaves out."""
    encoded = part.encoded
    if not isinstance(encoded, SpanExamples):
        return []
    notes = []
    if encoded.n_rows > encoded.n_questions:
        n_without = int((encoded.spans[:, 0] == 0).sum())
        notes.append(
            f"{count(encoded.n_questions, 'question')} of the train part in "
            f"{count(encoded.n_rows, 'window')} of their passages, {n_without:,} of which have no "
            "answer"
        )
    if encoded.n_cut_questions:
        notes.append(
            f"{count(encoded.n_cut_questions, 'question')} of the train part cut to "
            f"{encoded.most_question_tokens} tokens, to leave room for a passage"
        )
    if part.n_lost:
        notes.append(
            f"{count(part.n_lost, 'question')} of the train part left out: their answers are "
            "not found in their passages"
        )
    return notes
