"""The collective library that torch itself has loaded, through its C interface: NCCL, or RCCL, which speaks the same.

Only a library that is in this process already is taken, never another one from the disk: figures of `transport=direct`
are of the very library that training uses.
"""

import ctypes
import os
from pathlib import Path

from scalescope.collectives.operations.operation import NotAvailable
from scalescope.records.operations import CTA_POLICIES

UNIQUE_ID_BYTES = 128
_NAMES = ("libnccl.so.2", "librccl.so.1", "librccl.so")


class UniqueId(ctypes.Structure):
    """ncclUniqueId: what ranks share to find each other. Passed by value."""

    _fields_ = (("internal", ctypes.c_char * UNIQUE_ID_BYTES),)


_UNDEFINED = -(2**31)  # NCCL_CONFIG_UNDEF_INT


class Config(ctypes.Structure):
    """ncclConfig_t as of NCCL 2.18; newer libraries read as much of it as its own version says there is."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("cga_cluster_size", ctypes.c_int),
        ("min_ctas", ctypes.c_int),
        ("max_ctas", ctypes.c_int),
        ("net_name", ctypes.c_char_p),
        ("split_share", ctypes.c_int),
    )

    @classmethod
    def of(cls, channels: int) -> "Config":
        """Return the configuration of a communicator that uses so many blocks."""
        size = ctypes.sizeof(cls)
        return cls(size, 0xCAFEBEEF, 21800, _UNDEFINED, _UNDEFINED, channels, channels, None, _UNDEFINED)


_POLICY_SINCE = 22800
_SYMMETRIC = 1  # NCCL_WIN_COLL_SYMMETRIC


class PolicyConfig(ctypes.Structure):
    """ncclConfig_t as of NCCL 2.28, 80 bytes: what 2.18's has, and what came behind it since (none was moved)."""

    _fields_ = (
        *Config._fields_,
        ("traffic_class", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("collnet_enable", ctypes.c_int),
        ("cta_policy", ctypes.c_int),
        ("shrink_share", ctypes.c_int),
        ("nvls_ctas", ctypes.c_int),
        ("channels_per_net_peer", ctypes.c_int),
        ("nvlink_centric_scheduling", ctypes.c_int),
    )

    @classmethod
    def of(cls, channels: int | None, policy: str) -> "PolicyConfig":
        """Return the configuration of a communicator of a policy, and of so many blocks where they are told."""
        config = cls(ctypes.sizeof(cls), 0xCAFEBEEF, _POLICY_SINCE)
        for name, kind in cls._fields_[3:]:
            if kind is ctypes.c_int:
                setattr(config, name, _UNDEFINED)
        if channels is not None:
            config.min_ctas = config.max_ctas = channels
        config.cta_policy = CTA_POLICIES.index(policy)
        return config


class LibraryMemory:
    """Device memory from the library's own allocator, which other ranks can map; freed with its last user."""

    def __init__(self, library: "Library", address: int, size: int) -> None:
        self._library, self._address = library, address
        # how numba, CuPy and torch hand device memory to each other without a copy
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}

    def __del__(self) -> None:
        self._library.functions.ncclMemFree(ctypes.c_void_p(self._address))


class Library:
    """The functions that the sweep calls; each raises RuntimeError with the library's own words on failure."""

    def __init__(self) -> None:
        self.functions = _loaded()
        self.functions.ncclGetErrorString.restype = ctypes.c_char_p
        self.functions.ncclGetErrorString.argtypes = (ctypes.c_int,)

    def has(self, name: str) -> bool:
        return hasattr(self.functions, name)

    def check(self, result: int) -> None:
        """Raise RuntimeError where a call did not succeed."""
        if result != 0:
            raise RuntimeError(self.functions.ncclGetErrorString(result).decode())

    def allocate(self, size: int) -> LibraryMemory | None:
        """Return so many bytes of this process's device, or None where they do not fit."""
        address = ctypes.c_void_p()
        result = self.functions.ncclMemAlloc(ctypes.byref(address), ctypes.c_size_t(size))
        return LibraryMemory(self, address.value, size) if result == 0 and address.value else None

    def new_unique_id(self) -> bytes:
        identity = UniqueId()
        self.check(self.functions.ncclGetUniqueId(ctypes.byref(identity)))
        return ctypes.string_at(ctypes.byref(identity), UNIQUE_ID_BYTES)

    def version(self) -> int:
        """Return the library's version as it writes it: 22809 is 2.28.9."""
        version = ctypes.c_int()
        self.check(self.functions.ncclGetVersion(ctypes.byref(version)))
        return version.value

    def policy_refusal(self) -> str | None:
        """Return why no communicator can be told a CTA policy, or None where one can."""
        version = self.version()
        if version >= _POLICY_SINCE and self.has("ncclCommWindowRegister"):
            return None
        major, rest = divmod(version, 10_000)
        return (
            f"cta_policy needs NCCL 2.28 or an RCCL that goes with it, and this is {major}.{rest // 100}.{rest % 100}"
        )

    def register_window(self, communicator: ctypes.c_void_p, address: int, size: int) -> ctypes.c_void_p:
        """Make memory of `allocate` a symmetric window; all ranks call, with as much. Deregister what it returns.

        Raises RuntimeError also where the library calls it a success and makes none.
        """
        window = ctypes.c_void_p()
        register = self.functions.ncclCommWindowRegister
        register.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p),
                             ctypes.c_int)  # fmt: skip
        self.check(register(communicator, address, size, ctypes.byref(window), _SYMMETRIC))
        if window.value is None:
            raise RuntimeError("the communicator has no symmetric memory (GPUs that do not map each other's, or "
                               "NCCL_CUMEM_ENABLE=0 or NCCL_WIN_ENABLE=0 in the environment)")  # fmt: skip
        return window

    def deregister_window(self, communicator: ctypes.c_void_p, window: ctypes.c_void_p) -> None:
        self.functions.ncclCommWindowDeregister.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self.check(self.functions.ncclCommWindowDeregister(communicator, window))

    def join(
        self, unique_id: bytes, rank: int, size: int, channels: int | None = None, policy: str | None = None
    ) -> ctypes.c_void_p:
        """Return this rank's communicator; returns once every rank of the group has called."""
        identity = UniqueId()
        ctypes.memmove(ctypes.byref(identity), unique_id, UNIQUE_ID_BYTES)
        communicator = ctypes.c_void_p()
        types = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int)
        if channels is None and policy is None:
            init = self.functions.ncclCommInitRank
            init.argtypes = types
            self.check(init(ctypes.byref(communicator), size, identity, rank))
        else:
            init = self.functions.ncclCommInitRankConfig
            init.argtypes = (*types, ctypes.c_void_p)
            config = Config.of(channels or 0) if policy is None else PolicyConfig.of(channels, policy)
            self.check(init(ctypes.byref(communicator), size, identity, rank, ctypes.byref(config)))
        return communicator

    def leave(self, communicator: ctypes.c_void_p) -> None:
        self.check(self.functions.ncclCommDestroy(communicator))


def _loaded() -> ctypes.CDLL:
    for name in (*_NAMES, *_mapped()):
        try:
            return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
    raise NotAvailable(
        "transport=direct needs the collective library as a file that torch has loaded, and there is none"
    )


def _mapped() -> list[str]:
    """Return the files in this process's memory that look like the library, for wheels that name it their own way."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    paths = {line.split()[-1] for line in lines if "/" in line}
    return sorted(path for path in paths if Path(path).name.startswith(("libnccl.", "libnccl-", "librccl")))
