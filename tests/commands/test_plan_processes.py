"""``sublayer plan --processes``: what it prints, what its figures are, what it refuses."""

import json

import pytest

from sublayer.cli import MISTAKE, main
from sublayer.estimate.cluster.devices import DEVICES
from tests.wrapping import unwrapped

GPT = ("plan", "gpt", "model.vocab_size=1000", "train.steps=3600")


def planned(capsys: pytest.CaptureFixture[str], *words: str):
    assert main([*GPT, *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*GPT, *words]) == MISTAKE
    return unwrapped(capsys.readouterr().err)


def test_time_and_price_follow_from_the_datasheet(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--processes", "4", "--device", "h100", "--price", "2", "--share", "0.5")
    plan = planned(capsys, *words)
    arm, found = plan["arms"][0], plan["processes"]
    (its,) = found["arms"]
    assert (its["sequences"], its["micro_batches"], its["precision"]) == (2, 1, "bfloat16")
    for shard in its["shards"]:
        operations = arm["flops_per_token"] * its["tokens_per_step"]
        computing = operations / 4 / (0.5 * DEVICES["h100"].bfloat16_per_s)
        sending = shard["sent_bytes"]["total"] / 450e9
        assert shard["computing_seconds"] == pytest.approx(computing)
        assert shard["sending_seconds"] == pytest.approx(sending)
        low, high = shard["seconds_per_step"]
        assert low == pytest.approx(max(computing, sending))
        assert high == pytest.approx(computing + sending)
        # 3,600 steps of so many seconds are so many hours; four devices at two dollars each.
        assert shard["hours"] == pytest.approx([low, high])
        assert shard["cost"] == pytest.approx([8 * low, 8 * high])
        assert shard["share_of_peak"] == pytest.approx(
            [0.5 * computing / low, 0.5 * computing / high]
        )
    assert [shard["shard"] for shard in its["shards"]] == ["none", "optimizer", "full"]


def test_the_slowest_process_counts_where_a_batch_is_not_divided_evenly(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("--processes", "3", "--device", "h100")
    plan = planned(capsys, *words)
    arm, (its,) = plan["arms"][0], plan["processes"]["arms"]
    # Of 8 windows one of three processes has 3.
    operations = arm["flops_per_token"] * its["tokens_per_step"] * 3 / 8
    assert its["shards"][0]["computing_seconds"] == pytest.approx(
        operations / DEVICES["h100"].bfloat16_per_s
    )


def test_between_machines_a_link_has_to_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("train.batch_sequences=16", "--processes", "16", "--device", "h100")
    found = planned(capsys, *words)["processes"]
    assert [each["sending_seconds"] for each in found["arms"][0]["shards"]] == [None] * 3
    assert any("give --link" in note for note in found["notes"])
    given = planned(capsys, *words, "--link", "50")["processes"]
    for shard in given["arms"][0]["shards"]:
        assert shard["sending_seconds"] == pytest.approx(shard["sent_bytes"]["total"] / 50e9)
    assert not any("give --link" in note for note in given["notes"])


def test_float32_is_planned_at_the_rate_of_float32(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "train.precision=float32", "--device", "a100")["processes"]
    (arm,) = found["arms"]
    seconds = arm["flops_per_step"] / DEVICES["a100"].float32_per_s
    assert arm["shards"][0]["computing_seconds"] == pytest.approx(seconds)


def test_processes_of_this_machine_share_its_memory(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "--processes", "2", "--device", "cpu")["processes"]
    shard = found["arms"][0]["shards"][0]
    assert shard["seconds_per_step"] is None and found["datasheet"] is None
    assert shard["fits"] is True
    many = planned(capsys, "train.batch_sequences=60000", "--processes", "60000", "--device", "cpu")
    assert many["processes"]["arms"][0]["shards"][0]["fits"] is False


def test_exact_divides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "train.exact=true", "--processes", "4", "--device", "h200")["processes"]
    (arm,) = found["arms"]
    assert [each["shard"] for each in arm["shards"]] == ["none"]
    # Eight micro-batches, of which each process has two, and sends one sum of them and the total.
    assert arm["micro_batches"] == 2
    assert (
        arm["shards"][0]["sent_bytes"]["total"]
        == 2 * arm["shards"][0]["memory"]["weights"] * 3 // 4
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--processes", "8", "--device", "h20"), "did you mean h200?"),
        (
            ("--processes", "9", "--device", "h200"),
            "--processes 9 is more than a batch has windows, 8",
        ),
        (("--price", "2"), "--price is of a device"),
        (("--price", "2", "--device", "cpu"), "--price is of a device"),
        (
            ("--share", "0.4", "--device", "cpu", "--processes", "2"),
            "--share is of a device's peak",
        ),
        (("--share", "0", "--device", "h100"), "--share 0 never ends"),
        (("--link", "50", "--device", "h100"), "--link is between devices"),
        (("--link", "50", "--processes", "2"), "--link is between devices"),
        (("--link", "0", "--processes", "2", "--device", "h100"), "--link 0 never ends"),
        (("--measure", "--device", "h100"), "--measure takes steps on this machine"),
        (("--processes", "2", "--jobs", "2"), "--jobs 2 makes several runs at a time"),
        (
            ("train.exact=true", "train.micro_batch_sequences=4", "--processes", "4"),
            "less than --processes 4: give train.micro_batch_sequences=2",
        ),
    ],
)
def test_what_contradicts_itself_is_refused_in_a_line(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, *words)
