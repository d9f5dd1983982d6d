"""Which models there are. Adding one adds it here; all else that is its own stands in its package."""

from scalescope.train.models.config import ModelConfig
from scalescope.train.models.gpt.config import GptConfig
from scalescope.train.models.resnet.config import ResNetConfig

_ALL = (
    GptConfig,
    ResNetConfig,
)  # fmt: skip
MODELS: dict[str, type[ModelConfig]] = {each.own_kind: each for each in _ALL}
