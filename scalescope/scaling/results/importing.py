"""Other benchmarks' files as a scorecard folder of ours, with their collectives as a sweep inside it."""

import time
from collections.abc import Sequence
from pathlib import Path

from scalescope.records.errors import UserError
from scalescope.records.files import refuse_special
from scalescope.records.folder import RunFolder
from scalescope.records.frozen import imported_config
from scalescope.scaling.results.found import ImportedResults
from scalescope.scaling.results.mllog import is_mllog, is_system, read_mllog
from scalescope.scaling.results.superbench import is_superbench, read_superbench


def are_results(paths: Sequence[Path]) -> bool:
    """Return whether these are SuperBench's or MLPerf's files, by what the first one holds.

    Raises UserError for what is no plain file.
    """
    refuse_special(paths[0])
    try:
        text = paths[0].read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False  # whoever reads it says what is wrong
    return is_mllog(text) or is_superbench(text) or is_system(text)


def import_results(paths: Sequence[Path], out: Path) -> tuple[RunFolder, ImportedResults]:
    """Write the rows of all files into a new scorecard folder; a description of a system is of the logs beside it.

    Raises UserError, with nothing written, where a file cannot be read or the folder exists.
    """
    texts = {path: _text(path) for path in paths}
    systems = [path for path, text in texts.items() if is_system(text)]
    if len(systems) > 1:
        described = ", ".join(str(path) for path in systems)
        raise UserError(f"{described} describe {len(systems)} systems, and a log does not say which it ran on; import "
                        "the logs of one at a time")  # fmt: skip
    system = texts[systems[0]] if systems else None
    read = ImportedResults()
    for path, text in texts.items():
        if is_mllog(text):
            read.add(read_mllog(text, path.name, system))
        elif is_superbench(text):
            read.add(read_superbench(text, path.name))
        elif not is_system(text):
            raise UserError(f"{path} is neither SuperBench's results-summary.jsonl nor an MLLOG, as the others are")
    names = ", ".join(path.name for path in paths)
    if not read.rows and not read.sweep:
        raise UserError(f"{names}: there is no result in it")
    config = imported_config([path.name for path in paths])
    folder = RunFolder.create(out, "scorecard", config)
    with folder.scorecard_writer() as writer:
        for row in read.rows:
            writer.append(row)
    if read.sweep:
        _write_sweep(out / "sweep", config, read)
    info = folder.read_info()
    info.launcher = next((row.source for row in read.rows), None)
    info.status, info.ended_unix_s, info.message = "done", time.time(), "; ".join(read.faults) or None
    folder.write_info(info)
    return folder, read


def _write_sweep(path: Path, config: str, read: ImportedResults) -> None:
    folder = RunFolder.create(path, "sweep", config)
    with folder.sweep_writer() as writer:
        for row in read.sweep:
            writer.append(row)
    info = folder.read_info()
    info.backend, info.launcher = read.sweep[0].backend, read.sweep[0].source
    info.world_size = max(row.group_size for row in read.sweep)
    info.status, info.ended_unix_s = "done", time.time()
    folder.write_info(info)


def _text(path: Path) -> str:
    refuse_special(path)
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give a file of SuperBench's or MLPerf's") from None
