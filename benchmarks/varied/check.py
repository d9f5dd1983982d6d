"""Whether what analyze says first of a job is what was injected. Needs no torch."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: A cause that costs less of the step is none.
_LEAST_SHARE = 0.01
Json = dict[str, Any]


def check(out: Path, say: Callable[[str], None] = print) -> int:
    """Print each truth beside the first findings, told the untraced step and untold. Return 1 where one is wrong."""
    say("job\tstep_ms\tcost_ms\tverdict\ttold\tuntold_verdict\tuntold")
    wrong = 0
    for file in sorted(out.glob("*/*/truth.json")):
        truth = json.loads(file.read_text(encoding="utf-8"))
        told, untold = _findings(file.parent, truth["step_ms"]), _findings(file.parent, None)
        verdicts = [verdict(truth, file.parent.name, answer) for answer in (told, untold)]
        wrong += verdicts[0].startswith("wrong")
        cost = f"{truth['cost_ms']:.2f} ({truth['low_ms']:.2f} to {truth['high_ms']:.2f})"
        say("\t".join([f"{file.parent.parent.name}/{file.parent.name}", f"{truth['step_ms']:.2f}", cost, verdicts[0],
                       _words(told), verdicts[1], _words(untold)]))  # fmt: skip
    return int(wrong > 0)


def _findings(folder: Path, step_ms: float | None) -> list[Json]:
    answer = folder.parent / f"{folder.name}.{'untold' if step_ms is None else 'told'}.json"
    command = [sys.executable, "-m", "scalescope", "analyze", str(folder), "--json", str(answer)]
    given = [] if step_ms is None else ["--step-ms", f"{step_ms:.4f}"]
    subprocess.run([*command, *given], capture_output=True, check=True)
    found: list[Json] = json.loads(answer.read_text(encoding="utf-8"))["findings"]
    return found


def verdict(truth: Json, cause: str, findings: list[Json]) -> str:
    """right, with by how much its size is off; wrong; behind launching, where that is said to cost more; or unsettled,
    where the untraced steps do not tell whether the cause costs anything.
    """
    first: Json = findings[0] if findings else {"code": "nothing", "rank": None, "low_ms": None}
    blamed = first["rank"] is not None and (first["low_ms"] or 0) > 0
    if cause == "none":
        return "wrong" if blamed else "right"
    if not (truth["low_ms"] > 0 and truth["cost_ms"] >= _LEAST_SHARE * truth["step_ms"]):
        return "wrong" if blamed and first["rank"] != truth["rank"] else "unsettled"
    named = [one for one in findings if one["code"] in truth["codes"] and one["rank"] == truth["rank"]]
    if not named:
        return "behind launching, not told" if first["code"] == "host_bound" else "wrong: not told"
    ms = sum(one["ms"] or 0.0 for one in named)
    off = f"{ms / truth['cost_ms'] - 1:+.0%}"
    if first in named:
        return f"right {off}"
    return f"behind launching {off}" if first["code"] == "host_bound" else f"wrong: behind {off}"


def _words(findings: list[Json]) -> str:
    return "; ".join(
        one["code"]
        + ("" if one["rank"] is None else f" of {one['rank']}")
        + ("" if one["ms"] is None else f" {one['ms']:.2f} ({one['low_ms']:.2f} to {one['high_ms']:.2f})")
        for one in findings[:2]
    )
