"""`preroll ablate`: one variable changed; does the start get faster, and where does it go?"""

from __future__ import annotations

from collections.abc import Sequence

import cyclopts

from preroll.cli.ablate_options import Options, Variable
from preroll.cli.call import call

HELP = f"""{__doc__}

    preroll ablate --without-module MODULE --ready 8000 -- python worker.py
    preroll ablate --env OMP_NUM_THREADS=1 --cache cold --until 5% -- COMMAND
    preroll ablate --resume FILE

Exit status: 0 decided, 3 inconclusive, 5 needed (the variant does not get ready).
"""


def main(arguments: list[str]) -> int:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return call(command(arguments[at + 1 :]), arguments[:at])


def command(words: Sequence[str]) -> cyclopts.App:
    """`words`: the command after `--`."""
    app = cyclopts.App(name="preroll ablate", help=HELP, version_flags=[], help_format="plaintext")

    @app.default
    def ablate(*, variable: Variable | None = None, options: Options | None = None) -> int:
        """Compares the command with a variant of itself."""
        from preroll.cli.ablate_run import run

        return run(tuple(words), variable or Variable(), options or Options())

    return app
