"""Communication by what its process groups are for, as descriptions, or the user, say."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from scalescope.cli.analyze import run as analyze_verb
from scalescope.records.errors import UserError
from scalescope.report.terminal.run import print_run
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.rank.roles import role_of
from scalescope.scaling.run import explain_jobs
from scalescope.scaling.verdicts.groups import by_role, named_roles
from tests.synthetic import Job, Json, make, write

#: Two groups for each rank of four: rows of a mesh over its first dimension, and over its second.
GROUPS: list[tuple[int, ...]] = [(0, 1), (2, 3), (0, 2), (1, 3)]
DESCRIPTIONS = {"g0": "mesh_tp", "g1": "mesh_tp", "g2": "mesh_dp", "g3": "mesh_dp"}


@pytest.mark.parametrize(
    ("description", "role"),
    [
        ("mesh_dp", "dp"), ("mesh_tp", "tp"), ("mesh_pp", "pp"), ("mesh_cp", "cp"), ("mesh_ep", "ep"),
        ("mesh_dp_shard_cp", "dp"), ("mesh_dp_replicate", "dp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"), ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"), ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"), ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("default_pg", None), ("undefined", None), ("", None), (None, None),
    ],
)  # fmt: skip
def test_a_description_says_what_a_group_is_for(description: str | None, role: str | None) -> None:
    assert role_of(description) == role


def traces(*, described: bool, hosts: tuple[str, ...] = ("a", "a", "b", "b")) -> dict[int, Json]:
    made = make(Job(world_size=4, groups=GROUPS, steps=3, collectives=4, kernels=6, seed=7))
    for rank, trace in made.items():
        trace["host_name"] = hosts[rank]
        for event in trace["traceEvents"] if described else ():
            if (group := event["args"].get("Process Group Name")) is not None:
                event["args"]["Process Group Description"] = DESCRIPTIONS[group]
    return made


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> RunAnalysis:
    folder = write(traces(described=True), tmp_path_factory.mktemp("mesh"))
    return explain_jobs(folder, 1)[0].analysis


def test_each_role_has_its_figures(described: RunAnalysis) -> None:
    rows = {row.role: row for row in by_role(described.groups)}
    assert rows.keys() == {"tp", "dp"}
    for row in rows.values():
        assert row.group_size == 2 and row.calls == pytest.approx(4, abs=1)  # some lie beyond the window
    assert (rows["tp"].inside_host, rows["dp"].inside_host) == (True, False)
    exposed = sum(row.exposed_ms for row in rows.values())
    whole = sum(
        rank.exposed_transfer_ms + rank.exposed_wait_ms + rank.exposed_unsplit_ms for rank in described.ranks
    ) / sum(rank.steps for rank in described.ranks)
    alone = max(row.exposed_ms for row in rows.values())
    assert alone <= whole <= exposed + 1e-9, "an instant with collectives of both counts for both"


def test_the_header_describes_groups_too(tmp_path: Path) -> None:
    made = traces(described=False)
    for trace in made.values():
        trace["distributedInfo"]["pg_config"] = [
            {"pg_name": name, "pg_desc": text, "ranks": list(GROUPS[int(name[1])])}
            for name, text in DESCRIPTIONS.items()
        ]
    analysis = explain_jobs(write(made, tmp_path), 1)[0].analysis
    assert {row.group: row.role for row in analysis.groups} == {"g0": "tp", "g1": "tp", "g2": "dp", "g3": "dp"}


def test_the_user_may_name_roles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(traces(described=False), tmp_path)
    given = [word for name in ("g0=tp", "g1=tp", "g2=dp", "g3=dp") for word in ("--role", name)]
    assert analyze_verb([str(folder), *given]) == 0
    text = capsys.readouterr().out
    assert "tensor parallel" in text and "data parallel" in text and "group g0" not in text
    with pytest.raises(UserError, match="dp, ep, cp, tp"):
        analyze_verb([str(folder), "--role", "g0=model"])


def test_groups_without_a_role_stand_by_their_names(described: RunAnalysis) -> None:
    out = io.StringIO()
    console = Console(file=out, width=200, color_system=None, highlight=False)
    described.groups = [row for row in named_roles(described.groups, {}) if row.group != "g1"]
    for row in described.groups:
        row.role = None
    print_run(described, console)
    assert "group g0" in out.getvalue()
