"""Connections and transactions. Nothing connects at import; an engine is made in the process that uses it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError

Tx = Connection
"""A transaction: what every function of this package takes first."""


_BY_INDEX = text("SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)")

_SESSION_BY_INDEX = text("SET enable_seqscan = off; SET enable_bitmapscan = off")
_SESSION_AS_BEFORE = text("RESET enable_seqscan; RESET enable_bitmapscan")
_SESSION = "holdfast session"
"""Stands in the `info` of a connection whose plans all go by index."""


def by_index(tx: Tx) -> None:
    """Let the rest of this transaction go row by row along indexes.

    For statements that touch few rows of large tables, or stop at a limit. The planner knows how many holds are past
    their deadline, but not that nearly all of these are closed or set aside, and that changes by the minute: now and
    then it would read the whole table to find none, or all that is overdue to count a window of it.
    """
    if not tx.info.get(_SESSION):
        tx.execute(_BY_INDEX)


class Session:
    """A connection that is kept between its transactions; nothing is open there meanwhile."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """Commit at the end, roll back on any exception."""
        with self._connection.begin():
            yield self._connection


def _as_before(connection: Connection) -> None:
    """Take back what a session set; a connection that is lost goes with it."""
    try:
        connection.info.pop(_SESSION, None)
        with connection.begin():
            connection.execute(_SESSION_AS_BEFORE)
    except DBAPIError:
        connection.invalidate()


_LONGEST_SILENCE = "30s"
"""A client that stops in mid-transaction (a paused machine, a lost network) loses its locks after this long."""

_LOOKS_FOR_ITS_CLIENT = "2s"
"""How often the server looks, while a statement runs or waits for a lock, whether its client is still there. Otherwise
a killed worker's session waits for as long as it may, gets the lock, and does what nobody asks for any more. A host
that lost its power says nothing: there the server's own keepalives (here too) end it."""

_GIVES_UP_SILENT_CLIENTS = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
"""The server's side of `keepalives_idle` and its kin below: a session whose host is gone ends after 25 s, not 2 h."""


_NOT_COMPILED = "-c jit=off"
"""Plans that must go by index look dear to a server that compiles dear ones, and compiling takes a second on a busy
machine where the statement takes a millisecond."""


def _first_line_alone(context: ExceptionContext) -> None:
    """Leave what went wrong in an error, and cut off the row that the server shows with it.

    Celery logs the whole text of an error that leaves a task, and a row may hold a customer's contacts.
    """
    for fault in (context.original_exception, context.sqlalchemy_exception):
        if fault is not None and fault.args:
            fault.args = (str(fault.args[0]).partition("\n")[0], *fault.args[1:])


class Database:
    """One process's connections to one database.

    Read committed throughout: a statement after a lock sees what it waited for. Session time is UTC, so the host's
    `TZ` changes nothing; every wait has a limit. `statement_timeout` of None sets none, for work an operator watches.
    """

    def __init__(self, url: str, *, statement_timeout: timedelta | None = timedelta(seconds=30), pool: int = 4) -> None:
        limit = 0 if statement_timeout is None else int(statement_timeout.total_seconds() * 1000)
        address = make_url(url)
        options = (
            f"-c timezone=UTC -c lock_timeout=10s -c statement_timeout={limit} "
            f"-c idle_in_transaction_session_timeout={_LONGEST_SILENCE} "
            f"-c client_connection_check_interval={_LOOKS_FOR_ITS_CLIENT} {_GIVES_UP_SILENT_CLIENTS} "
            f"{_NOT_COMPILED}"
        )
        self.engine: Engine = create_engine(
            address,
            pool_size=pool,
            max_overflow=0,
            pool_timeout=10,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
            hide_parameters=True,  # they hold customers' texts, and errors are logged
            connect_args={
                "options": f"{address.query.get('options', '')} {options}".strip(),
                "connect_timeout": 5,
                # over a network, a server that has gone silent is given up; sockets do not know these
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": 25_000,
                "application_name": "holdfast",
            },
        )
        event.listen(self.engine, "handle_error", _first_line_alone)

    @contextmanager
    def transaction(self) -> Iterator[Tx]:
        """Commit at the end, roll back on any exception."""
        with self.engine.begin() as tx:
            yield tx

    @contextmanager
    def session(self) -> Iterator["Session"]:
        """One connection for many small transactions: to take one and see that it still works costs as much as they do.

        Plans are as `by_index` says.
        """
        with self.engine.connect() as connection:
            with connection.begin():
                connection.execute(_SESSION_BY_INDEX)
            connection.info[_SESSION] = True
            try:
                yield Session(connection)
            finally:
                _as_before(connection)

    def close(self) -> None:
        """Close what is idle; a process calls it before it ends or forks."""
        self.engine.dispose()
