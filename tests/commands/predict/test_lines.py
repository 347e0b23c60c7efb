"""Lines of standard input, each answered with a line as it comes."""

import io
import json
import os

from sublayer.commands.predict import lines as module
from sublayer.commands.predict.lines import blocks_of_lines
from sublayer.loading import load
from sublayer.objective.supervised.answering import Answerer


def test_each_line_is_answered_with_label_and_probability(sublayer, reviewer, standard_input):
    standard_input(b"The lovely film is great.\nThe dull plot is awful.\r\nThe film is bland")
    result = sublayer("predict", reviewer)
    assert result.code == 0, result.err
    answers = [line.split("\t") for line in result.out.splitlines()]
    assert [label for label, _ in answers] == ["good", "bad", "bad"]
    assert all(0.5 < float(p) <= 1 for _, p in answers)


def test_an_empty_line_stays_one_and_is_counted(sublayer, reviewer, standard_input):
    standard_input(b"The lovely film is great.\n\n \nThe dull plot is awful.\n")
    result = sublayer("predict", reviewer)
    assert [line[:3] for line in result.out.split("\n")] == ["goo", "", "", "bad", ""]
    assert "not answered: 2 of 4 lines" in result.err


def test_lines_as_json(sublayer, reviewer, standard_input):
    standard_input(b"The lovely film is great.\n\n")
    first, second = map(json.loads, sublayer("predict", reviewer, "--json").out.splitlines())
    assert first["prediction"] == "good"
    assert set(first["probabilities"]) == {"bad", "good"}
    assert second == {"prediction": None}


def test_what_is_not_utf8_ends_the_answers_after_those_before_it(
    sublayer, reviewer, standard_input
):
    standard_input(b"The lovely film is great.\n\xff\nThe dull plot is awful.\n")
    result = sublayer("predict", reviewer)
    assert result.code == 2
    assert result.out.startswith("good\t")
    assert result.out.count("\n") == 1
    assert "standard input, line 2: byte 0xff" in result.err
    assert "answered before it: 1 line" in result.err


def test_lines_are_given_on_as_soon_as_they_are_there():
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as stream, os.fdopen(writer, "wb", buffering=0) as source:
        blocks = blocks_of_lines(stream)
        source.write(b"one\ntwo\nthr")
        assert next(blocks) == [b"one", b"two"]
        source.write(b"ee\n")
        assert next(blocks) == [b"three"]
        source.write(b"four")
        source.close()
        assert list(blocks) == [[b"four"]]


def test_an_answer_is_printed_before_the_next_line_comes(reviewer, monkeypatch):
    printed: list[str] = []

    class Stream(io.RawIOBase):
        waiting = [b"The lovely film is great.\n", b"The dull plot is awful.\n"]
        seen: list[int] = []

        def read1(self, size: int) -> bytes:
            self.seen.append(len(printed))
            return self.waiting.pop(0) if self.waiting else b""

    monkeypatch.setattr(module, "write_result", printed.append)
    module.predict_lines(Answerer(load(reviewer)), Stream(), as_json=False)
    assert Stream.seen == [0, 1, 2]
