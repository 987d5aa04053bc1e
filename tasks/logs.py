"""How lines are logged: a fixed event name with fields beside it; JSON where no person is reading."""

import logging
import sys
from typing import Any

import structlog
from celery.signals import setup_logging, task_postrun, task_prerun

from settings import Settings, settings

_QUIET = ("celery.app.trace", "celery.worker.strategy", "celery.beat", "kombu", "alembic")
"""Loggers that write a line for every message or tick; their warnings stay."""


def _shared() -> list[Any]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def configure(chosen: Settings) -> None:
    """Write every line, ours and the libraries', to stderr in one form."""
    as_json = chosen.log_format == "json" or (chosen.log_format == "auto" and not sys.stderr.isatty())
    renderer: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer()]
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_shared(),
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(chosen.log_level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[chosen.log_level]))
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


@setup_logging.connect
def _in_a_celery_process(**_: Any) -> None:
    configure(settings())


@task_prerun.connect
def _bind_task(task_id: str, task: Any, **_: Any) -> None:
    structlog.contextvars.bind_contextvars(task_id=task_id, task=task.name)


@task_postrun.connect
def _forget_task(**_: Any) -> None:
    structlog.contextvars.clear_contextvars()
