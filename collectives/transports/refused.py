"""A transport that a rank of the group cannot use: every point on it gets the reason as its row."""

from collections.abc import Callable
from typing import NoReturn

from scalescope.collectives.operations.operation import NotAvailable


class RefusedTransport:
    """Refuses every operation with the same words."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def refuse(*_: object) -> NoReturn:
            raise NotAvailable(self._reason)

        return refuse

    issued_by = None
    compiled = None

    def use(self, stream: object) -> None:
        """Nothing runs on it."""

    def close(self) -> None:
        """Nothing was opened."""
