"""Writes small XSpaces, as jax.profiler's are: for what no recorded profile holds. Times in ns."""

from dataclasses import dataclass, field

Value = int | str | bytes


def number(value: int) -> bytes:
    found = b""
    value &= (1 << 64) - 1
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def member(name: int, value: Value) -> bytes:
    """Return a field: a number, or what has a length."""
    if isinstance(value, int):
        return number(name << 3) + number(value)
    raw = value.encode() if isinstance(value, str) else value
    return number(name << 3 | 2) + number(len(raw)) + raw


@dataclass
class Plane:
    name: str
    lines: dict[str, list[bytes]] = field(default_factory=dict)
    events: dict[str, bytes] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)
    begin: int = 0  # that its lines' times count from

    def statistics(self, values: dict[str, Value], where: int) -> bytes:
        found = b""
        for name, value in values.items():
            key = self.stats.setdefault(name, len(self.stats) + 1)
            kind = 4 if isinstance(value, int) else 5 if isinstance(value, str) else 6
            found += member(where, member(1, key) + member(kind, value))
        return found

    def add(self, line: str, name: str, start: int, duration: int, **values: Value) -> None:
        self.events.setdefault(name, b"")
        key = list(self.events).index(name) + 1
        event = member(1, key) + member(2, start * 1000) + member(3, duration * 1000) + self.statistics(values, 4)
        self.lines.setdefault(line, []).append(event)

    def written(self) -> bytes:
        body = member(2, self.name)
        for index, (name, events) in enumerate(self.lines.items(), 1):
            head = member(1, index) + member(2, name) + member(3, self.begin)
            body += member(3, head + b"".join(member(4, event) for event in events))
        for key, (name, more) in enumerate(self.events.items(), 1):
            body += member(4, member(1, key) + member(2, member(1, key) + member(2, name) + more))
        for name, key in self.stats.items():
            body += member(5, member(1, key) + member(2, member(1, key) + member(2, name)))
        return member(1, body)


def shape(kind: int, *dimensions: int) -> bytes:
    return member(2, kind) + member(3, b"".join(map(number, dimensions)))


def instruction(
    name: str, opcode: str, of: bytes, key: int, *operands: int, group: tuple[int, ...] = (), in_list: bool = False
) -> bytes:
    """Return an instruction; its group as XLA writes it (`in_list`: as newer ones do, in a CollectiveDeviceList)."""
    body = member(1, name) + member(2, opcode) + member(3, of) + member(35, key)
    body += member(36, b"".join(map(number, operands))) if operands else b""
    groups = member(1, b"".join(map(number, group)))
    return body + ((member(87, member(1, groups)) if in_list else member(49, groups)) if group else b"")


def modules(protos: dict[int, list[bytes]]) -> Plane:
    """Return the plane that holds the HLO of modules, by program."""
    plane = Plane("/host:metadata")
    for program, instructions in protos.items():
        computation = member(5, 1) + b"".join(member(2, one) for one in instructions)
        hlo = member(1, member(1, "jit_step") + member(3, computation))
        plane.events[f"jit_step({program})"] = plane.statistics({"Hlo Proto": hlo, "program_id": program}, 5)
    return plane
