"""The JSON schema of `scalescope compare --json`, made of its types: `python -m tests.comparison_schema` writes it."""

from pathlib import Path

import msgspec

from scalescope.scaling.compare.answer import Comparison

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schema" / "comparison.schema.json"


def schema() -> bytes:
    """Return the schema as it is committed."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Comparison)), indent=1) + b"\n"


if __name__ == "__main__":
    PAGE.write_bytes(schema())
