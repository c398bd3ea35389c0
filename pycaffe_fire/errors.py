"""Every failure a user can cause, as a typed exception whose text says what, where and what to do.

FireError
  PrototxtError      a prototxt that does not parse or makes no sense (file:line:column)
  NetError           a net that cannot be wired (unknown blob, duplicate top, ...)
    LayerError       a layer refuses its bottoms, shapes or parameters
    BlobNameError    a net was asked for a blob that it does not have (a KeyError, too)
    ArgumentError    a net's method was given what does not fit (a ValueError, too)
  WeightsError       a .caffemodel or .solverstate that cannot be read or does not fit
  DataError          a database, list or record that cannot be read (source and key)
  SolverError        a solver setting that makes no sense
  BackendError       a compute library or device that cannot do what was asked
  ConvertError       a model that cannot be converted, or whose conversion gives other numbers

All are RuntimeErrors, because that is what scripts written for pycaffe catch.
"""

from __future__ import annotations


class FireError(RuntimeError):
    """Base of all errors meant for the user; the text is one complete explanation."""


class PrototxtError(FireError):
    """A prototxt is wrong; the text starts with file:line:column."""


class NetError(FireError):
    """A net's layers cannot be wired together."""


class LayerError(NetError):
    """One layer refuses what it was given: `layer "conv1" (Convolution): expects ..., got ...`."""

    def __init__(self, name: str, kind: str, message: str) -> None:
        super().__init__(f'layer "{name}" ({kind}): {message}')
        self.layer = name


class BlobNameError(NetError, KeyError):
    """A net has no such blob, input or output."""

    __str__ = Exception.__str__  # a KeyError would put its text into quotes


class ArgumentError(NetError, ValueError):
    """A name, shape or net given to a net's method does not fit."""


class WeightsError(FireError):
    """A weights or solver-state file cannot be read or does not fit the net."""


class DataError(FireError):
    """A data source or one of its records cannot be read."""


class SolverError(FireError):
    """A solver setting makes no sense or a run cannot go on."""


class BackendError(FireError):
    """A compute library or device cannot do what was asked."""


class ConvertError(FireError):
    """A model cannot be converted, or its conversion does not give the same numbers."""
