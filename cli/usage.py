"""What typer says in its own words, said as the rest of Holdfast says it: usage lines, and a command line misread."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import typer
from typer.core import TyperCommand

_NAME = r"'([^']+)'(?: / '[^']+')*"
_SAID = tuple(
    (re.compile(theirs, re.DOTALL), ours)
    for theirs, ours in (
        (rf"Missing (?:option|argument) {_NAME}.*", r"\1: is missing"),
        (rf"Invalid value for {_NAME}: Input should be ([^,]+).*", r"\1: must be \2"),
        (rf"Invalid value for {_NAME}: (.+)", r"\1: \2"),
        (rf"Option {_NAME} requires an argument", r"\1: needs a value"),
        (rf"Option {_NAME} does not take a value", r"\1: takes no value"),
        (r"No such option: (\S+)(.*)", r"\1: there is no such option\2"),
        (r"No such command '(.*)'\. Did you mean '(.*)'\?", r"there is no command '\1'; did you mean '\2'?"),
        (r"No such command '(.*)'", r"there is no command '\1'"),
        (r"Missing command", r"a command is missing"),
        (r"Got unexpected extra argument\(?s?\)? \((.*)\)", r"too many arguments: \1"),
    )
)
"""Typer's words and ours."""


def misused(problem: typer.TyperException) -> str:
    """What is wrong with a command line, and where to read how it is written: one line."""
    cause = " ".join(problem.format_message().split()).removesuffix(".")
    for theirs, ours in _SAID:
        if theirs.fullmatch(cause):
            cause = theirs.sub(ours, cause)
            break
    context = getattr(problem, "ctx", None)
    see = " See" if cause.endswith("?") else "; see"
    return f"{cause}{see} `{context.command_path if context else 'holdfast'} --help`"


class PlainCommand(TyperCommand):
    """A command whose usage line names what must be given as it is, `ID`, and in brackets what may be left out."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The pieces of the usage line."""
        return [piece.removeprefix("{").removesuffix("}") for piece in super().collect_usage_pieces(ctx)]


def plainly(app: typer.Typer) -> None:
    """Let every command of an app and of its groups show its usage plainly."""
    for group in _groups(app):
        for command in group.registered_commands:
            command.cls = PlainCommand


def _groups(app: typer.Typer) -> Iterator[typer.Typer]:
    yield app
    for group in app.registered_groups:
        if group.typer_instance is not None:
            yield from _groups(group.typer_instance)


def show_version(asked: bool) -> None:
    """Print the version and end, if it was asked for."""
    if asked:
        print(f"holdfast {version('holdfast')}")
        raise typer.Exit
