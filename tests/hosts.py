"""Hosts on this host: network namespaces with names and addresses of their own, a link between every two of them."""

import os
import shutil
import subprocess
from itertools import combinations
from pathlib import Path


def missing() -> list[str]:
    """Return what this machine lacks for hosts of its own; empty where they can be made."""
    lacking = [name for name in ("ip", "tc", "unshare") if shutil.which(name, path=_PATH) is None]
    if os.geteuid() != 0:
        return [*lacking, "root"]
    if not lacking and _run("ip", "netns", "add", f"ss{os.getpid()}", check=False).returncode:
        return ["the right to make network namespaces"]
    if not lacking:
        _run("ip", "netns", "del", f"ss{os.getpid()}")
    return lacking


_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _run(*argv: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(argv, check=check, capture_output=True, text=True, env={**os.environ, "PATH": _PATH})


class Hosts:
    """Made on entering, gone on leaving. Host number i is called `node<letter>` and has the address 10.77.0.<i+1>."""

    def __init__(self, count: int, loopback_names: bool = False) -> None:
        self.names = [f"node{letter}" for letter in "abcdefgh"[:count]]
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(self.names, 1)}
        self._spaces = {name: f"ss{os.getpid()}{name}" for name in self.names}
        self._loopback_names = loopback_names  # each host's own name is its loopback, as distributions set it up

    def __enter__(self) -> "Hosts":
        for name, space in self._spaces.items():
            _run("ip", "netns", "add", space)
            _run("ip", "-n", space, "link", "set", "lo", "up")
            etc = Path("/etc/netns") / space
            etc.mkdir(parents=True)
            lines = ["127.0.0.1 localhost"]
            for other, address in self.addresses.items():
                lines.append(f"{'127.0.1.1' if self._loopback_names and other == name else address} {other}")
            (etc / "hosts").write_text("\n".join(lines) + "\n")
        for one, other in combinations(self.names, 2):
            there, back = self._link(one, other), self._link(other, one)
            _run("ip", "link", "add", there, "netns", self._spaces[one], "type", "veth", "peer", "name", back,
                 "netns", self._spaces[other])  # fmt: skip
            for host, link, peer in ((one, there, other), (other, back, one)):
                ip = ("ip", "-n", self._spaces[host])
                _run(*ip, "addr", "add", f"{self.addresses[host]}/32", "dev", link)
                _run(*ip, "link", "set", link, "up")
                _run(*ip, "route", "add", f"{self.addresses[peer]}/32", "dev", link, "src", self.addresses[host])
        return self

    def __exit__(self, *_: object) -> None:
        for space in self._spaces.values():
            _run("ip", "netns", "del", space, check=False)
            shutil.rmtree(Path("/etc/netns") / space, ignore_errors=True)

    def slow(self, one: str, other: str, rate: str) -> None:
        """Let the link between two hosts carry this much and no more, each way, as tc writes rates."""
        for host, peer in ((one, other), (other, one)):
            _run("ip", "netns", "exec", self._spaces[host], "tc", "qdisc", "replace", "dev", self._link(host, peer),
                 "root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms")  # fmt: skip

    def cut(self, one: str, other: str) -> None:
        """Let no packet pass between two hosts any more: nobody is told, as when a cable is pulled."""
        for host, peer in ((one, other), (other, one)):
            _run("ip", "-n", self._spaces[host], "link", "set", self._link(host, peer), "down")

    def start(self, host: str, *argv: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a command on a host, which sees that host's name, addresses and names of others."""
        named = ["unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh", *argv]
        return subprocess.Popen(
            ["ip", "netns", "exec", self._spaces[host], *named],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PATH": _PATH, **variables},
        )  # fmt: skip

    def _link(self, host: str, peer: str) -> str:
        return f"to-{peer}"
