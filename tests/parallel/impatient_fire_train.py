"""fire_train that gives up on silent ranks soon: what it watches, tests wait for."""

from __future__ import annotations

import sys

from pycaffe_fire.cli import fire_train
from pycaffe_fire.parallel import monitor

monitor.SILENCE = 5.0

if __name__ == "__main__":
    sys.exit(fire_train.main())
