"""Checkpoints of Python 3.11.0 to 3.11.3, which pickle enumerations by getattr, are read, and nothing else is."""

import io
import pickle
from enum import Enum
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorProperties

from scalescope.train.strategies.untrusted import _MetadataUnpickler, enum_member, only_weights


class Stage(Enum):
    weights = 3


class Fetched:
    """Pickles as that Python pickles what its owner has by a name."""

    def __init__(self, owner: object, name: str) -> None:
        self.owner, self.name = owner, name

    def __reduce__(self) -> tuple[object, tuple[object, str]]:
        return getattr, (self.owner, self.name)


def test_a_metadatas_enumerations_are_read() -> None:
    held = TensorProperties(dtype=torch.float32).__getstate__()[3]  # the memory format, as it is written
    assert isinstance(held, Enum)
    text = pickle.dumps(Metadata({}, Fetched(type(held), held.name)))
    assert _MetadataUnpickler(io.BytesIO(text)).load().planner_data is held


@pytest.mark.parametrize(
    ("owner", "name"), [(Metadata, "__init__"), (MetadataIndex, "__class__"), (Metadata, "mro"), ([], "append")]
)
def test_nothing_else_is_fetched(owner: object, name: str) -> None:
    with pytest.raises(pickle.UnpicklingError, match="no enumeration's member"):
        _MetadataUnpickler(io.BytesIO(pickle.dumps(Fetched(owner, name)))).load()
    with pytest.raises(pickle.UnpicklingError, match="no enumeration's member"):
        enum_member(Stage, "__class__")


def test_weights_alone_admit_the_members_of_classes_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    torch.save({"stage": Fetched(Stage, "weights")}, path)
    with only_weights([Stage]):
        assert torch.load(path) == {"stage": Stage.weights}
    with pytest.raises(ValueError, match="something other than weights"), only_weights():
        torch.load(path)
    torch.save({"stage": Fetched(Stage, "__class__")}, path)
    with pytest.raises(ValueError, match="something other than weights"), only_weights([Stage]):
        torch.load(path)
