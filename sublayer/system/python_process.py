"""The command of a Python process that runs a module of this very package."""

import json
import sys


def python_command(module: str) -> list[str]:
    """Return the command that calls ``main`` of a module, whose exit code is the process's.

    The package is found where this process found it, and nothing in the working directory that this
    process would not have found there.
    """
    program = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        f"from {module} import main; sys.exit(main())"
    )
    return [sys.executable, "-P", "-c", program, json.dumps(sys.path)]
