"""`--redact` of the verbs: what they write for others names no host, no user and no absolute path."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.report.redaction.pseudonyms import Pseudonyms


def add_redact(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--redact", action="store_true", help="pseudonyms for hosts, users and absolute paths in what is written"
    )


def refuse_redacting_nothing(options: argparse.Namespace, *flags: str) -> None:
    """Raise UserError where --redact is given and none of the files that these flags name is written."""
    if options.redact and not any(getattr(options, flag.removeprefix("--")) for flag in flags):
        which = ", ".join(flags[:-1]) + f" and {flags[-1]} write" if len(flags) > 1 else f"{flags[0]} writes"
        raise UserError(f"--redact is for what {which}; name such a FILE")


def pseudonyms_of_paths(paths: Sequence[Path]) -> Pseudonyms:
    """Return pseudonyms for what run folders, traces, sweeps and logs tell of where they are from."""
    from scalescope.report.redaction.report_data import pseudonyms_of

    return pseudonyms_of([RunFolder(path) for path in paths])
