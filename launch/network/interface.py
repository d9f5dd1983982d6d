"""Which network interface the ranks of several hosts talk over, where the host's own name does not tell.

gloo listens at the address that the host's name resolves to. On many distributions that is a loopback address, which
leads the ranks of other hosts to themselves.
"""

import os
import socket
from pathlib import Path

import psutil

_VARIABLE = "GLOO_SOCKET_IFNAME"


def choose_interface(master: str) -> str | None:
    """Set GLOO_SOCKET_IFNAME where it takes that, and return what was chosen, in words; None where nothing was.

    `master`: rank 0's address. What the user has set stays. Only for ranks on several hosts.
    """
    if _VARIABLE in os.environ or not _is_loopback(_resolved(socket.gethostname())):
        return None
    interfaces = _addresses()
    towards = _source_towards(master)
    routed = [name for name, address in interfaces.items() if address == towards and not _is_loopback(address)]
    name = next(iter(routed), None) or _of_default_route(interfaces)
    if name is None:
        return None
    os.environ[_VARIABLE] = name
    return f"{name} ({interfaces[name]}), since {socket.gethostname()} resolves to a loopback address"


def _resolved(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "127.0.0.1"  # gloo then takes the loopback address, too


def _is_loopback(address: str) -> bool:
    return address.startswith("127.")


def _source_towards(host: str) -> str | None:
    """Return the address that this host sends from to another; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def _addresses() -> dict[str, str]:
    """Return the first IPv4 address of each interface that has one."""
    found: dict[str, str] = {}
    for name, addresses in psutil.net_if_addrs().items():
        for one in addresses:
            if one.family == socket.AF_INET:
                found.setdefault(name, one.address)
    return found


def _of_default_route(interfaces: dict[str, str]) -> str | None:
    """Return the interface of the default route, or the only one that is no loopback."""
    try:
        routes = [line.split() for line in Path("/proc/net/route").read_text(encoding="utf-8").splitlines()[1:]]
    except OSError:
        routes = []
    found = [fields[0] for fields in routes if fields[1] == "00000000" and fields[0] in interfaces]
    others = [name for name, address in interfaces.items() if not _is_loopback(address)]
    return found[0] if found else others[0] if len(others) == 1 else None
