"""DDP as far as it takes no torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

from scalescope.launch.bounds import MEBIBYTES, check_numbers
from scalescope.launch.config import Sent
from scalescope.launch.keys import key
from scalescope.records.errors import UserError
from scalescope.train.settings import choose
from scalescope.train.strategies.config import StrategyConfig


@dataclass
class DdpConfig(StrategyConfig):
    """Every rank holds the whole model; gradients are averaged in buckets during the backward pass."""

    own_kind: ClassVar[str] = "ddp"
    implementation: ClassVar[str] = "scalescope.train.strategies.ddp.strategy:Ddp"
    scales_gradients: ClassVar[bool] = True
    buckets_gradients: ClassVar[bool] = True

    bucket_mib: float = key(formerly="bucket_mb")
    gradient_as_bucket_view: bool = key()
    static_graph: bool = key()
    compile_by_bucket: Any = key(auto_goes_on=True)
    gradient_dtype: str = key()

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("strategy.gradient_dtype", self.gradient_dtype, ("fp32", "bf16"))
        if self.compile_by_bucket not in ("auto", True, False):
            raise UserError(f"strategy.compile_by_bucket={self.compile_by_bucket}: choose one of auto, true, false")
        check_numbers(self, "strategy.", bucket_mib=MEBIBYTES)

    def sent(self, precision: str) -> Sent:
        return Sent(("all_reduce",), ("bfloat16" if self.gradient_dtype == "bf16" else "float32",))

    def cuts_graph(self, ranks: int, by_nvlink: bool) -> bool:
        """Return whether what is compiled is cut at bucket edges: by `auto` where hiding gradients' way pays.

        `by_nvlink`: all ranks are on one host, whose devices reach each other by NVLink.
        """
        return ranks > 1 and not by_nvlink if self.compile_by_bucket == "auto" else bool(self.compile_by_bucket)

    def compile_obstacle(self) -> str | None:
        """The same on any number of ranks, or a study would hold an eager job against one that is compiled."""
        if self.static_graph:
            return "compile=true cuts the model at DDP's bucket edges, which needs strategy.static_graph=false"
        if self.compile_by_bucket and self.bucket_mib < 1:
            return (f"compile=true with strategy.bucket_mib={self.bucket_mib:g}: torch cuts a graph at buckets of "
                    "1 MiB or more; use larger ones, or strategy.compile_by_bucket=false")  # fmt: skip
        return None

    def device_obstacle(self, device: str) -> str | None:
        if self.gradient_dtype == "bf16" and device == "cpu":
            return "strategy.gradient_dtype=bf16 needs NCCL or RCCL, so GPUs; use fp32"
        return None
