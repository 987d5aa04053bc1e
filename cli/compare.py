"""`holdfast compare`: the hostile experiment for every transport, and what each would cost."""

import json
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cli.output import Json, print_json
from domain.errors import BadInput
from settings import settings

if TYPE_CHECKING:
    from comparison.result import Report, Status

app = typer.Typer(help="Put every transport through the same hostile deliveries.", no_args_is_help=False)

RABBITMQ = "amqp://guest:guest@127.0.0.1:5672//"
"""Where a RabbitMQ is looked for unless told otherwise: its own default."""

_MOST_RUNS = 100
_FILES = ("report.json", "report.html")


@app.callback(invoke_without_command=True)
def compare(
    context: typer.Context,
    candidate: Annotated[
        list[str] | None, typer.Option(help="Try this one; may be repeated. All unless given.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=_MOST_RUNS, help="How often each case is tried.")] = 1,
    report: Annotated[str | None, typer.Option(metavar="DIR", help="Write report.json and report.html there.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The shuffles of an earlier run.")] = None,
    redis: Annotated[str | None, typer.Option(metavar="URL", help="A Redis of yours; else our own Valkey.")] = None,
    rabbitmq: Annotated[str, typer.Option(metavar="URL", help="A RabbitMQ of yours.")] = RABBITMQ,
    as_json: Json = False,
) -> int:
    """Try each transport with expired, extended, early, repeated, lost and broken deliveries.

    On a database of its own, which is gone afterwards. Exit 1 if a case fails, or nothing could be tried.
    """
    if context.invoked_subcommand is not None:
        return 0
    names = _known(candidate or [])
    _broker("--redis", redis, ("redis://", "rediss://", "redis+socket://"))
    _broker("--rabbitmq", rabbitmq, ("amqp://", "amqps://"))
    folder = None if report is None else _folder(report)
    chosen = random.SystemRandom().randrange(10**6) if seed is None else seed
    with _ended_as_by_ctrl_c():
        found = _run(names, runs, chosen, {"redis": redis, "rabbitmq": rabbitmq}, quiet=as_json)
    if as_json:
        print_json(found.as_data())
    else:
        from comparison.report.terminal import print_report  # noqa: PLC0415 - with all it imports

        print_report(Console(highlight=False), found)
    if folder is not None:  # after the results are told: a disk that is full by now takes only the files
        _write(found, folder)
        if not as_json:
            print(f"Written: {folder / 'report.html'} and {folder / 'report.json'}")
    return 1 if found.failed else 0


def _known(names: list[str]) -> list[str]:
    from comparison.registry import REGISTRY  # noqa: PLC0415 - only these commands need it

    for name in names:
        if name not in REGISTRY:
            raise BadInput("--candidate", f"{name!r} is none; use one of {', '.join(REGISTRY)}")
    return [name for name in REGISTRY if not names or name in names]


def _broker(option: str, url: str | None, schemes: tuple[str, ...]) -> None:
    """Refuse another's address by its option, and never repeat it: it may hold a password."""
    if url is not None and not url.startswith(schemes):
        raise BadInput(option, f"must begin with {' or '.join(schemes)}")


def _folder(raw: str) -> FilePath:
    """The folder, made and tried before anything runs: minutes of results must not end at its door."""
    folder = FilePath(raw)
    if not raw or (folder.exists() and not folder.is_dir()):
        raise BadInput("--report", f"{raw!r} is no folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        with (folder / name).open("a"):
            pass
    return folder


def _run(names: list[str], runs: int, seed: int, brokers: dict[str, str | None], *, quiet: bool) -> "Report":
    from cli.local.scratch import own_home, own_settings  # noqa: PLC0415 - with the stack
    from cli.local.stack import Stack  # noqa: PLC0415 - supervisor is slow to import
    from comparison.experiment import Entrant, Plan, experiment  # noqa: PLC0415 - the same
    from comparison.registry import REGISTRY, Place  # noqa: PLC0415 - Celery is slow to import
    from comparison.scratch import clock, grounds_on  # noqa: PLC0415 - the same
    from tasks import logs  # noqa: PLC0415 - the same

    logs.configure(settings().model_copy(update={"log_level": "ERROR"}))  # what is malformed here is so on purpose
    console = Console(stderr=True, highlight=False, quiet=quiet)

    def told(title: str, case: str, status: "Status | None") -> None:
        if status is not None:
            console.print(f"{title}: {case}: {status}")

    with own_home("compare") as home, Stack(own_settings(home), programs=()) as stack:
        addresses = {
            "redis": brokers["redis"] or stack.broker_url,
            "rabbitmq": str(brokers["rabbitmq"]),
            "infrai_url": settings().infrai_url,
            "infrai_key": settings().infrai_api_key.get_secret_value(),
        }

        def entrant(name: str) -> Entrant:
            entry = REGISTRY[name]
            return Entrant(
                name=name, title=entry.title,
                make=lambda url: entry.make(Place(database=url, **addresses)),
            )  # fmt: skip

        return experiment(
            [entrant(name) for name in names], Plan(runs=runs, seed=seed), grounds_on(stack.database_url),
            at=clock(stack.database_url), progress=told,
        )  # fmt: skip


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Whatever ends this run, what it made on a broker of others is removed; a signal that is ignored stays so."""
    heard = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def _write(found: "Report", folder: FilePath) -> None:
    from comparison.report.page import page  # noqa: PLC0415 - with all it imports

    told = json.dumps(found.as_data(), indent=1, ensure_ascii=False)
    for name, text in zip(_FILES, (told, page(found)), strict=True):
        (folder / name).write_text(text, encoding="utf-8")


@app.command("cost")
def cost(
    workload: Annotated[str, typer.Option(metavar="FILE", help="What a month is made of, as TOML.")],
    prices: Annotated[str | None, typer.Option(metavar="FILE", help="Prices of yours, in place of ours.")] = None,
    as_json: Json = False,
) -> int:
    """Count operations and cost per million correct expiries on each transport, with the share of duplicates.

    Prices are those found in public text, each with its page and day; what was not found is unknown, and so is its sum.
    """
    from comparison import cost as counting  # noqa: PLC0415 - only this command needs them
    from comparison import prices as pricing  # noqa: PLC0415 - the same
    from comparison.report.costs import as_data, print_costs  # noqa: PLC0415 - the same

    load = counting.Workload.parse(_text(workload), workload)
    table = pricing.published()
    if prices is not None:
        table = pricing.read(_text(prices), prices, table)
    found = counting.costs(load, table, counting.CANDIDATES)
    if as_json:
        print_json(as_data(found, table))
    else:
        print_costs(Console(highlight=False, markup=False), found, table)
    return 0


def _text(file: str) -> str:
    try:
        return FilePath(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadInput(file, "is no text in UTF-8") from None
