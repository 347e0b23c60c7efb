"""Results of ``gpu.py`` as Markdown: outcome of each part, and measurements on a GPU."""

from collections.abc import Mapping
from typing import Any

from report import heading, training_table

NOT_RUN = "not run"
AIMED_SHARE = 0.5
"""Of the peak of an H200, for GPT-2 small at a context of 1,024."""


def report(result: Mapping[str, Any]) -> str:
    """Write the report; parts that did not run on a GPU say so, and a dry run gives no number."""
    is_dry = result["is_dry"]
    lines = [heading(result), ""]
    if is_dry:
        lines += ["A dry run on a CPU: it shows that the code runs, and measures nothing.", ""]
    lines += ["| part | on a GPU | dry run |", "| --- | --- | --- |"]
    for title, kept in result["parts"].values():
        outcome = NOT_RUN if kept is None else f"{kept['outcome']}, {kept['seconds']:.0f} s"
        on_gpu, dry = (NOT_RUN, outcome) if is_dry else (outcome, "")
        lines.append(f"| {title} | {on_gpu} | {dry} |")
    if not is_dry:
        for name, (title, kept) in result["parts"].items():
            lines += ["", f"**{title}**", ""]
            lines += _section(name, kept)
    return "\n".join(lines) + "\n"


def _section(name: str, kept: Mapping[str, Any] | None) -> list[str]:
    if kept is None:
        return [f"{NOT_RUN}."]
    if kept["outcome"] != "passed":
        return [f"{kept['outcome']}: see {name}.log."]
    if name == "tests":
        return ["All passed; tests.log and tests.xml say which, and what was skipped."]
    if name == "study":
        return ["Its report is in study/."]
    if name == "generation":
        return _generation(kept["result"])
    if name == "batches":
        return _batches(kept["result"])
    if name == "attention":
        return _attention(kept["result"])
    return _training(name, kept["result"])


def _training(name: str, case: Mapping[str, Any]) -> list[str]:
    shares = [each.get("flops_utilisation") for each in case["contestants"]]
    if None in shares:
        share = "This device's peak is not listed in peaks.py: no share of it is told."
    else:
        share = f"Share of the dense bf16 peak of {case['peak_source']}."
        if name == "gpt2":
            share += f" Aim: {AIMED_SHARE:.0%} on an H200, ahead of every peer."
    return [
        *training_table(case),
        "",
        f"{case['speed_over_fastest_peer']:.2f} times the fastest peer, "
        f"{case['memory_over_fastest_peer']:.2f} of its memory; {case['rounds']} interleaved "
        f"rounds, medians; making a batch takes {case['loading_share_of_a_step']:.2%} of a step. "
        f"{share}",
    ]


def _generation(result: Mapping[str, Any]) -> list[str]:
    lines = []
    for case in result["cases"]:
        same = "the same" if case["equal_in_float32"] else "NOT the same"
        lines += [
            f"{case['description']}; ours and transformers' choose {same} tokens in float32.",
            "",
            "| generation | setup | tokens/s | slowest to fastest round |",
            "| --- | --- | ---: | ---: |",
        ]
        for each in case["contestants"]:
            spread = f"{each['slowest_round']:,.0f} to {each['fastest_round']:,.0f}"
            rate = f"{each['tokens_per_s']:,.0f}"
            lines.append(f"| {each['name']} | {each['setup']} | {rate} | {spread} |")
        lines.append("")
    return lines[:-1]


def _batches(result: Mapping[str, Any]) -> list[str]:
    lines = [
        "| model | a batch, ms | a step, ms | share | steps/s, ahead / when due (rounds) |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for case in result["cases"]:
        milliseconds = f"{1e3 * case['prepared_s']:.2f} | {1e3 * case['step_s']:.1f}"
        gain = _gain(case["ahead_over_when_due"], case)
        lines.append(
            f"| {case['kind']}, {case['size']} | {milliseconds} | "
            f"{case['share_of_a_step']:.2%} | {gain} |"
        )
    return lines


def _attention(result: Mapping[str, Any]) -> list[str]:
    lines = [
        "| attention, forward and backward | tokens that count | under a mask, ms | "
        "without padding, ms | times (rounds) |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for case in result["cases"]:
        milliseconds = f"{1e3 * case['masked_s']:.3f} | {1e3 * case['ragged_s']:.3f}"
        lines.append(
            f"| {case['name']}, {case['description']} | {case['real_share']:.0%} | "
            f"{milliseconds} | {_gain(case['gain'], case)} |"
        )
    return lines


def _gain(median: float, case: Mapping[str, Any]) -> str:
    return f"{median:.2f} ({case['slowest_round']:.2f} to {case['fastest_round']:.2f})"
