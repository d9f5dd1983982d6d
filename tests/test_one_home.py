"""No code branches on a strategy's, a model's or an operation's kind outside its home: what differs is asked of it."""

import ast
import functools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalescope.records.operations import OPERATION_FACTS
from scalescope.train.models.registry import MODELS
from scalescope.train.strategies.registry import STRATEGIES

ROOT = Path(__file__).resolve().parent.parent
KINDS = {**STRATEGIES, **MODELS}
CLASSES = {each.__name__ for each in KINDS.values()}
FILES = sorted(path for top in ("train", "launch", "collectives", "scalescope") for path in (ROOT / top).rglob("*.py"))
HOMES = [ROOT / "train" / group for group in ("strategies", "models")]
#: An operation's facts, its collective, and what nccl-tests calls it.
HOMES_OF_OPERATIONS = [ROOT / place for place in (
    "scalescope/records/operations.py", "collectives/operations", "scalescope/scaling/sweeps/names.py"
)]  # fmt: skip


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def at_home(path: Path) -> bool:
    """A kind's own package, and the table that lists it."""
    return path.name == "registry.py" or any(path.parent == home / kind for home in HOMES for kind in KINDS)


def branches(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue | ast.Dict):
            constants = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            yield from (f"line {node.lineno}: {kind!r}" for kind in constants if kind in KINDS)
        elif isinstance(node, ast.Name) and node.id in CLASSES:
            yield f"line {node.lineno}: {node.id}"
        elif isinstance(node, ast.Attribute) and node.attr in CLASSES:
            yield f"line {node.lineno}: {node.attr}"


def operation_branches(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        asked: list[ast.AST | None] = []
        if isinstance(node, ast.Dict):
            asked = [*node.keys]
        elif isinstance(node, ast.Compare | ast.MatchValue):
            asked = [node]
        constants = [each for one in asked if one for each in ast.walk(one) if isinstance(each, ast.Constant)]
        yield from (f"line {each.lineno}: {each.value!r}" for each in constants if each.value in OPERATION_FACTS)


@pytest.mark.parametrize(
    "code",
    [
        "x = config.strategy.kind == 'ddp'",
        "if strategy.kind in ('fsdp2', 'zero'): pass",
        "stage = {'zero': 3}.get(kind)",
        "isinstance(config.model, GptConfig)",
        "match kind:\n    case 'resnet': pass",
    ],
)
def test_a_branch_is_seen(code: str) -> None:
    assert list(branches(ast.parse(code)))


def test_nothing_branches_on_a_kind_outside_its_home() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in FILES
        if not at_home(path.resolve()) and (lines := list(branches(parsed(path))))
    }
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        "x = one.operation == 'send_recv'",
        "if operation in ('all_gather', 'reduce_scatter'): pass",
        "factor = {'all_reduce': 2}.get(operation, 1)",
        "match operation:\n    case 'barrier': pass",
    ],
)
def test_a_branch_on_an_operation_is_seen(code: str) -> None:
    assert list(operation_branches(ast.parse(code)))


def test_nothing_branches_on_an_operation_outside_its_home() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in FILES
        if not {path.resolve(), *path.resolve().parents} & set(HOMES_OF_OPERATIONS)
        and (lines := list(operation_branches(parsed(path))))
    }
    assert not found


def test_no_package_is_a_heap() -> None:
    """Whoever looks for something reads sixteen names at most; the command line and benchmarks have a file a verb."""
    counted = Counter(path.parent for half in ("scalescope", "train", "collectives", "launch")
                      for path in (ROOT / half).rglob("*.py") if "__pycache__" not in path.parts)  # fmt: skip
    heaps = {str(folder.relative_to(ROOT)): count for folder, count in counted.items() if count > 16}
    heaps.pop("scalescope/cli")
    assert not heaps
