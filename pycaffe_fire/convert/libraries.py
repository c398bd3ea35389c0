"""Libraries that only conversions need, loaded when one does; a missing one is named."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from ..errors import ConvertError
from ..installation import install_hint

_PACKAGES = {"cv2": "opencv-python-headless", "torch": "torch"}  # beyond the extra `convert`


def need(module: str) -> Any:
    """The module of this name, or a sentence saying how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise _missing(module) from None


def need_installed(module: str) -> None:
    """Refuse to go on without a module that another process is going to load."""
    if importlib.util.find_spec(module) is None:
        raise _missing(module)


def _missing(module: str) -> ConvertError:
    name = module.split(".")[0]
    own = f"pip install {_PACKAGES[name]}" if name in _PACKAGES else install_hint("convert")
    return ConvertError(f"this needs {name}: {own}")
