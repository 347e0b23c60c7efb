"""Run ``python -m tests.faults``."""

from tests.faults.hunt import main

main()
