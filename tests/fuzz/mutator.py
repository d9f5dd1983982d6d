"""Mutations of JSON documents, JSON lines, texts and bytes, each from a seed, so that a case can be made again.

Of three kinds: a value of the parsed document becomes one that hurts (a huge number, a list for a word, deep
brackets, a long name), a line or member is dropped, doubled or swapped, and bytes are flipped, cut or blown up.
"""

import json
import random
from collections.abc import Callable
from typing import Any

HURTS: tuple[Callable[[random.Random], Any], ...] = (
    lambda _: None,
    lambda _: 2**63 - 1,
    lambda _: -(2**63),
    lambda _: 10**400,
    lambda _: -1,
    lambda _: 0,
    lambda _: 1e308,
    lambda _: -1e-308,
    lambda _: "",
    lambda _: "nan",
    lambda _: [],
    lambda _: {},
    lambda _: [[]],
    lambda _: True,
    lambda _: "\x1b[2J\x07\u202e",
    lambda _: "\ud800",
    lambda random: "A" * random.choice((300, 5000, 60_000)),
    lambda random: random.choice(("(", "{", "<", "ck::", "aiter::", "miopen")) * random.choice((50, 2000, 20_000)),
    lambda random: random.randrange(-(10**6), 10**12),
    lambda random: random.random() * 10 ** random.randrange(-12, 25),
)
BYTES = (b"\x00", b"\xff", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"1e400", b"\xed\xa0\x80", b"NaN")

_LONGEST_LINE = 3000  # of those that are multiplied, so that a case stays as small as it has to be


def mutated(text: bytes, number: int) -> bytes:
    """Return a text with one to five faults, the same for the same number."""
    random_ = random.Random(number)
    mutate = random_.choice((_structure, _structure, _lines, _bytes))  # not by turns: so are the seeds, each gets all
    return mutate(text, random_)


def _structure(text: bytes, random_: random.Random) -> bytes:
    """Hurt values of a JSON document or of JSON lines; of any other text, its words."""
    try:
        document = json.loads(text)
    except ValueError:
        lines = text.splitlines(keepends=True)
        for _ in range(random_.randint(1, 5)):
            at = random_.randrange(len(lines)) if lines else 0
            try:
                lines[at : at + 1] = [_dumped(_hurt(json.loads(lines[at]), random_)) + b"\n"]
            except (ValueError, IndexError):
                return _words(text, random_)
        return b"".join(lines)
    for _ in range(random_.randint(1, 5)):
        document = _hurt(document, random_)
    data = _dumped(document)
    if random_.random() < 0.1:
        deep = random_.choice((2000, 100_000))
        data = data.replace(b"null", b"[" * deep + b"]" * deep, 1)
    return data


def _dumped(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=random.Random(len(str(document))).random() < 0.5).encode(
        "utf-8", "surrogatepass"
    )


def _hurt(document: Any, random_: random.Random) -> Any:
    """Replace, remove or double one value somewhere in the document."""
    if not isinstance(document, dict | list) or not document:
        return random_.choice(HURTS)(random_)
    holder, key = document, _key(document, random_)
    while isinstance(holder[key], dict | list) and holder[key] and random_.random() < 0.85:
        holder = holder[key]
        key = _key(holder, random_)
    action = random_.random()
    if action < 0.7:
        holder[key] = random_.choice(HURTS)(random_)
    elif action < 0.85:
        del holder[key]
    elif isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[random_.choice(("name", "", "ts", str(key) * 3))] = holder[key]
    return document


def _key(holder: Any, random_: random.Random) -> Any:
    """Return a key or index; of a document's members, most often the one that holds the most, as a trace's events."""
    keys = list(holder) if isinstance(holder, dict) else range(len(holder))
    sizes = {key: len(holder[key]) for key in keys if isinstance(holder[key], dict | list)}
    if isinstance(holder, dict) and max(sizes.values(), default=0) > 100 and random_.random() < 0.8:
        return max(sizes, key=sizes.__getitem__)
    return random_.choice(list(keys))


def _words(text: bytes, random_: random.Random) -> bytes:
    argv = text.split(b" ")
    for _ in range(random_.randint(1, 5)):
        hurt = str(random_.choice(HURTS)(random_)).encode("utf-8", "surrogatepass")
        argv[random_.randrange(len(argv))] = hurt
    return b" ".join(argv)


def _lines(text: bytes, random_: random.Random) -> bytes:
    lines = text.splitlines(keepends=True) or [b""]
    for _ in range(random_.randint(1, 5)):
        one, other = random_.randrange(len(lines)), random_.randrange(len(lines))
        action = random_.random()
        if action < 0.4:
            lines[one] = b""
        elif action < 0.7:
            lines[one], lines[other] = lines[other], lines[one]
        elif len(lines[one]) < _LONGEST_LINE:
            lines[one] *= random_.choice((2, 30))
    return b"".join(lines)


def _bytes(text: bytes, random_: random.Random) -> bytes:
    data = bytearray(text)
    for _ in range(random_.randint(1, 5)):
        at = random_.randrange(len(data) + 1)
        action = random_.random()
        if action < 0.35 and at < len(data):
            data[at] ^= 1 << random_.randrange(8)
        elif action < 0.7:
            data[at:at] = random_.choice(BYTES) * random_.choice((1, 1, 1, 2000))
        elif action < 0.85:
            del data[at : at + random_.choice((1, 10, 1000))]
        else:
            del data[at:]
    return bytes(data)
