"""What a model's torch half is, and how one is built with what a reader of its figures needs."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from scalescope.train.models.config import ModelConfig
from scalescope.train.models.flops import Flops


class Network(nn.Module, ABC):
    """A network that is made of its config; called with inputs and targets, it returns the mean loss."""

    recompute = False  # activation checkpointing: keep each block's input only

    @property
    @abstractmethod
    def blocks(self) -> Sequence[nn.Module] | nn.ModuleList:
        """The repeated part, which strategies shard and recompute one by one."""

    @classmethod
    def prepare(cls, config: Any, device: torch.device) -> None:
        """Set what the process needs set before a network of this config runs on the device. Raises UserError."""

    @classmethod
    @abstractmethod
    def synthetic_sample(cls, config: Any, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return one random sample, made on the generator's device: input and target."""

    def slice_layers(self, mesh: DeviceMesh) -> None:
        """Lay its large layers in slices over the ranks of a mesh of one dimension, which then compute them together.

        Where its config's `slice_obstacle` is None. The loss, and its backward pass, then want torch's loss_parallel.
        """
        raise NotImplementedError

    @classmethod
    def attention_kernel(cls, config: Any, device: torch.device, dtype: torch.dtype) -> str | None:
        """Return the kernel that attention runs as; None where there is none, or it is not known. Raises UserError."""
        return None


class Stage(Network):
    """A stretch of a network's blocks: samples or activations in, activations out; the last stage's give the loss.

    Made of the whole network, its place and how many there are; parameters have the names that they have in the whole.
    """

    @property
    @abstractmethod
    def shared(self) -> nn.Parameter | None:
        """The parameter that the first and the last stage both hold; None in others, or where there is none."""

    @abstractmethod
    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of what the last stage has put out."""

    @abstractmethod
    def activations(self, samples: int, dtype: torch.dtype) -> Tensor:
        """Return what stages hand on for so many samples, as a tensor without data: its shape and type alone."""


@dataclass(frozen=True)
class Model:
    """A network on its device, with what a reader of its figures needs."""

    network: Network
    parameters: int
    flops: Flops
    tokens_per_sample: int | None


def network_class(config: ModelConfig) -> type[Network]:
    """Return the torch half of a model, loaded when it is wanted."""
    module, _, name = config.network.partition(":")
    return cast(type[Network], getattr(import_module(module), name))


def cut_stage(config: ModelConfig, whole: Network, stage: int, stages: int) -> Stage:
    """Return stage `stage` of so many, with its modules of the whole; where `config.stage_obstacle` is None."""
    module, _, name = config.stage.partition(":")
    return cast(Stage, getattr(import_module(module), name)(whole, stage, stages))


def build_model(config: ModelConfig, device: torch.device, recompute: bool = False) -> Model:
    """Return the configured model with fresh weights, drawn on the device from torch's default generator."""
    make = cast(Any, network_class(config))
    make.prepare(config, device)
    with device:
        network: Network = make(config)
    network.recompute = recompute
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return Model(network, parameters, config.flops(parameters, recompute), config.tokens_per_sample)
