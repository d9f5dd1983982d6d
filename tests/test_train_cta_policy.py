"""FSDP2 under one of NCCL's CTA policies: where it is refused, and with which reason."""

import pytest
import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather

from scalescope.records.errors import UserError
from scalescope.train.strategies.fsdp2.config import Fsdp2Config
from scalescope.train.strategies.fsdp2.symmetric import SymmetricAllGather, policy_obstacle
from tests.train_runs import compose

ON_GPUS = ("strategy=fsdp2", "launch.device=cuda")


def test_a_policy_is_part_of_the_jobs_name_and_none_leaves_it() -> None:
    assert compose(*ON_GPUS, "strategy.cta_policy=zero").strategy.label == "fsdp2-cta-zero"
    plain = compose(*ON_GPUS).strategy
    assert isinstance(plain, Fsdp2Config) and plain.cta_policy is None and plain.label == "fsdp2"


def test_a_policy_that_nccl_does_not_have_is_refused() -> None:
    with pytest.raises(UserError, match=r"strategy\.cta_policy=none: choose one of default, efficiency, zero"):
        compose(*ON_GPUS, "strategy.cta_policy=none")


def test_a_policy_on_cpus_is_refused_before_anything_starts() -> None:
    with pytest.raises(UserError, match=r"strategy\.cta_policy=zero is told to NCCL, which CPUs do not have"):
        compose("strategy=fsdp2", "launch.device=cpu", "strategy.cta_policy=zero")


def test_where_it_cannot_be_told_the_reason_is_named() -> None:
    assert policy_obstacle("zero", "gloo") == "it is told to NCCL, and this job talks through gloo"
    here = policy_obstacle("zero", "nccl")
    if torch.distributed.is_nccl_available():  # torch's build for GPUs, whether there is one or not
        assert here is None or "NCCL 2.28" in here or torch.__version__ in here
    else:
        assert here == f"torch {torch.__version__} tells its process groups no CTA policy (2.11 does)"


def test_it_is_a_gather_as_fsdp2_asks_for() -> None:
    """torch's abstract class has no method that ours lacks, and FSDP2 takes one."""
    assert isinstance(SymmetricAllGather(), AllGather)
    assert callable(FSDPModule.set_custom_all_gather)
