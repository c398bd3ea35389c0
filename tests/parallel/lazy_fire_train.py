"""fire_train whose rank 1 is stopped when only MPI's end is left of the job."""

from __future__ import annotations

import os
import signal
import sys

from pycaffe_fire.cli import fire_train
from pycaffe_fire.parallel import job

finalize = job._finalize


def stop_first(who: str, done: bool) -> None:
    if os.environ["PMI_RANK"] == "1":
        os.kill(os.getpid(), signal.SIGSTOP)
    finalize(who, done)


vars(job).update(FINALIZING_PATIENCE=2.0, _finalize=stop_first)

if __name__ == "__main__":
    sys.exit(fire_train.main())
