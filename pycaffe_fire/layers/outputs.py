"""Where layers may write: a net is data, and must not choose files anywhere on the machine."""

from __future__ import annotations

import os


def refusal(path: str, folder: str) -> str:
    """Why a layer may not write `path`; empty if it lies in the working directory or `folder`."""
    if "\0" in path:
        return f"{path!r} is not the name of a file"
    real = os.path.realpath(path)
    roots = [os.path.realpath(root) for root in (os.curdir, folder) if root]
    if any(real.startswith(os.path.join(root, "")) for root in roots):
        return ""
    return (
        f"{path} lies outside the working directory; to let nets write there, say so: "
        "--output-folder, or in Python pycaffe_fire.allow_output(folder)"
    )
