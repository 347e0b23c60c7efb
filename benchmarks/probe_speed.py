"""Time and memory of zero-shot probes of a model. See README.md.

# of a run of your own, with the folders of GLUE and RACE: some 20 seconds a round
python benchmarks/probe_speed.py --run runs/gpt1-small --probes sst2=glue cola=glue race=race
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from options import note
from report import RESULTS, describe_conditions, heading, keep, result_name

AIM_S = 60.0
"""Of SST-2, CoLA and RACE middle, by a model of five million parameters."""


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    rounds = []
    for number in range(options.rounds):
        rounds.append([_ask(options.run, *each.split("=", 1)) for each in options.probes])
        note(f"round {number + 1} of {options.rounds}: {rounds[-1]}")
    result = {"conditions": describe_conditions("cpu"), "probes": options.probes, "rounds": rounds}
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "probes"))
    print(table)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="the run that is probed")
    parser.add_argument("--probes", nargs="+", required=True, help="such as cola=FOLDER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    options = parser.parse_args()
    if any("=" not in each for each in options.probes):
        parser.error("probes are given with the folders of their files, such as cola=glue")
    return options


def _ask(run: Path, name: str, folder: str) -> tuple[float, int]:
    """Return the seconds and the peak bytes of a process that asks one probe."""
    words = ["evaluate", str(run), "--probes", name, "--path", folder]
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "sublayer", *words], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"sublayer {' '.join(words)} failed")
    return seconds, usage.ru_maxrss * 1024


def _markdown(result: dict[str, Any]) -> str:
    lines = [
        f"{heading(result)}; medians of {len(result['rounds'])} rounds, the highest peak.",
        "",
        "| probe | s, its process's start and reading included | peak memory |",
        "| --- | ---: | ---: |",
    ]
    total = 0.0
    for place, probe in enumerate(result["probes"]):
        own = [each[place] for each in result["rounds"]]
        seconds = statistics.median(each[0] for each in own)
        peak = max(each[1] for each in own)
        total += seconds
        lines.append(f"| {probe.split('=')[0]} | {seconds:.1f} | {peak / 1e6:,.0f} MB |")
    lines.append(f"| all (aim {AIM_S:.0f}) | {total:.1f} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
