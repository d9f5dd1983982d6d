"""DeepSpeed ZeRO: optimiser state (stage 1), gradients too (2), parameters too (3) in slices over the ranks."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scalescope.train.strategies.base import Strategy
from scalescope.train.strategies.optimizers import build_optimizer, learning_rate, set_learning_rate
from scalescope.train.strategies.untrusted import only_weights
from scalescope.train.strategies.zero.config import ZeroConfig

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # or DeepSpeed warns that it found nothing better
import deepspeed
import deepspeed.ops
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.utils.tensor_fragment import fragment_address

_TAG = "state"
_IN_CHECKPOINTS = (LossScaler, DynamicLossScaler, ZeroStageEnum, fragment_address)  # what DeepSpeed pickles itself


class Zero(Strategy[ZeroConfig]):
    """DeepSpeed's engine does the step: it scales, exchanges, clips and updates."""

    def wrap(self) -> nn.Module:
        self.exchanges_forward = self.options.stage == 3
        self.exchanges_each_part = self.options.stage == 2  # it reduces in every backward pass
        if self.device.type == "cpu":
            # a shared-memory all-reduce that DeepSpeed would compile for a minute; gloo does without
            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
        # names that torch 2.13 renamed, once a call
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed\.c10d_logger")
        # it broadcasts and slices no other layout
        self.network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload] # torch's stub lacks it
        self._engine, self._sharded, _, _ = deepspeed.initialize(
            model=self.network,
            optimizer=build_optimizer(self.config.optimizer, self.network),
            config={
                "train_micro_batch_size_per_gpu": 1,  # for DeepSpeed's own logs alone; the loader decides
                "gradient_accumulation_steps": self.config.accumulate,
                "gradient_clipping": self.config.optimizer.gradient_clip or 0.0,
                "zero_optimization": {
                    "stage": self.options.stage,
                    "overlap_comm": self.device.type == "cuda",
                    "reduce_bucket_size": int(self.options.bucket_mib * 2**20 / 4),  # in elements
                },
                "zero_allow_untested_optimizer": True,
                "torch_autocast": {"enabled": self.precision.kind == "bf16", "dtype": "bfloat16"},
                "steps_per_print": 2**31,
            },
            dist_init_required=False,
        )
        return self._engine

    def build_optimizer(self) -> torch.optim.Optimizer:
        return self._sharded

    def forward_context(self) -> AbstractContextManager[object]:
        return nullcontext()  # the engine has its own

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        yield
        self._engine.step()  # counts the part; the engine updates at the last one only

    def backward(self, loss: Tensor) -> None:
        self._engine.backward(loss, scale_wrt_gas=False)  # divided by the parts already

    def update(self, step: int) -> None:
        set_learning_rate(self.optimizer, learning_rate(self.config.optimizer, step, self.config.steps))
        self._engine.step()

    def save(self, path: Path, group: dist.ProcessGroup) -> None:
        self._engine.save_checkpoint(str(path), tag=_TAG, save_latest=False)

    def load(self, path: Path, group: dist.ProcessGroup) -> None:
        with only_weights(_IN_CHECKPOINTS):
            loaded, _ = self._engine.load_checkpoint(str(path), tag=_TAG)
        if loaded is None:
            raise RuntimeError("DeepSpeed found no state in it")

    @torch.no_grad()
    def evaluate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self._engine.eval()
        loss: Tensor = self._engine(inputs, targets)
        self._engine.train()
        return loss
