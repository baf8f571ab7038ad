"""`preroll`: table of commands, top-level help, dispatch. Nothing heavy is imported here."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from dataclasses import dataclass

from preroll import __version__
from preroll.errors import PrerollError


@dataclass(frozen=True, slots=True)
class Command:
    """A command: `module` has `main(arguments: list[str]) -> int` and owns its own help."""

    group: str
    name: str
    module: str
    summary: str


GROUPS = ("Run", "Explain", "Measure", "State", "Plan")
COMMANDS: tuple[Command, ...] = (
    Command("Run", "serve", "preroll.cli.serve", "start an app or one model, and keep it running"),
    Command("Run", "ps", "preroll.cli.ps", "replicas, states, ages, memory"),
    Command("Run", "logs", "preroll.cli.logs", "what replicas print; -f follows"),
    Command("Run", "stop", "preroll.cli.stop", "end an app: door, replicas, control"),
    Command("Run", "top", "preroll.cli.top", "live: queues and waits first"),
    Command("Run", "check", "preroll.cli.check", "every error of an app file, and warnings"),
    Command("Explain", "why", "preroll.cli.why", "one request's life, by its x-request-id"),
    Command("Explain", "starts", "preroll.cli.starts", "what starts took; --run N measures them"),
    Command(
        "Measure", "ablate", "preroll.cli.ablate", "one thing changed: is the start really faster?"
    ),
    Command("Measure", "profile", "preroll.cli.profile", "where a start's time goes, to the total"),
    Command("Measure", "load", "preroll.cli.load", "load a server, and say what the numbers mean"),
    Command("Measure", "cliff", "preroll.cli.cliff", "find where a server stops keeping its SLO"),
    Command("Measure", "probe", "preroll.cli.probe", "determinism under load; a door in the way"),
    Command(
        "State", "weights", "preroll.cli.weights", "what precision a weights file really holds"
    ),
    Command("Plan", "plan", "preroll.cli.plan", "the arithmetic before you rent: one page"),
    Command(
        "Plan",
        "simulate",
        "preroll.cli.simulate",
        "a workload against scaling policies, before renting",
    ),
)


def help_text() -> str:
    lines = ["Usage: preroll COMMAND [ARGUMENTS]   (preroll COMMAND --help)", ""]
    for group in GROUPS:
        members = [c for c in COMMANDS if c.group == group]
        if members:
            lines.append(group)
            lines += [f"  {c.name:<14}{c.summary}" for c in members]
            lines.append("")
    lines.append("  --version     print the version")
    return "\n".join(lines)


def unknown_command(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, [c.name for c in COMMANDS], n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return f"preroll: unknown command '{name}'{hint} (preroll --help lists them)"


def run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(__version__)
        return 0
    command = next((c for c in COMMANDS if c.name == arguments[0]), None)
    if command is None:
        print(unknown_command(arguments[0]), file=sys.stderr)
        return 2
    gc.disable()  # an import allocates much and frees nothing
    module = importlib.import_module(command.module)
    gc.enable()
    result: int = module.main(arguments[1:])
    return result


def main() -> None:
    """Entry point of the console script; exits with the command's status."""
    try:
        status = run(sys.argv[1:])
    except PrerollError as error:
        print(error if error.is_report else f"preroll: {error}", file=sys.stderr)
        status = error.exit_code
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:
        # Whoever read the output has seen enough; the interpreter's own flush must not fail too.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        status = 128 + 13
    sys.exit(status)
