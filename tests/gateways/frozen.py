"""One attempt in a process of its own, which a test may stop: prints what came of it."""

import sys
from datetime import timedelta
from pathlib import Path

from gateways.webhook import Limits, Sender
from tests.gateways.posts import post

if __name__ == "__main__":
    url, ca_file = sys.argv[1:]
    sender = Sender(Limits(deadline=timedelta(seconds=0.3)), dangerous=True, ca_file=Path(ca_file))
    sys.stdout.write(repr(sender.send(post(url))))
