"""A plan is computed once while its epoch or the next one is used."""

from sublayer.data.epochs import LastEpochs


def asked_for(epochs: list[int]) -> list[int]:
    """Return the epochs that are computed where ``epochs`` are asked for in turn."""
    computed = []

    def compute(epoch: int) -> str:
        computed.append(epoch)
        return f"plan {epoch}"

    plans = LastEpochs[str]()
    for epoch in epochs:
        assert plans.get(epoch, compute) == f"plan {epoch}"
    return computed


def test_an_epoch_and_the_one_before_are_computed_once():
    assert asked_for([0, 0, 1, 0, 1, 2, 1, 2]) == [0, 1, 2]


def test_older_epochs_are_computed_again():
    assert asked_for([0, 1, 2, 0]) == [0, 1, 2, 0]


def test_a_jump_back_leaves_out_later_epochs():
    assert asked_for([5, 1, 5]) == [5, 1, 5]
