"""Commands of the bridge: check, publish, consume, stats, redrive, pause, resume."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from cli.context import database, worker_name
from cli.holds import Id
from cli.output import Json, print_fields, print_json, say
from cli.refusals import NotDone, refusals
from db import bridge
from domain.identity import hold_id
from domain.text import clean_label
from settings import settings

if TYPE_CHECKING:
    from gateways.infrai import Infrai
    from tasks.bridging import Bridge, Bridged

app = typer.Typer(help="Holds carried by Infrai's queue.", rich_markup_mode=None)

_NEEDED = ("queue.create", "queue.consume", "queue.ack", "queue.stats", "queue.dlq.redrive")
"""What the bridge cannot do without, besides publishing in one way or the other."""
_NO_WAIT = timedelta(0)


@app.command()
def check(as_json: Json = False) -> int:
    """See that the service still offers the calls used here, and make the queues where they are missing.

    Exit 1 if anything is otherwise.
    """
    from tasks.bridge import make_queues  # noqa: PLC0415 - Celery is slow to import

    with _service() as infrai:
        batches = infrai.check(["queue.publish_batch"])
        found = infrai.check(_NEEDED) + (infrai.check(["queue.publish"]) if batches else [])
        as_wanted = not found and make_queues()
    if as_json:
        differences = [{"capability": one.capability, "part": one.part, "told": str(one)} for one in (*batches, *found)]
        told = {"differences": differences, "one_by_one": bool(batches)}
        print_json(told | {"queue": settings().infrai_queue, "queue_as_wanted": as_wanted})
    elif as_wanted:
        known = "known for what is needed" if batches else "known"
        print(f"the contract is as {known}; the queue {settings().infrai_queue} is there")
    for one in batches:
        say(f"{one}; messages are published one by one")
    for one in found:
        say(f"{one}; bring this client up to date first")
    if not found and not as_wanted:
        say(f"the queue {settings().infrai_queue} or its dead letters' has other terms; delete it, then check again")
    return 0 if as_wanted else 1


@app.command()
def publish(
    again: Annotated[
        str | None, typer.Option("--again", metavar="ID", help="Have this hold's message published once more.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Publish what is due now, as a tick of beat would."""
    with refusals(as_json=as_json):
        if again is not None:
            _publish_again(again)
        return _tick("published", lambda one: one.publish(apart=_NO_WAIT), as_json=as_json)


@app.command()
def consume(as_json: Json = False) -> int:
    """Consume and apply what has come, as a tick of beat would."""
    return _tick("consumed", lambda one: one.consume(apart=_NO_WAIT), as_json=as_json)


@app.command()
def stats(as_json: Json = False) -> int:
    """Show how the bridge stands here, and its queue there."""
    with database() as db, db.transaction() as tx:
        standing, waiting = bridge.standing(tx), bridge.backlog(tx)
    with _service() as infrai:
        found = infrai.stats(settings().infrai_queue)
    told = {
        "standing": str(standing),
        "to_publish": waiting.as_data(),
        "queue": {
            "name": settings().infrai_queue,
            "visible": found.visible,
            "in_flight": found.in_flight,
            "delayed": found.delayed,
            "dead_letters": found.dlq,
            "oldest_s": found.oldest_age_seconds,
        },
    }
    if as_json:
        print_json(told)
        return 0
    print(told["standing"])
    for title in ("to_publish", "queue"):
        print(title.replace("_", " "))
        print_fields(told[title])  # type: ignore[arg-type]
    return 0


@app.command()
def redrive(as_json: Json = False) -> int:
    """Have the service deliver its dead letters again; copies change nothing."""
    with _service() as infrai:
        infrai.redrive(settings().infrai_queue)
    print_json({"redriven": settings().infrai_queue}) if as_json else print("dead letters are delivered again")
    return 0


@app.command()
def pause(
    operator: Annotated[str, typer.Option(help="Who does this; it is kept.", show_default=False)],
    as_json: Json = False,
) -> int:
    """Publish and consume nothing until it is resumed; the sweep rescues what is overdue by the grace time."""
    who = clean_label("operator", operator)
    with database() as db, db.transaction() as tx:
        bridge.pause(tx, who)
        standing = bridge.standing(tx)
    print_json({"standing": str(standing)}) if as_json else print(standing)
    return 0


@app.command()
def resume(as_json: Json = False) -> int:
    """Go on at once, also where the service asked for a wait."""
    with database() as db, db.transaction() as tx:
        bridge.resume(tx)
        standing = bridge.standing(tx)
    print_json({"standing": str(standing)}) if as_json else print(standing)
    return 0


@contextmanager
def _service() -> Iterator["Infrai"]:
    """This process's client, closed afterwards."""
    from tasks.bridge import client  # noqa: PLC0415 - Celery is slow to import

    try:
        yield client()
    finally:
        if client.cache_info().currsize:
            client().close()
            client.cache_clear()


def _publish_again(raw: Id) -> None:
    hold = hold_id(raw, "--again")
    with database() as db, db.transaction() as tx:
        if bridge.publish_again(tx, hold) is None:
            raise NotDone("nothing-published", f"hold {hold} is not held, or its newest message is not published yet")


def _tick(verb: str, run: Callable[["Bridge"], "Bridged"], *, as_json: bool) -> int:
    from tasks import logs  # noqa: PLC0415 - Celery is slow to import, and reads the settings meanwhile
    from tasks.bridge import bridge_of  # noqa: PLC0415 - the same

    logs.configure(settings())
    with _service(), database() as db:
        done = run(bridge_of(db, worker_name()))
    if as_json:
        print_json(done.as_data())
    elif done.closed is None:
        print(f"{done.messages:,} messages {verb}" + _settled(done) * (verb == "consumed"))
    if done.closed is not None:
        say(f"the bridge is {done.closed}; `holdfast bridge resume` lets it go on")
    if done.error is not None:
        say(done.error)
    return 1 if done.error is not None or done.closed is not None else 0


def _settled(done: "Bridged") -> str:
    return f", {done.acknowledged:,} acknowledged" + (f", {done.gone:,} gone already" if done.gone else "")
