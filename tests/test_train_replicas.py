"""Ranks that share a replica: whose samples are whose, and what does not go together is refused before a job."""

import pytest

from scalescope.records.errors import UserError
from scalescope.train.checks import check, samples_per_rank
from scalescope.train.config import TrainConfig
from scalescope.train.job import share_of
from tests.train_runs import compose

PARALLEL = {"tensor": 4, "tensor strategy.degree=2": 2, "pipeline": 4, "ddp": 1}


@pytest.mark.parametrize("strategy", PARALLEL)
def test_a_global_batch_is_worked_through_once(strategy: str) -> None:
    config = compose("model=gpt_tiny", *f"strategy={strategy}".split())
    together = PARALLEL[strategy]
    shares = [share_of(config, rank, 4) for rank in range(4)]
    numbers = [number for share in shares for number in share.numbers(3)]
    whole = 4 * config.model.batch_size
    assert sorted(numbers) == sorted(list(range(3 * whole, 4 * whole)) * together)
    assert all(share.numbers(3) == shares[0].numbers(3) for share in shares[:together])
    assert all(share.global_samples == whole == 4 * samples_per_rank(config, 4) for share in shares)


@pytest.mark.parametrize(
    ("words", "ranks", "said"),
    [
        ("strategy=tensor strategy.degree=3", 4, r"strategy.degree=3 does not divide 4 ranks"),
        ("strategy=tensor model.heads=2", 4, r"strategy=tensor: 4 ranks cannot share model.heads=2 evenly"),
        ("strategy=pipeline model.layers=3", 4, r"model.layers=3 is too few for 4 stages"),
        ("strategy=pipeline strategy.schedule=interleaved", 4, r"model.layers=4 is too few for 8 stages"),
        ("strategy=pipeline strategy.microbatches=3", 2, r"strategy.microbatches=3 does not divide the step's 16"),
        ("strategy=pipeline strategy.microbatches=2", 4, r"strategy.microbatches=2 leaves some of 4 stages"),
        ("strategy=tensor model=resnet50", 2, r"resnet50 has no layers that ranks can share; use a GPT model"),
        ("strategy=pipeline model=resnet50", 2, r"resnet50 is not cut into stages; use a GPT model"),
    ],
)  # fmt: skip
def test_what_so_many_ranks_cannot_do_is_refused_by_its_key(words: str, ranks: int, said: str) -> None:
    config = compose("model=gpt_tiny", *words.split()) if "model=" not in words else compose(*words.split())
    with pytest.raises(UserError, match=said):
        check(config, ranks)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("strategy=pipeline accumulate=2", r"accumulate above 1 with strategy=pipeline: strategy.microbatches"),
        ("strategy=pipeline strategy.schedule=zb", r"strategy.schedule=zb: choose one of gpipe, 1f1b, interleaved"),
        ("strategy=tensor precision=fp8", r"precision=fp8 with strategy=tensor"),
        ("strategy=pipeline precision=fp8", r"precision=fp8 with strategy=pipeline"),
        ("strategy=tensor precision=fp16", r"precision=fp16 with strategy=tensor: only ddp and local scale"),
    ],
)
def test_what_does_not_go_together_is_refused(words: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        compose("model=gpt_tiny", *words.split())


def test_where_ranks_share_a_replica_its_state_is_not_taken_over_by_others() -> None:
    loosened = {name: _loosened(name) for name in ("tensor", "pipeline", "ddp")}
    assert loosened == {"tensor": set(), "pipeline": set(), "ddp": {"launch.ranks"}}


def _loosened(strategy: str) -> set[str]:
    config: TrainConfig = compose("model=gpt_tiny", f"strategy={strategy}", "global_batch_size=16")
    return set(config.loosened)
