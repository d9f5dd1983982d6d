"""Joining the ranks' processes to one world of JAX, one device each, over the job's own rendezvous.

On one host it listens on the loopback interface alone, as torch's store and gloo do here.
"""

import os
from functools import partial
from importlib import metadata, util
from pkgutil import iter_modules
from typing import Any

import psutil
import torch

from scalescope.collectives.operations.operation import JAX_IS_MISSING, NotAvailable
from scalescope.collectives.transports.messages import Messages
from scalescope.launch.network.rendezvous import free_port

_LOOPBACK = "127.0.0.1"
_NEVER_S = 24 * 3600  # ranks that stop are this job's own watchdog's to find, with more words than JAX has


def refusal(device: torch.device) -> str | None:
    """Return why this rank cannot go this way, or None where it can. Starts nothing of JAX."""
    if util.find_spec("jax") is None or util.find_spec("jaxlib") is None:
        return JAX_IS_MISSING
    import jax

    if not hasattr(jax, "shard_map"):
        return f"transport=xla needs JAX 0.8 or newer, and this is {jax.__version__}"
    platform = _platform(device)
    if platform != "cpu" and not any(platform in name for name in _plugins()):
        return (f"JAX here has no plugin for {platform}: pip install 'jax[cuda13]' (or what JAX has for this device), "
                "or start with launch.device=cpu")  # fmt: skip
    return None


def join(everyone: Messages, device: torch.device, one_host: bool, timeout_s: float) -> None:
    """Make this process one of a world of JAX that spans the job; every rank of the job must call it, once or often.

    Raises RuntimeError where JAX reaches no other rank, NotAvailable where gloo cannot be kept on its interface.
    """
    import jax

    if jax.distributed.is_initialized():
        return
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # three quarters of the device, beside torch's
    jax.config.update("jax_platforms", _platform(device))
    jax.config.update("jax_enable_x64", True)  # float64 and int64 are element types as others are
    address = _LOOPBACK if one_host else os.environ["MASTER_ADDR"]
    port = int(everyone.share_bytes(str(free_port()).encode() if everyone.leads else None))
    jax.distributed.initialize(
        coordinator_address=_with_port(address, port),
        num_processes=everyone.size,
        process_id=everyone.rank,
        local_device_ids=[device.index or 0],
        initialization_timeout=max(1, int(timeout_s)),
        heartbeat_timeout_seconds=_NEVER_S,
        coordinator_bind_address=_with_port(_listens_at(address), port) if everyone.leads else None,
    )
    if device.type == "cpu":
        jax.config.update("jax_num_cpu_devices", 1)
        _keep_gloo_on(os.environ.get("GLOO_SOCKET_IFNAME"))
    jax.devices()  # a backend begins on all ranks together, also on those outside of the group at work


def _listens_at(address: str) -> str:
    """Return where the coordinator listens: at the master's address alone, where that is an interface's of this host.

    A name is none: a host may know its own as its loopback address, where no other host comes.
    """
    own = {one.address.partition("%")[0] for found in psutil.net_if_addrs().values() for one in found}
    return address if address in {_LOOPBACK, *own} else "::"


def _with_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _keep_gloo_on(interface: str | None) -> None:
    """Have XLA's gloo listen where torch's does. JAX has no setting for it: its factory of CPU clients is replaced."""
    if interface is None:
        return
    try:
        from jax._src import distributed, xla_bridge
        from jaxlib import _jax

        make = _jax.make_gloo_tcp_collectives
        state, client = distributed.global_state, xla_bridge.make_cpu_client
        collectives = make(distributed_client=state.client, interface=interface)
        xla_bridge.register_backend_factory("cpu", partial(client, collectives), priority=0, fail_quietly=False)
    except (ImportError, AttributeError, TypeError) as error:
        raise NotAvailable(f"this JAX gives no way to keep gloo on the interface {interface} ({error}); the tested "
                           "versions are in constraints.txt") from error  # fmt: skip


def one_device_a_rank(ranks: tuple[int, ...]) -> list[Any]:
    """Return the first device of each of these ranks' processes. Raises NotAvailable where one has none."""
    import jax

    first: dict[int, Any] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    if missing := [rank for rank in ranks if rank not in first]:
        raise NotAvailable(f"JAX sees no device of rank {missing[0]}")
    return [first[rank] for rank in ranks]


def version() -> str:
    """Return the version of the compiler in use, as rows have it."""
    return f"jax {metadata.version('jax')}"


def _platform(device: torch.device) -> str:
    if device.type == "cpu":
        return "cpu"
    return "cuda" if torch.version.hip is None else "rocm"


def _plugins() -> set[str]:
    """Return the names of JAX's installed plugins, found as JAX finds them."""
    package = util.find_spec("jax_plugins")
    installed = [module.name for module in iter_modules(package.submodule_search_locations)] if package else []
    return {*installed, *(point.name for point in metadata.entry_points(group="jax_plugins"))}
