"""Where processes listen, as the kernel shows it."""

import socket
import struct
from contextlib import suppress
from pathlib import Path

_LISTENS = "0A"  # of TCP's states, see include/net/tcp_states.h


def listening_at(*pids: int) -> set[tuple[str, int]]:
    """Return the addresses and ports at which processes listen for TCP connections."""
    found: set[tuple[str, int]] = set()
    for process in pids:
        with suppress(OSError):  # it has ended meanwhile
            inodes = {link for file in Path(f"/proc/{process}/fd").iterdir() if (link := _inode(file)) is not None}
            for table in ("tcp", "tcp6"):
                for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[3] == _LISTENS and fields[9] in inodes:
                        address, _, port = fields[1].partition(":")
                        found.add((_address(address), int(port, 16)))
    return found


def _inode(file: Path) -> str | None:
    with suppress(OSError):  # closed meanwhile
        name = str(file.readlink())
        return name[8:-1] if name.startswith("socket:[") else None
    return None


def _address(digits: str) -> str:
    """Return an address from the kernel's hexadecimal digits: words of 32 bits, each in this host's byte order."""
    argv = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    packed = struct.pack(f"={len(argv)}I", *argv)
    return socket.inet_ntop(socket.AF_INET if len(argv) == 1 else socket.AF_INET6, packed)
