"""A kernel's name as people say it: `spin_kernel` for `at::cuda::(anonymous namespace)::spin_kernel(long)`."""

import re

_LAMBDA = re.compile(r"\{[^{}]*\}")
_OPERATOR = re.compile(r"[a-z_0-9]+::[a-z_0-9.]+")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_DEEPEST = 32  # lambdas inside of each other

#: What a product's name tells that it computes in: those of narrower numbers tell what they sum up in as well.
_COMPUTES_IN = (
    ("float64", re.compile(r"(?<![a-z])dgemm|f64f64|d884")),
    ("bfloat16", re.compile(r"bf16|nvjet_(sm\d+_)?t")),
    ("float16", re.compile(r"fp16|hgemm|f16f16|nvjet_(sm\d+_)?h")),
    ("float32", re.compile(r"tf32|(?<![a-z])sgemm|_ffma_|f32f32|scudnn")),
)
#: What a kernel computes on in float64: products by their names; of any other the function, or what the first of its
#: template's types is. Many a kernel of floats takes a scalar in double precision: those stand elsewhere.
_DOUBLE = re.compile(
    r"(?<![a-z])dgemm|f64f64|d884|functor\w*<double\b|lambda\(double\)"
    r"|^[^<(]*(\(anonymous namespace\)[^<(]*)?"
    r"<(?:(?:\d+u?|true|false|bool|(?:unsigned )?(?:int|long)|\([^)]*\)\d+|[\w:]*invstd),\s*)*double\b"
    r"|reduceop<double\b|cijk_\w*_db_|_double_double"
)
#: What NVIDIA's libraries call products of fp32 that run on the plain cores (SIMT, FFMA), and what a name has of one
#: that runs on the matrix units, whatever else.
_FULL = re.compile(r"_ffma_|(?<![a-z])sgemm|scudnn")
_MATRIX_UNITS = re.compile(r"tensorop|tf32|tensor\d|hmma|gmma|bf16|(?<![a-z])f16")
#: What copies from one type to another.
_CONVERTS = re.compile(
    r"direct_copy_kernel\w*\(.*(loadwithcast|gpu_kernel_impl<)|(bfloat16|float16|float8)_copy_kernel"
)
_LONGEST = 4096  # characters; the longest name in two hundred real traces has 1,676
_HEAD, _TAIL = 3072, 1023  # of a longer one


def capped(name: str) -> str:
    """Return an event's name, without its middle where no library writes one so long.

    What looks into names takes time by the square of their length.
    """
    return name if len(name) <= _LONGEST else f"{name[:_HEAD]}…{name[-_TAIL:]}"


def precision_of_product(name: str) -> str | None:
    """Return what a kernel that multiplies computes in, by its name; None where that does not tell."""
    lower = name.lower()
    return next((precision for precision, pattern in _COMPUTES_IN if pattern.search(lower)), None)


def is_off_matrix_units(name: str) -> bool:
    """Tell whether what multiplies does so in fp32 on the plain cores of a device of NVIDIA's, by its name."""
    lower = name.lower()
    return bool(_FULL.search(lower)) and not _MATRIX_UNITS.search(lower)


def is_in_double(name: str) -> bool:
    """Tell whether a kernel computes in float64, or converts to it, by its name."""
    return bool(_DOUBLE.search(name.lower()))


def converts(name: str) -> bool:
    """Tell whether a kernel converts numbers of one type to another, by its name, and does nothing else."""
    return bool(_CONVERTS.search(name.lower()))


def converts_to_double(name: str) -> bool:
    return "lambda(double)" in name and converts(name)


def short_name(name: str) -> str:
    """Return a kernel's or operator's name without return type, namespaces, template arguments and parameters.

    A template that is a mere shell around one named type keeps it: `Kernel2<cutlass_80_simt_sgemm>` says what runs, and
    `Kernel2` does not. An operator (`aten::mm`) and a name that is no C++ declaration stay as they are.
    """
    if _OPERATOR.fullmatch(name):
        return name
    plain = name.replace("(anonymous namespace)::", "")
    for _ in range(_DEEPEST):
        plain, found = _LAMBDA.subn("", plain)
        if not found:
            break
    # the declaration's own pieces, at depth 0 of its brackets, and what its last template was given
    pieces: list[str] = []
    arguments = ""
    depth = 0
    opened = 0
    for at, character in enumerate(plain):
        if character == "(" and depth == 0:
            break
        if character == "<":
            if depth == 0:
                opened = at + 1
            depth += 1
        elif character == ">" and depth:
            depth -= 1
            if depth == 0:
                arguments = plain[opened:at]
        elif depth == 0:
            pieces.append(character)
    if depth:
        return name  # brackets that do not close: cut off, or no C++
    parts = "".join(pieces).split()
    own = parts[-1].rpartition("::")[2] if parts else ""
    if not own:
        return name
    given = arguments.strip().rpartition("::")[2]
    return f"{own}<{given}>" if own.startswith("Kernel") and _IDENTIFIER.fullmatch(given) else own
