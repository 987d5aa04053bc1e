"""Starts one program on a leash: known by a locked file, gone when its parent goes.

    leash.py PID_FILE PARENT_FILE SIGNAL FOLDER USER [NAME=VALUE …] -- PROGRAM [ARGUMENT …]

The program takes this process's place, and with it an open, locked PID_FILE that holds its process id. Its children
inherit the lock, so the file stays locked until the last of them is gone, however they ended: no process id that the
machine has given to somebody else is ever mistaken for ours. On Linux the program gets SIGNAL when its parent dies.

A script of the standard library alone: it runs before every program, also as a Python without our packages.
"""

import ctypes
import fcntl
import os
import pwd
import signal
import sys
from contextlib import suppress
from pathlib import Path

_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
_LAST_GENERATION_LIMIT = 10
"""Seconds until a start gives up on an earlier generation that does not go."""


def claim(pid_file: Path) -> None:
    """Lock the file for this process and its children; end what is left of an earlier generation first.

    A worker that was killed leaves its pool behind. Its process group cannot have been given away while one of them
    lives, and if none does there is no lock to meet.
    """
    held = os.open(pid_file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with suppress(ProcessLookupError, PermissionError, ValueError):
            os.killpg(int(pid_file.read_text()), signal.SIGKILL)
        signal.alarm(_LAST_GENERATION_LIMIT)
        fcntl.flock(held, fcntl.LOCK_EX)
        signal.alarm(0)
    os.ftruncate(held, 0)
    os.write(held, b"%d\n" % os.getpid())
    os.set_inheritable(held, True)


def become(user: str) -> None:
    """Give up root for this user."""
    entry = pwd.getpwnam(user)
    os.initgroups(user, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def tie_to_parent(number: int, parent: int) -> None:
    """Ask for this signal at the parent's death; stop at once if it has died already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, number)
    if os.getppid() != parent:
        raise SystemExit("its parent is gone")


def main(arguments: list[str]) -> None:
    """Become the program the command line asks for."""
    split = arguments.index("--")
    (pid_file, parent_file, number, folder, user, *assigned), command = arguments[:split], arguments[split + 1 :]
    parent = int(Path(parent_file).read_text())
    claim(Path(pid_file))
    os.chdir(folder)
    if user:
        become(user)
    tie_to_parent(signal.Signals[number], parent)
    changes = dict(word.split("=", 1) for word in assigned)
    os.execvpe(command[0], command, {**os.environ, **changes})  # noqa: S606, TID251 - the program gets what we got


if __name__ == "__main__":
    main(sys.argv[1:])
