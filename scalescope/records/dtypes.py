"""Element types: one name and one size each, whoever named them. Torch-free."""

from functools import lru_cache

#: Bytes of an element, by torch's name.
BYTES = {
    "float64": 8, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16, "float32": 4, "int32": 4, "uint32": 4,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
}  # fmt: skip

#: What is computed in, the dearer the later; the first two take as long.
PRECISIONS = ("float16", "bfloat16", "float32", "float64")

#: How c10, Kineto and nccl-tests call them else, in lower case.
_ALIASES = {
    "float": "float32", "double": "float64", "half": "float16", "byte": "uint8", "unsigned char": "uint8",
    "char": "int8", "signed char": "int8", "short": "int16", "int": "int32", "long": "int64", "long int": "int64",
    "complexfloat": "complex64", "complex<float>": "complex64", "complexdouble": "complex128",
    "complex<double>": "complex128",
}  # fmt: skip


@lru_cache(1024)
def canonical_dtype(name: str) -> str:
    """Return torch's name of an element type, however it is spelled; an unknown one comes back in lower case."""
    bare = name.lower().removeprefix("c10::")
    return _ALIASES.get(bare, bare)


def element_bytes(name: str) -> int | None:
    """Return the size of one element, or None for a type that is not known."""
    return BYTES.get(canonical_dtype(name))
