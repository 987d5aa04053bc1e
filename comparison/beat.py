"""A candidate's own scheduler in a process of its own: `python -m comparison.beat`."""

from importlib import import_module

from comparison.processes import orders


def main() -> None:
    """Attach to the candidate that is named and tick until killed."""
    order = orders()
    import_module(order["module"]).attach(order["address"]).beat()


if __name__ == "__main__":
    main()
