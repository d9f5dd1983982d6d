"""Which strategies there are. Adding one adds it here; all else that is its own stands in its package. Torch-free."""

from scalescope.train.strategies.config import StrategyConfig
from scalescope.train.strategies.ddp.config import DdpConfig
from scalescope.train.strategies.fsdp2.config import Fsdp2Config
from scalescope.train.strategies.local.config import LocalConfig
from scalescope.train.strategies.pipeline.config import PipelineConfig
from scalescope.train.strategies.tensor.config import TensorConfig
from scalescope.train.strategies.zero.config import ZeroConfig

_ALL = (
    DdpConfig,
    Fsdp2Config,
    LocalConfig,
    PipelineConfig,
    TensorConfig,
    ZeroConfig,
)  # fmt: skip
STRATEGIES: dict[str, type[StrategyConfig]] = {each.own_kind: each for each in _ALL}
