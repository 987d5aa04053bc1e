"""The stand-ins as a process: `python -m cli.stand_ins --delay 0.05` tells its ports as a line of JSON.

It keeps counts and no messages, and ends with its standard input. `GET /count` tells the providers', and its last line
the mail server's.
"""

import argparse
import json
import sys

from cli.stand_ins.mail import MailServer
from cli.stand_ins.providers import Providers
from cli.stand_ins.running import StandIns


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m cli.stand_ins", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    options = parser.parse_args()
    with StandIns(MailServer(delay=options.delay), Providers(delay=options.delay)) as running:
        running.mail.keeps = running.providers.keeps = False
        print(json.dumps({"mail": running.mail_port, "api": running.api_port}), flush=True)
        sys.stdin.read()
        print(json.dumps({"mails": running.mail.taken, "messages": running.providers.taken}), flush=True)


if __name__ == "__main__":
    main()
