"""A run folder's config.yaml may be a stranger's: it is read as plain keys or refused in one line."""

import time
from pathlib import Path

import pytest

from scalescope.cli.loggers import end_loggers
from scalescope.launch.compose import thaw
from scalescope.records.errors import UserError
from scalescope.records.frozen import read_frozen
from scalescope.train.config import TrainConfig, register
from tests.faults import FAULTS
from tests.report_samples import write_run

ALIASES = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{key}: &{key} [{','.join([f'*{above}'] * 9)}]\n" for above, key in zip("abcdefgh", "bcdefghi", strict=True)
)  # 9⁹ values
HOSTILE = {
    "aliases that multiply": ALIASES,
    "an interpolation that reads the environment": "seed: 1\nname: ${oc.env:HOME}\n",
    "a tag": "name: !!python/object/apply:os.system [id]\n",
    "brackets": "[" * 100_000,
    "a huge number": f"name: {'9' * 5000}\n",
    "half a number": "name: 0x_\n",
    "a control character": "name: \0\n",
    "no end": "name: [1, \n",
    "a mapping for a key": "{? {} : 1}\n",
    "a merge of nothing": "<<: 3\n",
    "much": "name: x\n" + "# \n" * 500_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_freezing_does_not_write_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    register()
    since = time.monotonic()
    with pytest.raises(UserError, match=FAULTS["config_damaged"].says) as refused:
        thaw(text, TrainConfig, {})
    assert refused.value.exit_code == FAULTS["config_damaged"].exit_code
    assert time.monotonic() - since < FAULTS["config_damaged"].within_s
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500
    folder = write_run(tmp_path / "run", 1, config=text)
    with pytest.raises(UserError, match=r"config\.yaml: "):
        read_frozen(folder.config)
    end_loggers([folder])  # after a job: nothing more to say


def test_a_config_that_is_no_text_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 1)
    folder.config.write_bytes(b"seed: \xff\n")
    with pytest.raises(UserError, match=r"config\.yaml: "):
        read_frozen(folder.config)
    assert read_frozen(tmp_path / "none.yaml") == {}


def test_a_number_beyond_what_its_key_can_hold_is_refused(tmp_path: Path) -> None:
    register()
    with pytest.raises(UserError, match="does not fit"):
        thaw(f"launch: {{timeout_s: 1{'0' * 400}}}", TrainConfig, {})
