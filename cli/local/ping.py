"""Waits until workers answer through the broker: `python -m cli.local.ping APP NODE …`. Its caller sets the limit.

A process of its own, so that it reads the settings its workers read.
"""

import sys

from celery import Celery
from celery.app.utils import find_app
from celery.utils.nodenames import host_format


def wait_for(app: Celery, nodes: set[str]) -> None:
    """Return when each of these nodes has answered."""
    while nodes:
        for answer in app.control.ping(destination=sorted(nodes), timeout=0.5, limit=len(nodes)) or ():
            nodes = nodes - answer.keys()


if __name__ == "__main__":
    wait_for(find_app(sys.argv[1]), {host_format(name) for name in sys.argv[2:]})
