"""A candidate's own scheduler in a process of its own: `python -m comparison.beat`."""

from importlib import import_module

from comparison.processes import orders, say_ready


def main() -> None:
    """Attach to the candidate that is named and tick until killed."""
    order = orders()
    candidate = import_module(order["module"]).attach(order["address"])
    say_ready()
    candidate.beat()


if __name__ == "__main__":
    main()
