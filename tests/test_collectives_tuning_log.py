"""What the library used is taken from its own log, NCCL's and RCCL's of several releases; else it is withheld."""

from pathlib import Path

import pytest

from scalescope.collectives.checks import check
from scalescope.collectives.measure.tuning_log import Choice, TuningLog, doubt_of_channels
from scalescope.records.errors import UserError
from tests.collectives_runs import compose

#: As the libraries print them: NCCL 2.23 and later, and RCCL of ROCm 7 (src/enqueue.cc); RCCL of ROCm 6.3.
TOLD = "host:1:2 [0] NCCL INFO AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..111}\n"
NUMBERS = "host:1:2 [0] NCCL INFO 8388608 Bytes -> Algo 1 proto 2 time 61.400002\n"


@pytest.mark.parametrize(
    ("line", "choice"), [(TOLD, Choice("RING", "SIMPLE", 112)), (NUMBERS, Choice("RING", "SIMPLE", None))]
)
def test_the_last_choice_is_read_with_its_channels(tmp_path: Path, line: str, choice: Choice) -> None:
    path = tmp_path / "nccl-tuning.0.log"
    log = TuningLog(tmp_path, 0)
    path.write_text("AllReduce: 8 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}\n" + line)
    assert log.last_choice() == choice and choice.words == "RING/SIMPLE"
    assert log.last_choice() is None  # nothing new


def test_channels_that_the_library_did_not_take_are_withheld() -> None:
    used = Choice("RING", "SIMPLE", 112)
    assert doubt_of_channels(112, used, is_rccl=True) is None
    assert doubt_of_channels(128, used, is_rccl=True) is None  # a small message needs fewer
    assert "told 16 channels and used 112" in str(doubt_of_channels(16, used, is_rccl=True))
    assert "told 16 channels and used 112" in str(doubt_of_channels(16, used, is_rccl=False))
    silent = used._replace(channels=None)
    assert "does not say" in str(doubt_of_channels(16, silent, is_rccl=True))
    assert doubt_of_channels(16, silent, is_rccl=False) is None  # NCCL obeys
    assert "does not say" in str(doubt_of_channels(16, None, is_rccl=True))


def test_as_many_channels_as_rccl_has_can_be_asked_for() -> None:
    check(compose("channels=128"), 2)
    with pytest.raises(UserError, match="from 1 to 128"):
        check(compose("channels=129"), 2)
