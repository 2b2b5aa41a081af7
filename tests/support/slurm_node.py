"""A Slurm cluster of one node, this machine, for the time of a test: no systemd, no installed configuration.

munged, slurmctld and slurmd run in the foreground as children of the tests, with ports, sockets and state of
their own, so that several can run side by side and none touches a Slurm that is there already. Needs root and
Debian's packages slurm-wlm and munge.
"""

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import wait_for

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "srun", "scontrol", "scancel", "squeue", "sinfo")

# cred_expire: a requeued task waits until the credentials of its last start have expired.
# The first scheduler looks at the queue at once when a job comes or goes; the second need not.
CONFIGURATION = """
ClusterName=kvbench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
ReturnToService=2
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why there can be no cluster here; empty where there can."""
    if os.geteuid() != 0:
        return "a Slurm of one's own needs root"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    lacking = [name for name in (*DAEMONS, *CLIENTS) if shutil.which(name, path=path) is None]
    return f"not installed: {', '.join(lacking)} (Debian: slurm-wlm, munge)" if lacking else ""


@dataclass(frozen=True)
class Slurm:
    """A running cluster; `env` is for everything that talks to it."""

    folder: Path
    env: dict[str, str]

    def command(self, *words: str) -> str:
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """What scontrol shows of a job, or of `job_task` of an array."""
        shown = self.command("scontrol", "--oneliner", "show", "job", number)
        return dict(field.split("=", 1) for field in shown.split() if "=" in field)

    def log(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("*.log")))


@contextmanager
def one_node(folder: Path) -> Iterator[Slurm]:
    """A cluster that takes jobs, until the end; its jobs end with it."""
    host = socket.gethostname().split(".")[0]
    controller_port, node_port = free_ports(2)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    configuration = folder / "slurm.conf"
    cpus = len(os.sched_getaffinity(0))
    configuration.write_text(
        CONFIGURATION.format(host=host, folder=folder, cpus=cpus, controller_port=controller_port, node_port=node_port)
    )
    env = os.environ | {"SLURM_CONF": str(configuration), "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    slurm = Slurm(folder, {name: value for name, value in env.items() if not name.startswith(("SLURM_JOB", "SBATCH_"))})
    munged = [
        f"--{name}={folder}/munge.{name.split('-')[0]}" for name in ("socket", "pid-file", "log-file", "seed-file")
    ]
    with ExitStack() as running:

        def start(*command: str) -> None:
            running.enter_context(daemon(slurm, command))

        start("munged", "--foreground", "--force", f"--key-file={key}", *munged)
        wait_for(lambda: (folder / "munge.socket").exists(), slurm.log)
        start("slurmctld", "-D")
        start("slurmd", "-D")
        running.callback(clear, slurm)
        idle = ["sinfo", "--noheader", "--format=%T"]
        wait_for(
            lambda: subprocess.run(idle, env=slurm.env, capture_output=True, text=True, check=False).stdout == "idle\n",
            slurm.log,
        )
        yield slurm


@contextmanager
def daemon(slurm: Slurm, command: tuple[str, ...]) -> Iterator[None]:
    """A process that runs until the end, with a log in the cluster's folder."""
    with (slurm.folder / f"{command[0]}.out.log").open("w") as log:
        process = subprocess.Popen(command, env=slurm.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def clear(slurm: Slurm) -> None:
    """Cancel what runs, for a node daemon leaves its jobs behind when it ends."""
    slurm.command("scancel", "--user=root", "--signal=KILL", "--full")
    slurm.command("scancel", "--user=root")
    wait_for(lambda: not slurm.command("squeue", "--noheader"), slurm.log)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now; they are taken at once."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
