"""What traces tell of the hosts and users that they are from, looked for before anything of them is shown."""

import re
from collections.abc import Iterable
from pathlib import Path

from scalescope.report.redaction.pseudonyms import Pseudonyms
from scalescope.scaling.trace.blocks import Blocks
from scalescope.scaling.trace.xla.read import host_of, is_profile

_TELLS = re.compile(rb'"host(?:_name)?"\s*:\s*"([^"\\]{1,255})"|(?:/home|/[Uu]sers)/([A-Za-z_][\w.-]{0,63})')
#: torch.profiler's tensorboard_trace_handler calls a file `<host>_<process>.<time>.pt.trace.json`.
_WORKER = re.compile(r"^(.+)_\d+\.\d+\.pt\.trace\.json")
_OVERLAP_BYTES = 400  # of two blocks, so that nothing is missed between them


def learn_from_traces(known: Pseudonyms, paths: Iterable[Path]) -> None:
    """Let pseudonyms know every host and every home that trace files name. A file that ends early is read so far."""
    for path in paths:
        known.know_folder(path.parent)
        if worker := _WORKER.match(path.name):
            known.know(hosts=[worker[1]])
        if is_profile(path):
            known.know(hosts=[host for host in (host_of(path),) if host])
        hosts: set[bytes] = set()
        users: set[bytes] = set()
        with Blocks(path) as blocks:
            before = b""
            for block in blocks:
                for host, user in _TELLS.findall(before + block):
                    hosts.add(host)
                    users.add(user)
                before = block[-_OVERLAP_BYTES:]
        known.know(*([one.decode(errors="replace") for one in found if one] for found in (hosts, users)))
