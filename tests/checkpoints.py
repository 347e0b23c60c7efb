"""What a checkpoint says of the loop, for tests that write checkpoints without a loop."""

import json


def state(step, best, /, **changed):
    evaluation = None if best is None else {"step": best, "loss": 2.5, "bits_per_byte": 3.6}
    content = {"step": step, "tokens": 96 * step, "seconds": 0.5 * step}
    content |= {"step_seconds": 0.25 * step}
    return json.dumps({**content, "best": evaluation, "pending_losses": [2.25], **changed})
