"""Pseudonyms for what a text reveals of the place it is from: hosts, users, addresses, absolute paths.

The same name gets the same pseudonym wherever it stands, so that a report stays readable: `node-2` waits for `node-1`.
Known names are looked for as whole words; paths and addresses are known by how they are written.
"""

import getpass
import ipaddress
import os
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

#: Of no person: they stand on every machine, and as words in prose and code.
_ANYBODY = frozenset(("root", "nobody", "user", "ubuntu", "admin", "daemon"))
_THIS_HOST = frozenset(("localhost", "localhost.localdomain", ""))
_HOMES = re.compile(r"(?:/home|/Users|/users)/([A-Za-z_][\w.-]*)")

# a slash that begins a path: none in `GB/s`, `(n-1)/n`, `</td>`, `https://`; but one in `-I/home/ada/include`
_PATH = re.compile(
    r"(?:(?<![\w.~/<)\]])(?:file://)?(?:~[\w.-]*)?|(?=/(?:home|Users|root)/))/(?=[\w.~@+$-])[^\s\"'<>|,;:()\[\]{}`=]*"
)
#: A value that is a path, blanks and all, as a frozen config's line has it.
_PATH_LINE = re.compile(r"(?m)^(\s*(?:- |[\w.\"'-]+:[ \t]+))(?P<quote>[\"']?)(?P<path>~?/[^\n]*?)(?P=quote)[ \t]*$")
_ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\w)|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}(?![\w:])"
)
_LOGIN = re.compile(r"(?<=://)[^\s/@]+@")
#: Keys whose value is nobody's business, whatever it is.
_SECRETS = r"(?:password|passwd|secret|token|credentials?|(?:api|access|private)_?key)"
_SECRET_KEY = re.compile(rf"(?i)(?:^|[_.-]){_SECRETS}$")
_SECRET_LINE = re.compile(rf"(?im)^(\s*(?:- )?[\"']?(?:[\w.-]*[_.-])?{_SECRETS}[\"']?:[ \t]+)(?!null\s*$)\S.*$")
_MOST_TEXTS = 100_000
LEFT_OUT = "(left out)"


class Pseudonyms:
    """Gives every host, user, address and folder a pseudonym, in the order in which they turn up."""

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        self._pseudonyms: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._hosts: dict[str, str] = {}
        self._users: dict[str, str] = {}
        self._folders: list[str] = []  # longest first
        self._names: re.Pattern[str] | None = None
        self._texts: dict[str, str] = {}  # those of a trace repeat
        self.know(hosts, users)

    def know(self, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        """Add names to look for; a host is known by its short name as well."""
        for host in hosts:
            if host.lower() not in _THIS_HOST and not _ADDRESS.fullmatch(host):
                short = host.partition(".")[0]
                name = self._pseudonym("node", short.lower())
                self._hosts[host.lower()] = self._hosts[short.lower()] = name
        for user in users:
            if user and user.lower() not in _ANYBODY:
                self._users[user] = self._pseudonym("user", user)
        self._names = self._pattern()
        self._texts.clear()

    def know_folder(self, folder: Path) -> None:
        """Let a path be found even where it holds blanks, and its owner's name wherever it stands."""
        places = {str(folder), str(folder.absolute()), str(folder.resolve()), str(Path.home())}
        found = {place for place in places if place.count("/") > 1}
        self._folders = sorted({*self._folders, *found}, key=len, reverse=True)
        with suppress(OSError, KeyError, NotImplementedError):  # no entry in passwd, no such folder
            self.know(users=[folder.owner()])

    def text(self, text: str) -> str:
        """Return a text without what it reveals."""
        if (done := self._texts.get(text)) is not None:
            return done
        if owners := set(_HOMES.findall(text)) - self._users.keys():
            self.know(users=sorted(owners))
        if len(self._texts) >= _MOST_TEXTS:
            self._texts.clear()
        self._texts[text] = result = self._replaced(text)
        return result

    def _replaced(self, text: str) -> str:
        for folder in self._folders:
            if folder in text:
                text = re.sub(
                    rf"{re.escape(folder)}(?![\w.-]*\w)(?:/[\w.~@+-]+)*", lambda found: self.path(found[0]), text
                )
        text = _LOGIN.sub("", text)
        text = _SECRET_LINE.sub(rf"\1{LEFT_OUT}", text)
        text = _PATH_LINE.sub(lambda found: f"{found[1]}{self.path(found['path'])}", text)
        text = _PATH.sub(lambda found: self.path(found[0]), text)
        text = _ADDRESS.sub(lambda found: self._address(found[0]), text)
        return self._names.sub(self._named, text) if self._names is not None else text

    def value(self, key: str, value: str) -> str:
        """Return a config's value without what it reveals: all of it, where its key says so or it is a path."""
        if _SECRET_KEY.search(key):
            return LEFT_OUT
        return self.path(value) if value.startswith(("/", "~/")) and "\n" not in value else self.text(value)

    def path(self, path: str) -> str:
        """Return `path-3`, or `path-3/train.py` for a file: its own name tells what it is, and not where."""
        folder, _, last = path.rstrip("/").rpartition("/")
        if "." in last[1:] and folder:
            return f"{self._pseudonym('path', folder)}/{self._name_alone(last)}"
        return self._pseudonym("path", path.rstrip("/"))

    def _name_alone(self, name: str) -> str:
        return self._names.sub(self._named, name) if self._names is not None else name

    def _address(self, address: str) -> str:
        try:
            known = ipaddress.ip_address(address)
        except ValueError:
            return address  # a version of four parts
        return address if known.is_loopback or known.is_unspecified else self._pseudonym("address", address)

    def _named(self, found: re.Match[str]) -> str:
        if found["host"] is not None:
            return self._hosts[found["host"].lower()]
        return self._users[found["user"]]

    def _pattern(self) -> re.Pattern[str] | None:
        """Return what finds the known names: hosts with any domain behind them, users also inside `ada_job-3`."""
        choices = []
        if self._hosts:
            hosts = "|".join(re.escape(host) for host in sorted(self._hosts, key=len, reverse=True))
            choices.append(rf"(?<![A-Za-z0-9])(?i:(?P<host>{hosts}))(?:\.[A-Za-z][\w-]*)*(?![A-Za-z0-9])")
        if self._users:
            users = "|".join(re.escape(user) for user in sorted(self._users, key=len, reverse=True))
            choices.append(rf"(?<![A-Za-z0-9])(?P<user>{users})(?![A-Za-z0-9])")
        if not choices:
            return None
        missing = "" if self._hosts and self._users else "(?P<user>(?!))" if self._hosts else "(?P<host>(?!))"
        return re.compile("|".join([*choices, *([missing] if missing else [])]))

    def _pseudonym(self, kind: str, name: str) -> str:
        if (kind, name) not in self._pseudonyms:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._pseudonyms[kind, name] = f"{kind}-{self._counts[kind]}"
        return self._pseudonyms[kind, name]


def know_here(known: Pseudonyms) -> None:
    """Let pseudonyms know who and where this process is: a stranger's files may tell of it all the same."""
    known.know(hosts=[socket.gethostname()])
    for ask in (getpass.getuser, os.getlogin):
        with suppress(OSError, KeyError):  # no entry in passwd, no terminal
            known.know(users=[ask()])
