"""A measuring verb: what the launch floor has to know of `train` and `sweep` to start one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, cast

from scalescope.launch.config import JobConfig
from scalescope.launch.keys import Variants
from scalescope.records.rows import RunKind

if TYPE_CHECKING:  # it loads torch, which a mistyped key need not wait for
    from scalescope.launch.job import Body


@dataclass(frozen=True)
class Verb:
    """One measuring verb. Its body is named, not imported: only the ranks load what it needs."""

    name: str
    kind: RunKind
    schema: type[JobConfig]
    body: str  # "module:function", called on every rank with its Job
    check: str  # "module:function", called with (config, world_size) before anything starts
    variants: Variants = field(default_factory=dict)

    def load_body(self) -> "Body":
        return cast("Body", _load(self.body))

    def load_check(self) -> Callable[[JobConfig, int], None]:
        return cast(Callable[[JobConfig, int], None], _load(self.check))


def _load(name: str) -> object:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
