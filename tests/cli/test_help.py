"""`--help` of every command: 80 columns, and each argument and option says what it is for."""

from collections.abc import Iterator
from importlib.metadata import version

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from cli.main import app
from tests.cli.conftest import Command


def commands(group: TyperGroup, *above: str) -> Iterator[tuple[tuple[str, ...], TyperCommand | TyperGroup]]:
    """Every command with the words that name it, groups first."""
    yield above, group
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, *above, name)
        else:
            assert isinstance(command, TyperCommand)
            yield (*above, name), command


def all_commands() -> list[tuple[tuple[str, ...], TyperCommand | TyperGroup]]:
    whole = typer.main.get_command(app)
    assert isinstance(whole, TyperGroup)
    return list(commands(whole))


NAMES = {" ".join(words): command for words, command in all_commands()}


@pytest.fixture(scope="module")
def address() -> str:
    """Help asks no database."""
    return "postgresql://nowhere/nowhere"


def test_the_commands_are_these() -> None:
    assert list(NAMES) == [
        "", "migrate", "up", "demo", "place", "extend", "confirm", "cancel", "show", "list", "apply", "import", "trace",
        "sweep", "status", "reconcile", "prune", "infrai-server", "sweep-door",
        "endpoints", "endpoints add", "endpoints list", "endpoints show",
        "endpoints edit", "endpoints rotate", "endpoints revoke", "endpoints reseal", "endpoints pause",
        "endpoints resume", "endpoints disable", "endpoints enable", "endpoints delete", "endpoints test",
        "deliveries", "deliveries list", "deliveries show", "deliveries replay", "reminders", "reminders list",
        "reminders show", "reminders resend", "reminders leave", "dead-letters", "dead-letters list",
        "dead-letters show", "dead-letters replay", "dead-letters discard",
        "cohorts", "cohorts show", "cohorts route",
        "cohorts compare", "bridge", "bridge check", "bridge publish", "bridge consume", "bridge stats",
        "bridge redrive", "bridge pause", "bridge resume",
        "compare", "compare cost",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name or "holdfast")
def test_help_is_80_columns_wide_and_says_what_everything_is_for(holdfast: Command, name: str) -> None:
    said = holdfast(*name.split(), "--help")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0].startswith(f"Usage: {' '.join(['holdfast', *name.split()])} [OPTIONS]")
    assert [line for line in lines if len(line) > 80] == []
    command = NAMES[name]
    assert command.help
    assert [param.name for param in command.params if not getattr(param, "help", None)] == []
    for param in command.params:
        assert any(word in said.out for word in (*param.opts, str(getattr(param, "metavar", None))))


@pytest.mark.parametrize("name", [name for name, command in NAMES.items() if isinstance(command, TyperCommand)])
def test_every_command_has_json(name: str) -> None:
    assert ["--json"] in [param.opts for param in NAMES[name].params]


def test_no_command_at_all_is_a_call_for_help(holdfast: Command) -> None:
    assert holdfast() == holdfast("--help")


def test_the_version_is_told(holdfast: Command) -> None:
    assert holdfast("--version") == (0, f"holdfast {version('holdfast')}\n", "")


def test_usage_names_what_must_be_given_and_brackets_what_may_be_left_out(holdfast: Command) -> None:
    usages = {name: holdfast(*name.split(), "--help").out.splitlines()[0].partition("holdfast ")[2] for name in NAMES}
    assert [line for line in usages.values() if "{" in line or "[[" in line] == []
    assert usages["deliveries show"] == "deliveries show [OPTIONS] EVENT ENDPOINT"
    assert usages["deliveries replay"] == "deliveries replay [OPTIONS] [EVENT]"
