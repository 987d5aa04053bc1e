"""A candidate's own scheduler in a process of its own: `python -m comparison.beat`, its orders as JSON on stdin."""

import json
import sys
from importlib import import_module


def main() -> None:
    """Attach to the candidate that is named and tick until killed."""
    order = json.load(sys.stdin)
    import_module(order["module"]).attach(order["address"]).beat()


if __name__ == "__main__":
    main()
