#!/bin/sh
# Install Slurm and munge from Debian's or Ubuntu's packages, for tools/slurm/local_slurm.py and its tests.
# Run as root. Nothing is started and nothing of the system's configuration is changed.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -y -q --no-install-recommends slurm-wlm munge
slurmctld -V
