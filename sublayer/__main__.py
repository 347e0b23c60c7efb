"""Run the program, as ``sublayer`` or ``python -m sublayer``, with signals handled throughout."""

import sys

from sublayer.system.signals import ignore_from_now_on, interruption, take_over


def run() -> int:
    """Run the command line and return its exit code, which no signal changes any more."""
    take_over()
    try:
        from sublayer.cli import main

        code = main()
    except BaseException:
        # What it takes to import the program may make any error of an interruption.
        if not interruption.was_raised:
            raise
        interruption.is_over = True
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        code = interruption.code
    ignore_from_now_on()
    return code


if __name__ == "__main__":
    sys.exit(run())
