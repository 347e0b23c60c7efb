"""The seconds of a step are those of its products and of what it sends, at stated rates."""

from sublayer.estimate.cluster.time import step_seconds


def test_sending_beside_computing_hides_the_shorter_of_both() -> None:
    seconds = step_seconds(6e12, 10**9, operations_per_s=2e12, bytes_per_s=1e9)
    assert (seconds.computing, seconds.sending) == (3.0, 1.0)
    assert (seconds.overlapped, seconds.in_turn) == (3.0, 4.0)


def test_where_links_are_not_known_sending_is_left_out() -> None:
    seconds = step_seconds(6e12, 10**9, operations_per_s=2e12, bytes_per_s=None)
    assert seconds.sending is None
    assert (seconds.overlapped, seconds.in_turn) == (3.0, 3.0)
