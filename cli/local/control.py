"""A running supervisor, by its socket."""

from pathlib import Path
from typing import Any, cast
from xmlrpc.client import ServerProxy

from supervisor.xmlrpc import SupervisorTransport


class Control:
    """A running supervisor, by its socket. A call fails with OSError while it is not there, else with Fault."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def _call(self, method: str, *arguments: object) -> Any:
        """One call on a connection of its own: a connection is not safe between threads."""
        with ServerProxy("http://127.0.0.1", SupervisorTransport(None, None, f"unix://{self._socket}")) as server:
            return getattr(server.supervisor, method)(*arguments)

    def _all(self) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", self._call("getAllProcessInfo"))

    def states(self) -> dict[str, str]:
        """Each program's state, in supervisor's words."""
        return {info["name"]: info["statename"] for info in self._all()}

    def pid(self, program: str) -> int | None:
        """The program's process id, which is its process group's too; None while it does not run."""
        return next((info["pid"] or None for info in self._all() if info["name"] == program), None)

    def _full_name(self, program: str) -> str:
        return next(f"{info['group']}:{info['name']}" for info in self._all() if info["name"] == program)

    def start(self, program: str) -> None:
        """Start a program; returns before it is ready."""
        self._call("startProcess", self._full_name(program), False)

    def stop(self, program: str) -> None:
        """Stop a program; returns when it has ended."""
        self._call("stopProcess", self._full_name(program))

    def take_up(self, group: str) -> None:
        """Read the configuration again and take up a new group in it, or a changed one."""
        self._call("reloadConfig")
        self._call("addProcessGroup", group)

    def shut_down(self) -> None:
        """Ask the supervisor to stop everything and end."""
        self._call("shutdown")
