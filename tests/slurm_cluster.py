"""A real Slurm cluster of several nodes on this host: slurmctld, one slurmd a node, munge. Needs root, no systemd."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ACCOUNTING = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacctmgr")  # Debian's slurmdbd, mariadb-server
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scontrol", "scancel")

_CONF = """\
ClusterName=scalescope
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=2
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
EnforcePartLimits=ALL
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmctldParameters=enable_configless
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SlurmdParameters=config_overrides
KillWait=5
SlurmdTimeout=10
MaxArraySize=100
"""


def missing_programs(programs: tuple[str, ...] = PROGRAMS) -> list[str]:
    """Return what this machine lacks for a cluster; empty where one can be started."""
    lacking = [name for name in programs if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    return lacking or ([] if os.geteuid() == 0 else ["root"])


@dataclass
class SlurmCluster:
    """Started on entering, stopped on leaving; only the processes that it started are ended."""

    folder: Path
    nodes: int = 2
    cpus: int = 2
    account: str | None = None  # the only one that jobs may run under; needs slurmdbd and a database
    environment: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> "SlurmCluster":
        self.folder.chmod(0o755)
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        port = _free_ports(3 + self.nodes)
        host = socket.gethostname().split(".")[0]
        lines = [_CONF.format(host=host, port=port[0], folder=self.folder)]
        for number in range(self.nodes):
            lines.append(
                f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port[1 + number]} CPUs={self.cpus} "
                "RealMemory=4000 State=UNKNOWN\n"
            )
        if self.account is not None:
            lines.append(
                "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
                f"AccountingStoragePort={port[-2]}\nAccountingStorageEnforce=associations\n"
                f"AccountingStoragePass={self.folder}/munge.socket\n"
            )
        else:
            lines.append("AccountingStorageType=accounting_storage/none\n")
        lines.append("PartitionName=cpu Nodes=ALL Default=YES MaxTime=60 State=UP\n")
        conf = self.folder / "slurm.conf"
        conf.write_text("".join(lines))
        self.environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        self._run("munged", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                  f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
                  f"--seed-file={self.folder}/munge.seed")  # fmt: skip
        if self.account is not None:
            self._keep_accounts(host, slurmdbd=port[-2], database=port[-1])
        self._run("slurmctld", "-c", "-f", str(conf))
        for number in range(self.nodes):
            self._run("slurmd", "-N", f"n{number}", "-f", str(conf))
        self._await_idle()
        return self

    def __exit__(self, *_: object) -> None:
        self._run("scancel", "-u", "root", check=False)
        with suppress(TimeoutError):  # what a daemon has started outlives it
            self.wait_until(lambda: not self._run("squeue", "-h", "-t", "R,CG", check=False).stdout.strip(), 20)
        names = [*(f"slurmd-n{number}" for number in range(self.nodes)), "slurmctld", "slurmdbd", "mariadbd", "munged"]
        for name in names:
            pid_file = self.folder / f"{name}.pid"
            if pid_file.exists():
                subprocess.run(["kill", pid_file.read_text().strip()], check=False, capture_output=True)

    def _keep_accounts(self, host: str, slurmdbd: int, database: int) -> None:
        """Start a database and slurmdbd on it, with one account that root may use."""
        data = self.folder / "database"
        self._run("mariadb-install-db", "--user=root", f"--datadir={data}", "--auth-root-authentication-method=normal",
                  "--skip-test-db")  # fmt: skip
        start = self.folder / "start.sql"
        start.write_text("CREATE DATABASE slurm;\nCREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm';\n"
                         "GRANT ALL ON slurm.* TO slurm@'127.0.0.1';\n")  # fmt: skip
        subprocess.Popen(
            ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={self.folder}/db.socket",
             f"--pid-file={self.folder}/mariadbd.pid", "--bind-address=127.0.0.1", "--skip-name-resolve",
             f"--port={database}", f"--init-file={start}"],
            env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        conf = self.folder / "slurmdbd.conf"
        conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={self.folder}/munge.socket\nDbdHost={host}\nDbdAddr=127.0.0.1\n"
            f"DbdPort={slurmdbd}\nSlurmUser=root\nPidFile={self.folder}/slurmdbd.pid\n"
            f"LogFile={self.folder}/slurmdbd.log\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={database}\nStorageUser=slurm\nStoragePass=slurm\nStorageLoc=slurm\n"
        )
        conf.chmod(0o600)
        self.wait_until(lambda: _listens(database), 30)
        subprocess.run(
            ["slurmdbd"], env={**self.environment, "SLURM_CONF": str(self.folder / "slurm.conf")}, check=True
        )
        named = (["cluster", "scalescope"], ["account", str(self.account)], ["user", "root", f"account={self.account}"])
        for argv in named:
            self.wait_until(partial(self._is_added, argv), 30)

    def _is_added(self, argv: list[str]) -> bool:
        return self._run("sacctmgr", "-i", "add", *argv, check=False).returncode == 0

    def submit(self, *argv: str, cwd: Path) -> int:
        """Submit a batch script and return the job's id."""
        done = self._run("sbatch", "--parsable", *argv, cwd=cwd)
        return int(done.stdout.strip().split(";")[0])

    def state(self, job: int) -> str:
        """Return a job's state. squeue is polled by others, too: sbatch --wait backs off to 42 s."""
        done = self._run("scontrol", "show", "job", str(job), check=False)
        return next((word[9:] for word in done.stdout.split() if word.startswith("JobState=")), "")

    def wait(self, job: int, limit_s: float = 300.0) -> str:
        """Return a job's final state."""
        self.wait_until(lambda: self.state(job) not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", ""), limit_s)
        return self.state(job)

    def wait_until(self, holds: Callable[[], bool], limit_s: float = 300.0) -> None:
        """Return when something holds. Raises TimeoutError."""
        until = time.monotonic() + limit_s
        while not holds():
            if time.monotonic() > until:
                raise TimeoutError(f"not within {limit_s:g} s; see {self.folder}")
            time.sleep(0.2)

    def signal(self, job: int, name: str) -> None:
        """Send a signal to a job's steps, as --signal does ahead of the time limit."""
        self._run("scancel", f"--signal={name}", str(job))

    def cancel(self, job: int) -> None:
        """Cancel a job and return when it has gone."""
        self._run("scancel", str(job))
        self.wait(job)

    def exit_code(self, job: int) -> int:
        """Return the exit code of a job's batch script."""
        done = self._run("scontrol", "show", "job", str(job))
        return int(next(word[9:] for word in done.stdout.split() if word.startswith("ExitCode=")).split(":")[0])

    def lose_node(self, name: str) -> None:
        """Kill a node's slurmd and all that it has started, at once, as a node that loses its power."""
        slurmd = int((self.folder / f"slurmd-{name}.pid").read_text())
        lost = {slurmd, *(pid for pid in _processes() if _environment(pid).get("SLURMD_NODENAME") == name)}
        for pid in list(lost):
            lost |= set(_stepds_of(pid))
        for pid in lost:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_now(self, job: int) -> None:
        """Make a requeued job eligible, which it would be after two minutes, and return when it has started."""
        for _ in range(6):  # the time that requeueing sets may come after this one
            self._await_idle()  # the run before has ended on its nodes, too
            time.sleep(1.5)
            self._run("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
            with suppress(TimeoutError):
                return self.wait_until(lambda: self.state(job) != "PENDING", 20)
        raise TimeoutError(f"job {job} does not start again; see {self.folder}")

    def _await_idle(self) -> None:
        def idle() -> bool:
            done = self._run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False)
            return len(set(done.stdout.split())) == self.nodes

        self.wait_until(idle, 60)

    def _run(self, *argv: str, cwd: Path | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(argv, cwd=cwd, env=self.environment, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
        return done


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _environment(pid: int) -> dict[str, str]:
    try:
        settings = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return {}
    return dict(setting.split("=", 1) for setting in settings if "=" in setting)


def _stepds_of(pid: int) -> list[int]:
    """Return the slurmstepd above a task, which is what Slurm calls its process of a step on a node."""
    found = []
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        if "slurmstepd" in stat:
            found.append(pid)
        pid = int(stat.rpartition(")")[2].split()[1])
    return found


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
