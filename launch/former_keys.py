"""Former names of config keys: what overrides and frozen configs that still use them mean."""

import sys
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from scalescope.launch.keys import Variants, added_keys, foreign_keys, former_names
from scalescope.launch.verb import Verb


def with_present_names(overrides: Sequence[str], verb: Verb, *, says: bool = True) -> list[str]:
    """Return overrides with every key under its present name; `says`: with a line on stderr for each former one."""
    names = former_names(verb.schema, verb.variants)
    result = []
    for override in overrides:
        sign = override[: len(override) - len(override.lstrip("+~"))]
        former, equals, value = override.removeprefix(sign).partition("=")
        present = names.get(former, former)
        if present != former and says:
            print(f"scalescope: {former} is called {present} now", file=sys.stderr)
        result.append(f"{sign}{present}{equals}{value}")
    return result


def bring_up_to_date(frozen: DictConfig, schema: type[Any], variants: Variants) -> None:
    """Give a frozen config's keys their present names, add those that it has not, and leave out what was retired."""
    for former, present in former_names(schema, variants).items():
        above, _, name = former.rpartition(".")
        node = OmegaConf.select(frozen, above) if above else frozen
        if isinstance(node, DictConfig) and name in node:
            node.setdefault(present.rpartition(".")[2], node.pop(name))
    for added, value in added_keys(schema, variants).items():
        above, _, name = added.rpartition(".")
        node = OmegaConf.select(frozen, above) if above else frozen
        if isinstance(node, DictConfig) and name not in node:
            node[name] = value
    for group in variants:
        for name in foreign_keys(group, frozen[group].kind, variants):
            frozen[group].pop(name, None)
