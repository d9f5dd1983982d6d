"""What a process group is for, by the description that it was made with: data, tensor, pipeline, context, experts.

torch's DeviceMesh calls a dimension's groups `mesh_dp`, `mesh_tp`, …; Megatron has names such as
`TENSOR_MODEL_PARALLEL_GROUP`. A group over two dimensions at once is the data's where it holds that one: what goes over
`mesh_dp_cp` are gradients. `default_pg` and `undefined` say nothing.
"""

import re
from typing import Literal

Role = Literal["dp", "tp", "pp", "cp", "ep"]

#: In the order in which a description is searched for them.
_WORDS: tuple[tuple[Role, frozenset[str]], ...] = (
    ("pp", frozenset({"pp", "pipeline", "pipe", "stage", "stages"})),
    ("dp", frozenset({"dp", "data", "fsdp", "hsdp", "shard", "replicate", "ddp", "zero"})),
    ("ep", frozenset({"ep", "expert", "experts", "moe"})),
    ("cp", frozenset({"cp", "context", "sp", "sequence", "ulysses"})),
    ("tp", frozenset({"tp", "tensor"})),
)
ROLES: tuple[Role, ...] = tuple(role for role, _ in _WORDS)


def role_of(description: str | None) -> Role | None:
    """Return the role that a group's description tells; None where it tells none."""
    words = set(re.split(r"[^a-z]+", (description or "").lower()))
    return next((role for role, own in _WORDS if words & own), None)
