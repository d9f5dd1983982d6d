"""The JSON schemas of what verbs print with `--json`, made of their types: `make docs` writes them."""

import copy
import json
from pathlib import Path
from typing import Any

import msgspec

from scalescope.cli.import_logs import Imported
from scalescope.cli.perfetto import PackedTraces
from scalescope.cli.report import WrittenPage
from scalescope.hardware.check_result import CheckResult
from scalescope.hardware.claims.claim import JudgedClaim
from scalescope.records.rows import SweepRow
from scalescope.records.scorecard.row import ScorecardRow
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import LastCollective
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.costs.answer import CostAnswer
from scalescope.scaling.projected import Projection
from scalescope.scaling.replay.whatif.prediction import WhatIf
from scalescope.scaling.study_answer import StudyAnalysis
from scalescope.selftest.item import SelfTest

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schema"

#: By verb, what it prints: one of these types.
ANSWERS: dict[str, list[Any]] = {
    "analyze": [RunAnalysis, StudyAnalysis, list[RunAnalysis | StudyAnalysis], list[LastCollective], list[SweepRow]],
    "compare": [Comparison],
    "doctor": [list[CheckResult], SelfTest],
    "finish": [StudyAnalysis, list[RunAnalysis | StudyAnalysis]],
    "fit": [CostAnswer],
    "import": [Imported],
    "perfetto": [PackedTraces],
    "project": [Projection],
    "report": [WrittenPage, Comparison],
    "scorecard": [list[JudgedClaim], list[ScorecardRow]],
    "whatif": [list[WhatIf]],
}


def schema(verb: str) -> str:
    """Return the schema of a verb's answer as it is committed."""
    parts = {name for kind in ANSWERS[verb] for name in structs_of(kind)}
    schemas, definitions = msgspec.json.schema_components(
        sorted(parts, key=lambda part: part.__name__), ref_template="#/$defs/{name}"
    )
    names = [part.__name__ for part in sorted(parts, key=lambda part: part.__name__)]
    references = dict(zip(names, schemas, strict=True))
    forms = [_form(kind, references) for kind in ANSWERS[verb]]
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"scalescope {verb} --json",
        **(forms[0] if len(forms) == 1 else {"anyOf": forms}),
        "$defs": definitions,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def structs_of(kind: Any) -> list[Any]:
    """Return the row types of an answer's type."""
    arguments = getattr(kind, "__args__", ())
    return [one for argument in arguments for one in structs_of(argument)] if arguments else [kind]


def _form(kind: Any, references: dict[str, Any]) -> dict[str, Any]:
    own = [copy.copy(references[one.__name__]) for one in structs_of(kind)]
    one = own[0] if len(own) == 1 else {"anyOf": own}
    return {"type": "array", "items": one} if getattr(kind, "__origin__", None) is list else one


if __name__ == "__main__":
    for name in ANSWERS:
        (FOLDER / f"{name}.schema.json").write_text(schema(name), encoding="utf-8")
