"""The same work for many, a few at once."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def side_by_side(work: Callable[[T], R], items: Iterable[T], at_once: int) -> list[R]:
    """The results in order of the items.

    Raises:
        Exception: the first that any raised. Whatever ends the waiting, a time limit too, what has not begun by then is
            not begun: else the caller would stay until all of it was done.
    """
    with ThreadPoolExecutor(at_once) as pool:
        try:
            return list(pool.map(work, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
