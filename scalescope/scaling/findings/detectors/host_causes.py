"""What the hosts' own records say, made candidates: each cause with what takes it out of the replayed step."""

from collections.abc import Iterator, Sequence
from typing import Literal

from scalescope.scaling.evidence.host_cause import HostCause, HostCode, HostFigure
from scalescope.scaling.finding import Cure, EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.replay.removal import Removal, What

_CURES: dict[HostCode, Cure] = {
    "data_loading": "load_ahead",
    "host_stall": "look_at_host",
    "host_starved": "free_cores",
    "synchronising": "drop_synchronisation",
    "recompilation": "fixed_shapes",
    "allocation": "keep_memory",
}
_KINDS: dict[str, Literal["operator", "annotation"]] = {
    "operator": "operator",
    "call": "operator",
    "annotation": "annotation",
}
_MOST_EVIDENCE = 3


def host_causes(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate for each code and rank among the causes on the hosts' side; launching is told by the replay."""
    by_kind: dict[tuple[HostCode, int | None], list[HostCause]] = {}
    for cause in scene.host or ():
        if cause.code in _CURES:
            by_kind.setdefault((cause.code, cause.rank), []).append(cause)
    for (code, rank), causes in by_kind.items():
        longest = sum(cause.typical_ns if cause.at_most_ns is None else _mean(cause.at_most_ns) for cause in causes)
        if scene.worth_a_look(longest / 1e6):
            yield Candidate(
                code=code,
                rank=rank,
                removals=_removals(scene, code, rank, causes),
                evidence=_evidence(causes),
                remedy=_remedy(scene, code),
            )


def _removals(scene: Scene, code: HostCode, rank: int | None, causes: Sequence[HostCause]) -> tuple[Removal, ...]:
    what: What
    if code == "host_starved":
        # hosts differ by themselves: where a host is known to be interrupted, only that is taken out
        between = rank is not None and any(one.kind == "interruptions" for cause in causes for one in cause.evidence)
        what = "gaps" if between else "host"
    elif code == "synchronising":
        what = "waits"
    elif code == "data_loading" and _annotated(scene, rank, causes):
        what = "data"
    elif code in ("data_loading", "host_stall") and rank is not None:
        what = "gaps"
    else:
        return (Removal("pause", rank, round(sum(cause.typical_ns for cause in causes))),)
    return (Removal(what, rank),)


def _annotated(scene: Scene, rank: int | None, causes: Sequence[HostCause]) -> bool:
    """Whether the graph itself knows most of the loading: where it is annotated."""
    side = scene.side
    ranks = side.ranks if rank is None else [rank] if rank in side.ranks else []
    known = [float(side.launches[one, step].data_ns.sum()) for one in ranks for step in side.steps]
    return bool(known) and sum(known) / len(known) >= 0.5 * sum(cause.typical_ns for cause in causes)


def _remedy(scene: Scene, code: HostCode) -> Remedy:
    if code != "data_loading":
        return Remedy(cure=_CURES[code])
    # null: as many as cores are left, which decoding images can use and cutting tokens cannot
    images = scene.facts is not None and scene.facts.dataset == "image_folder"
    return Remedy(cure="load_ahead", overrides=scene.overrides("data.workers=null" if images else "data.workers=4"))


def _evidence(causes: Sequence[HostCause]) -> tuple[EvidenceRow, ...]:
    rows = [_row(figure, cause) for cause in causes for figure in cause.evidence]
    return tuple(sorted(rows, key=lambda row: -(row.ms or 0.0))[:_MOST_EVIDENCE])


def _row(figure: HostFigure, cause: HostCause) -> EvidenceRow:
    name = f"{figure.name} in {figure.inside}" if figure.inside and figure.name else figure.name or figure.inside
    if figure.kind == "gap" and cause.place is not None:
        name = f"gap_before {cause.place.after or 'the end of the step'}"
    return EvidenceRow(
        kind=_KINDS.get(figure.kind, "figure"),
        name=name or figure.kind,
        ms=figure.ns / 1e6,
        others_ms=figure.others_ns / 1e6 if figure.others_ns is not None else None,
        calls=figure.count,
        share=figure.share,
    )


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0
