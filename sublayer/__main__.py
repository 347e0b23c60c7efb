"""Run the program, as ``sublayer`` or ``python -m sublayer``, with signals handled throughout."""

import codecs
import os
import sys

from sublayer.system.signals import ignore_from_now_on, interruption, take_over


def run() -> int:
    """Run the command line and return its exit code, which no signal changes any more."""
    _read_arguments_as_utf8()
    take_over()
    try:
        from sublayer.cli.main import main

        code = main()
    except BaseException:
        # The import of the program may turn an interruption into any other error.
        if not interruption.was_raised:
            raise
        interruption.is_over = True
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        code = interruption.code
    ignore_from_now_on()
    return code


def _read_arguments_as_utf8() -> None:
    """Start Python anew, in its UTF-8 mode, where a locale has another encoding for arguments."""
    is_utf8 = codecs.lookup(sys.getfilesystemencoding()).name == "utf-8"
    if not is_utf8 and not sys.flags.utf8_mode and os.name == "posix" and sys.executable:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


if __name__ == "__main__":
    sys.exit(run())
