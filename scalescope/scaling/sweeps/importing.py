"""Other tools' logs as a sweep folder of ours, so that theirs and ours stand in one plot."""

import time
from collections.abc import Sequence
from pathlib import Path

from scalescope.records.errors import UserError
from scalescope.records.files import refuse_special
from scalescope.records.folder import RunFolder
from scalescope.records.frozen import imported_config
from scalescope.scaling.sweeps.nccl_tests_log import Log, read_log


def import_logs(logs: Sequence[Path], out: Path, operation: str | None) -> tuple[RunFolder, Log]:
    """Write the rows of all logs into a new sweep folder; returns it with all that was read and any faults.

    Raises UserError, with nothing written, where a log cannot be read or the folder exists.
    """
    read = Log()
    for path in logs:
        try:
            refuse_special(path)
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}; give a log of nccl-tests or rccl-tests") from None
        log = read_log(text, path.name, operation)
        read.rows += log.rows
        read.faults += log.faults
        read.devices = max(read.devices, log.devices, key=len)
    names = ", ".join(path.name for path in logs)
    if not read.rows:
        raise UserError(f"{names}: there is no result in it")
    folder = RunFolder.create(out, "sweep", imported_config([path.name for path in logs]))
    with folder.sweep_writer() as writer:
        for row in read.rows:
            writer.append(row)
    info = folder.read_info()
    info.backend = read.rows[0].backend
    info.world_size = max(row.group_size for row in read.rows)
    info.launcher = read.rows[0].source
    info.devices = read.devices
    info.status, info.ended_unix_s = "done", time.time()
    info.message = "; ".join(read.faults) or None
    folder.write_info(info)
    return folder, read
