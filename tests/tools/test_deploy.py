"""The files of tools/deploy, held against each other, the package, and the resources they name."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.cli.train_flags import check_company, parser
from pycaffe_fire.parallel.placement import read_hostfile

DEPLOY = Path(__file__).parents[2] / "tools" / "deploy"
ROOT = DEPLOY.parents[1]

# What the resources have on the way to pods, at the versions that the files name.
POD = {"containers", "volumes", "terminationGracePeriodSeconds", "securityContext"}
CONTAINER = {
    "name", "image", "workingDir", "command", "args", "env", "resources", "securityContext",
    "volumeMounts", "readinessProbe",
}  # fmt: skip
MPIJOB = {
    "slotsPerWorker", "runLauncherAsWorker", "runPolicy", "sshAuthMountPath",
    "launcherCreationPolicy", "mpiImplementation", "mpiReplicaSpecs",
}  # fmt: skip
RUN_POLICY = {
    "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit",
    "schedulingPolicy", "suspend", "managedBy",
}  # fmt: skip
MPI_POLICY = {"numProcPerNode", "mpiImplementation", "sshAuthMountPath", "runLauncherAsNode"}
JOB_SET = {
    "replicatedJobs", "network", "successPolicy", "failurePolicy", "startupPolicy", "suspend",
    "coordinator", "managedBy", "ttlSecondsAfterFinished",
}  # fmt: skip
TRAIN_JOB = {
    "runtimeRef", "initializer", "trainer", "labels", "annotations", "podTemplateOverrides",
    "suspend", "managedBy",
}  # fmt: skip
TRAINER = {
    "image", "command", "args", "env", "numNodes", "resourcesPerNode", "numProcPerNode"
}  # fmt: skip


def resources(name: str) -> list[Any]:
    yaml = pytest.importorskip("yaml", reason="reads the resources with PyYAML")
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def check_pod(spec: dict[str, Any], mount: str) -> dict[str, Any]:
    """Known fields alone, one container, and a volume at its working directory."""
    assert spec.keys() <= POD
    (container,) = spec["containers"]
    assert container.keys() <= CONTAINER and container["workingDir"] == "/work"
    assert container["securityContext"] == {"runAsUser": user_id()}
    (volume,), (mounted,) = spec["volumes"], container["volumeMounts"]
    assert (volume["name"], mounted["mountPath"]) == (mounted["name"], "/work")
    assert mount == f"/home/{user()}/.ssh"
    found: dict[str, Any] = container
    return found


def user() -> str:
    return re.search(r"^USER (\w+)$", dockerfile(), re.MULTILINE)[1]  # type: ignore[index]


def user_id() -> int:
    return int(re.search(r"useradd --uid (\d+)", dockerfile())[1])  # type: ignore[index]


def dockerfile() -> str:
    return (DEPLOY / "Dockerfile").read_text()


def check_launcher(arguments: list[str], ranks: int) -> None:
    """The flags exist, fit together, and ask for as many ranks as there are slots."""
    options = parser().parse_args(arguments)
    check_company(options)
    assert options.ranks == ranks and options.snapshot == "auto"
    assert options.hostfile == "/etc/mpi/hostfile"  # where both operators put it


def test_mpijob() -> None:
    (job,) = resources("mpijob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = job["spec"]
    assert spec.keys() <= MPIJOB and spec["runPolicy"].keys() <= RUN_POLICY
    assert spec["mpiImplementation"] in ("OpenMPI", "Intel", "MPICH")
    assert spec["mpiReplicaSpecs"].keys() == {"Launcher", "Worker"}
    containers = {}
    for name, replica in spec["mpiReplicaSpecs"].items():
        assert replica.keys() <= {"replicas", "restartPolicy", "template"}
        containers[name] = check_pod(replica["template"]["spec"], spec["sshAuthMountPath"])
    assert spec["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] in ("Never", "OnFailure")
    workers = spec["mpiReplicaSpecs"]["Worker"]["replicas"]
    assert containers["Launcher"]["command"] == ["fire_train"]
    check_launcher(containers["Launcher"]["args"], workers * spec["slotsPerWorker"])
    check_sshd(containers["Worker"])


def test_trainjob() -> None:
    runtime, job = resources("trainjob.yaml")
    for made, kind in ((runtime, "TrainingRuntime"), (job, "TrainJob")):
        assert made["apiVersion"] == "trainer.kubeflow.org/v1alpha1" and made["kind"] == kind
    policy, template = runtime["spec"]["mlPolicy"], runtime["spec"]["template"]
    assert runtime["spec"].keys() <= {"mlPolicy", "podGroupPolicy", "template"}
    assert policy.keys() <= {"numNodes", "torch", "mpi"} and policy["mpi"].keys() <= MPI_POLICY
    assert template["spec"].keys() <= JOB_SET
    jobs = {each["name"]: each for each in template["spec"]["replicatedJobs"]}
    assert jobs.keys() == {"node", "launcher"}
    containers = {
        name: check_pod(each["template"]["spec"]["template"]["spec"],
                        policy["mpi"]["sshAuthMountPath"])
        for name, each in jobs.items()
    }  # fmt: skip
    check_sshd(containers["node"])
    spec = job["spec"]
    assert spec.keys() <= TRAIN_JOB and spec["trainer"].keys() <= TRAINER
    assert spec["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime",
        "name": runtime["metadata"]["name"],
    }  # fmt: skip
    nodes = spec["trainer"]["numNodes"]
    check_launcher(spec["trainer"]["args"], nodes * policy["mpi"]["numProcPerNode"])


def check_sshd(container: dict[str, Any]) -> None:
    config = re.search(r"COPY tools/deploy/sshd_config (\S+)", dockerfile())
    assert container["command"] == ["/usr/sbin/sshd"]
    assert config and container["args"] == ["-De", "-f", config[1]]


@pytest.mark.parametrize("text", ["w-0.fire:4\nw-1.fire:4\n", "w-0.fire slots=4\nw-1.fire slots=4"])
def test_the_operators_hostfiles_are_understood(tmp_path: Path, text: str) -> None:
    """As the operator writes them for MPICH and for Open MPI."""
    (tmp_path / "hostfile").write_text(text)
    hosts = read_hostfile(str(tmp_path / "hostfile"))
    assert [(host.name, host.slots) for host in hosts] == [("w-0.fire", 4), ("w-1.fire", 4)]


def test_what_the_dockerfile_names_is_there() -> None:
    copied = re.findall(r"^COPY (\S+) ", dockerfile(), re.MULTILINE)
    assert copied and all((ROOT / path).exists() for path in copied)
    tool = _tool()
    assert tool.arguments() == {"MPI": "mpich", "EXTRAS": "mpi"}
    install = tool.pip_command()
    assert '"/src[${EXTRAS}]"' in install and install.index("uninstall") < install.index(
        '"${MPI}"; '
    )
    subprocess.run(["sh", "-n", "-c", install], check=True)
    extras = re.findall(r"^([\w-]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert {"mpi", "gpu"} <= set(extras)


def test_the_recipes_install_alike() -> None:
    recipe = (DEPLOY / "fire.def").read_text()
    bases = [re.search(rf"^{word}:? (\S+)$", text, re.MULTILINE)
             for word, text in (("FROM", dockerfile()), ("From", recipe))]  # fmt: skip
    assert bases[0] and bases[1] and bases[0][1] == bases[1][1]
    assert 'pip install --no-cache-dir "/src[mpi]"' in recipe
    sections = re.findall(r"^%(\w+)$", recipe, re.MULTILINE)
    assert sections == ["files", "post", "environment", "runscript", "test"]
    for body in re.split(r"^%\w+$", recipe, flags=re.MULTILINE)[2:]:
        subprocess.run(["sh", "-n", "-c", body], check=True)


def test_sshd_accepts_its_configuration(tmp_path: Path) -> None:
    sshd, keygen = shutil.which("sshd", path="/usr/sbin:/sbin"), shutil.which("ssh-keygen")
    if not (sshd and keygen):
        pytest.skip("openssh-server is not installed")
    key = tmp_path / "key"
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    config = tmp_path / "sshd_config"
    text = (DEPLOY / "sshd_config").read_text()
    config.write_text(text.replace("/home/mpiuser/.ssh_host_key", str(key)))
    done = subprocess.run([sshd, "-t", "-f", str(config)], capture_output=True, text=True)
    if "Missing privilege separation directory" in done.stderr:
        pytest.skip("sshd has never been started here")
    assert done.returncode == 0, done.stderr


def _tool() -> Any:
    spec = importlib.util.spec_from_file_location("try_image", DEPLOY / "try_image.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
