"""`holdfast up`: the local stack, kept running until somebody stops it."""

import signal
from contextlib import ExitStack
from time import monotonic
from typing import Any

from rich.console import Console

from cli.local.stack import Stack
from cli.local.supervision import NotStarted
from cli.output import print_json
from settings import settings

_STOPPERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_ELSEWHERE = "where HOLDFAST_{}_URL says"
"""A server that is not ours. Its address may hold a password, so it is not shown."""
_NEXT = """
[bold]Next[/bold], in another terminal, in the project's folder:
  . .venv/bin/activate
  holdfast place seat-1 --resource seat-12A --customer ada --for 30s
  holdfast trace seat-1
  holdfast status
  holdfast endpoints add https://hooks.example.com/holdfast
Ctrl-C stops everything; what it holds stays in {state}.
"""


def _hear(action: Any) -> None:
    """Set what the signals do that ask us to stop."""
    for number in _STOPPERS:
        signal.signal(number, action)


def run_up(*, as_json: bool = False) -> int:
    """Keep everything running until Ctrl-C or SIGTERM, then stop it all; returns the exit code.

    What ends by itself meanwhile is started again.

    Raises:
        AlreadyRunning: another one has this folder; nothing was changed.
        HoldfastError: a part did not come up; nothing is left running.
    """
    _hear(signal.default_int_handler)
    try:
        with ExitStack() as afterwards:
            begun = monotonic()
            stack = afterwards.enter_context(Stack(settings()))
            afterwards.callback(_hear, signal.SIG_IGN)  # first of all: nothing interrupts the stop
            _announce(stack, seconds=monotonic() - begun, as_json=as_json)
            stack.wait()
    except KeyboardInterrupt:
        return 0
    except OSError as fault:
        raise NotStarted(
            f"{fault.filename or settings().state}: {fault.strerror}; make it usable and try again"
        ) from fault
    return 1


def _announce(stack: Stack, *, seconds: float, as_json: bool) -> None:
    """Say where everything is."""
    state = stack.places.state
    where = {
        "database": f"socket in {stack.places.sockets}" if stack.postgres else _ELSEWHERE.format("DATABASE"),
        "broker": str(stack.valkey.socket) if stack.valkey else _ELSEWHERE.format("BROKER"),
        "flower": f"http://127.0.0.1:{stack.flower_port}",
        "logs": str(stack.places.logs),
    }
    if as_json:
        print_json({**where, "seconds": round(seconds, 2)})
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold green]Holdfast is up[/bold green] after {seconds:.1f} s")
    for name, value in where.items():
        console.print(f"  [cyan]{name:<10}[/cyan]{value}")
    console.print(_NEXT.format(state=state))
