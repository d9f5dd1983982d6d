"""What a strategy is: how one step's arithmetic runs over the ranks. Alone, it is the plain step of one process."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scalescope.train.data.samples import Batch
from scalescope.train.models.compiling import can_compile, compile_module, uncompiled
from scalescope.train.models.config import ModelConfig
from scalescope.train.models.network import Network
from scalescope.train.models.precision import Precision
from scalescope.train.settings import OptimizerConfig
from scalescope.train.strategies.config import StrategyConfig
from scalescope.train.strategies.optimizers import build_optimizer, clip_gradients, learning_rate, set_learning_rate
from scalescope.train.strategies.own_time import at_end_of_backward

Own = TypeVar("Own", bound=StrategyConfig)


class Recipe(Protocol):
    """What of a training job's config its strategy goes by."""

    model: ModelConfig
    strategy: StrategyConfig
    optimizer: OptimizerConfig
    steps: int
    accumulate: int
    compile: Any


class Strategy(Generic[Own]):
    """Wraps a network, owns its optimiser, and runs steps. A new strategy overrides what differs.

    `network` is the bare network, `module` what the forward pass calls, `options` the strategy's own config.
    `arrive` is called in each step right before the rank first waits for the others, as far as the strategy tells.
    """

    #: Whether parameters are gathered in the forward pass; else the first exchange is of gradients, in the backward.
    exchanges_forward = False
    #: Each part of an accumulated batch is exchanged, not their sum alone.
    exchanges_each_part = False
    #: Gradients travel beside the backward pass, which waits for none of them before its end.
    exchanges_beside_backward = False

    def __init__(self, config: Recipe, network: Network, precision: Precision, device: torch.device) -> None:
        self.config = config
        self.options = cast(Own, config.strategy)
        self.network = network
        self.precision = precision
        self.device = device
        self.compiled = self._compiles()
        self.compiled_by_bucket: bool | None = None  # what is compiled is a graph a gradient bucket, not one
        self.module = self.wrap()
        self.optimizer = self.build_optimizer()
        self.arrive: Callable[[], None] = lambda: None

    def wrap(self) -> nn.Module:
        """Return the module that trains."""
        return compile_module(self.network) if self.compiled else self.network

    def build_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimiser of the wrapped network's parameters."""
        return build_optimizer(self.config.optimizer, self.network)

    def forward_context(self) -> AbstractContextManager[object]:
        """The context that the forward pass runs in."""
        return self.precision.context()

    def no_sync(self) -> AbstractContextManager[None]:
        """The context of a backward pass whose gradients need not be exchanged yet."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        self.precision.scaler.scale(loss).backward()

    def update(self, step: int) -> None:
        """Apply the gradients of a step and clear them."""
        scaler = self.precision.scaler  # without fp16 it only passes on
        scaler.unscale_(self.optimizer)
        self.clip_gradients()
        set_learning_rate(self.optimizer, learning_rate(self.config.optimizer, step, self.config.steps))
        scaler.step(self.optimizer)
        scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def clip_gradients(self) -> None:
        """Scale the gradients of all ranks down to the total norm that is asked for."""
        clip_gradients(self.network, self.config.optimizer.gradient_clip)

    def train_step(self, batch: Batch, step: int) -> Tensor:
        """Run one step on this rank's samples; return the loss, on the device: the mean over ranks is the job's."""
        inputs, targets = batch
        parts = self.config.accumulate
        if self.exchanges_forward:
            self.arrive()
        if parts == 1:
            loss = self._forward(inputs, targets)
            self._arrive_with(loss)
            self.backward(loss)
            self.update(step)
            return loss.detach()
        total = torch.zeros((), device=self.device)
        for index, (part, answers) in enumerate(zip(inputs.chunk(parts), targets.chunk(parts), strict=True)):
            with self.no_sync() if index < parts - 1 else nullcontext():
                loss = self._forward(part, answers) / parts
                if self.exchanges_each_part or index == parts - 1:
                    self._arrive_with(loss)
                self.backward(loss)
            total += loss.detach()
        self.update(step)
        return total

    def save(self, path: Path, group: dist.ProcessGroup) -> None:
        """Write weights and optimiser state to a folder, on all ranks together. Raises RuntimeError or OSError."""
        import torch.distributed.checkpoint as dcp  # a second to load: only where it is used
        from torch.distributed.checkpoint.api import CheckpointException

        try:
            dcp.save(self.state(), checkpoint_id=path, process_group=group)
        except CheckpointException as error:  # a BaseException, which would pass by every handler
            raise RuntimeError(next(iter(error.failures.values()))[0]) from error

    def save_in_background(self, path: Path, group: dist.ProcessGroup) -> "Future[object]":
        """Copy the state to the host, and return the future of its being written by a thread, with `group` its own."""
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        # neither pinned nor shared memory, neither a thread nor a stream of its own; the last one's name has changed
        stager = DefaultStager(StagingOptions(False, False, False, False))
        on_host = stager.stage(self.state())  # which the device has made when it returns
        writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint", initializer=self._stand_aside)
        future: Future[object] = writer.submit(dcp.save, on_host, checkpoint_id=path, process_group=group)
        writer.shutdown(wait=False)
        future.add_done_callback(lambda _: stager.close())
        return future

    def _stand_aside(self) -> None:
        """Keep the thread that writes away from the steps, which dcp.async_save does not do for its own.

        On a GPU machine DCP waits every few MB for the thread's current stream, also where all is on the host already
        (`_OverlappingCpuLoader`). A new thread's is the default stream of device 0: on rank 0 the one that steps are
        queued in, so that each wait would be as long as they are; on every other rank another rank's device, on which
        it would make a context of half a GB.
        """
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.cuda.set_stream(torch.cuda.Stream(self.device))

    def load(self, path: Path, group: dist.ProcessGroup) -> None:
        """Take over what `save` wrote. Raises RuntimeError, ValueError or OSError where it cannot be read."""
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.api import CheckpointException

        from scalescope.train.strategies.untrusted import CheckpointReader, only_weights, reason_of

        state, reader = self.state(), CheckpointReader(path)
        reader.read_metadata()  # DCP would wrap up why it cannot be read
        try:
            with only_weights():  # DCP's planner asks torch.load for anything that a file may name
                dcp.load(state, storage_reader=reader, process_group=group)
        except CheckpointException as error:  # a BaseException, which would pass by every handler
            raise RuntimeError(reason_of(next(iter(error.failures.values()))[0])) from error
        self.load_state(state)

    def state(self) -> dict[str, Any]:
        """Return weights and optimiser state by parameter name, to be saved or filled."""
        from torch.distributed.checkpoint.state_dict import get_state_dict

        network, optimizer = get_state_dict(self.network, self.optimizer)
        return {"network": network, "optimizer": optimizer, "scaler": self.precision.scaler.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned, filled from a checkpoint."""
        from torch.distributed.checkpoint.state_dict import set_state_dict

        set_state_dict(
            self.network, self.optimizer, model_state_dict=state["network"], optim_state_dict=state["optimizer"]
        )
        self.precision.scaler.load_state_dict(state["scaler"])

    @torch.no_grad()
    def evaluate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of samples without training on them; the mean over the ranks that share them is theirs.

        The bare network runs, uncompiled: nothing is exchanged but slices, and nothing compiled for another mode or
        for a last batch that is smaller.
        """
        self.network.eval()
        with self.forward_context(), uncompiled() if self.compiled else nullcontext():
            loss: Tensor = self.network(inputs, targets)
        self.network.train()
        return loss

    def _compiles(self) -> bool:
        """Return what `compile` comes to: `auto` compiles wherever the strategy and the machine allow it."""
        if self.config.compile != "auto":
            return bool(self.config.compile)
        return self.options.compile_obstacle() is None and can_compile(self.device, self.precision.dtype)

    def _arrive_with(self, loss: Tensor) -> None:
        """Mark where this rank first waits for the others in the backward pass that is about to begin."""
        if self.exchanges_beside_backward:
            at_end_of_backward(loss, self.arrive)
        else:
            self.arrive()

    def _forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        with self.forward_context():
            loss: Tensor = self.module(inputs, targets)
        return loss
