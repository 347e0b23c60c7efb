"""What a launcher sets for each of several processes is checked before they look for each other."""

import pytest

from sublayer import cli
from sublayer.errors import ConfigError
from sublayer.system.launch import check_launch, is_first_launched, meeting_place, n_launched

WHOLE = {
    "WORLD_SIZE": "4",
    "RANK": "3",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
}


@pytest.fixture
def launched(monkeypatch):
    def launch(**changed):
        for name, value in {**WHOLE, **changed}.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)

    return launch


def test_what_torchrun_sets_is_taken(launched):
    launched()
    check_launch()
    assert n_launched() == 4
    assert not is_first_launched()
    assert meeting_place() == ("node1", 29500)


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"WORLD_SIZE": "abc"}, "WORLD_SIZE = abc is no whole number from 1 on"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE = 0 is no whole number from 1 on"),
        ({"WORLD_SIZE": "-2"}, "WORLD_SIZE = -2 is no whole number from 1 on"),
        ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE = 9{40} is no whole number from 1 on"),
        ({"RANK": None}, "WORLD_SIZE = 4 needs RANK"),
        ({"RANK": "-1"}, "RANK = -1 is no whole number from 0 on"),
        ({"RANK": "4"}, "RANK = 4 is none of WORLD_SIZE = 4 processes"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK = x is no whole number from 0 on"),
        ({"MASTER_ADDR": None}, "WORLD_SIZE = 4 needs MASTER_ADDR"),
        ({"MASTER_PORT": ""}, "WORLD_SIZE = 4 needs MASTER_PORT"),
        ({"MASTER_PORT": "0"}, "MASTER_PORT = 0 is no port, 1 to 65535"),
        ({"MASTER_PORT": "99999"}, "MASTER_PORT = 99999 is no port, 1 to 65535"),
    ],
)
def test_what_no_launcher_sets_is_refused_by_name_and_value(launched, changed, line):
    launched(**changed)
    with pytest.raises(ConfigError, match=f"^{line}.*: start the processes with torchrun"):
        check_launch()


def test_one_process_needs_nothing_and_talks_whatever_its_number(launched):
    launched(WORLD_SIZE="", RANK="7", MASTER_PORT="abc")
    check_launch()
    assert is_first_launched()


def test_a_refusal_is_a_line_where_not_even_the_number_of_processes_is_one(
    launched, capsys, tmp_path
):
    launched(WORLD_SIZE="abc")
    assert cli.main(["train", "gpt", "--out", str(tmp_path / "run")]) == cli.MISTAKE
    assert capsys.readouterr().err == (
        "error: WORLD_SIZE = abc is no whole number from 1 on: start the processes with torchrun, "
        "which sets it\n"
    )
    assert not (tmp_path / "run").exists()
