"""Layers that users write in Python, with pycaffe's contract.

A prototxt names module and class. Loading a net must not run a stranger's code, so the module is
imported only after `allow_python_layers()`; a module that the caller imported is used as it is.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, overload

from .. import schema
from ..backend.blob import Blob
from ..backend.tensor import on_host
from ..layers.base import Layer, is_train, register_layer
from ..layers.description import Description, Storage
from ..schema.proto import LayerParameter

DESCRIBED = frozenset(name for name in vars(Description) if not name.startswith("_"))


class Blobs(Sequence[Blob]):
    """The weights of a Python layer as its class sees them: `self.blobs`."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    def add_blob(self, *shape: int) -> None:
        """One more weight blob, 0 at first; for `setup`."""
        self._layer.add_param(shape, schema.FillerParameter(type="constant", value=0))

    def __len__(self) -> int:
        return len(self._layer.blobs)

    @overload
    def __getitem__(self, index: int) -> Blob: ...

    @overload
    def __getitem__(self, index: slice) -> list[Blob]: ...

    def __getitem__(self, index: int | slice) -> Blob | list[Blob]:
        return [self._layer.backend.host_view(blob) for blob in self._layer.blobs][index]


class Phase(int):
    """0 or 1 that calls itself TRAIN or TEST, as layers of py-faster-rcnn expect of str(phase)."""

    def __str__(self) -> str:
        return "TRAIN" if is_train(self) else "TEST"


class PythonLayer:
    """What a user's layer inherits from: pycaffe's `caffe.Layer`.

    `param_str` (once called `param_str_`), `phase` and `blobs` are there from `setup` on.
    `reshape` is called before every `forward`, as in Caffe.
    """

    type = "Python"
    param_str: str
    param_str_: str
    phase: int
    blobs: Blobs

    def __init__(self, param: LayerParameter) -> None:
        """`param` is the LayerParameter."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Check bottoms and tops, read param_str, add weights. Called once."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        raise NotImplementedError

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        raise NotImplementedError

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        raise NotImplementedError


@register_layer("Python")
class Python(Layer):
    """Runs an instance of the class that python_param names.

    Attributes it does not have itself are the instance's, to read and to write, so that pycaffe's
    `net.layers[0].some_method()` works. share_in_parallel changes nothing: every leaf has its own.

    Without bottoms it feeds data. Where a training batch is cut into leaves, only rank 0 has an
    instance of the class, and runs it for all of them: if all tops have the same number of samples,
    more than one, these are the batch, and leaves get equal parts; else every leaf gets a pass of
    its own.
    """

    needs_forward = False
    storage = Storage.FLOAT32
    bottoms = (0, None)
    tops = (0, None)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._cut: bool | None = None  # are the batches of `produce` cut, or passes of one leaf?
        self._read = [Blob(self.backend, (), blob.name) for blob in top]  # by `produce`
        self._no_bottoms = not bottom
        if self.feeds_leaves and not self._reads:
            self.user: Any = None
            return
        self.user = self._class()(self.param)
        self.user.param_str = self.user.param_str_ = self.param.python_param.param_str
        self.user.phase = Phase(self.phase)
        self.user.blobs = Blobs(self)
        # What setup writes into new weights must not reach the net that lends us its own.
        donors, self.donors = self.donors, ()
        tops = self._read if self.feeds_leaves else top
        self._call("setup", self._faces(bottom), self._faces(tops))
        for index, (blob, donor) in enumerate(zip(self.blobs, donors, strict=False)):
            self.borrow(index, blob, donor)

    def _class(self) -> type[PythonLayer]:
        param = self.param.python_param
        if not (param.module and param.layer):
            self.fail(
                f'python_param needs module and layer, got "{param.module}" and "{param.layer}"'
            )
        # No getattr: a module's own __getattr__ would be code that runs.
        found = vars(self._module(param.module)).get(param.layer)
        if not (isinstance(found, type) and issubclass(found, PythonLayer)):
            what = "there is none" if found is None else f"it is {found!r}"
            self.fail(
                f"{param.module}.{param.layer} must be a class that inherits from "
                f"pycaffe_fire.Layer, but {what}"
            )
        for method in ("reshape", "forward"):
            if getattr(found, method) is getattr(PythonLayer, method):
                self.fail(f"class {param.module}.{param.layer} defines no {method}")
        return found

    def _module(self, name: str) -> ModuleType:
        module = sys.modules.get(name)
        if module is not None:
            return module
        if not self.context.python_modules:
            self.fail(
                f'it would import Python module "{name}", which runs the code in it. If you trust '
                f"it, say so: fire_train --allow-python-layers, or in Python "
                f"pycaffe_fire.allow_python_layers() or your own import of the module"
            )
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            self.fail(f'cannot import "{name}": {error}; its folder must be in PYTHONPATH')
        except Exception as error:
            self.fail(f'cannot import "{name}": {type(error).__name__}: {error}')

    def _call(self, method: str, *args: Any) -> None:
        """The user's own exceptions go through, as in pycaffe, with a note that names the layer."""
        try:
            getattr(self.user, method)(*args)
        except Exception as error:
            if hasattr(error, "add_note"):  # Python 3.11
                param = self.param.python_param
                error.add_note(
                    f'in {method} of layer "{self.name}" (Python: {param.module}.{param.layer})'
                )
            raise

    def _faces(self, blobs: Sequence[Blob]) -> list[Blob]:
        """With NumPy arrays, whatever the device."""
        return [self.backend.host_view(blob) for blob in blobs]

    def __getattr__(self, name: str) -> Any:
        if "user" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.user, name)

    def __getattribute__(self, name: str) -> Any:
        if name in DESCRIBED:  # an attribute of the user's hides what our class says of itself
            user = self.__dict__.get("user")
            if hasattr(user, name):
                return getattr(user, name)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        mine = name in self.__dict__ or (hasattr(type(self), name) and name not in DESCRIBED)
        target = self if mine else self.__dict__.get("user", self)
        object.__setattr__(target, name, value)

    def stale(self, bottom: Sequence[Blob]) -> bool:
        return True  # Caffe reshapes before every forward, and users load batches there

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if not self.feeds_leaves:
            self._call("reshape", self._faces(bottom), self._faces(top))
        elif self._cut is None:
            self._announce(top)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if not self.feeds_leaves:
            self._call("forward", self._faces(bottom), self._faces(top))
            return
        ctx = self.context
        batch = ctx.feeds.take(self.name, ctx.step, ctx.leaf) if ctx.feeds is not None else None
        if batch is None:
            self.fail("rank 0 reads its data for all leaves, so its net runs only in training")
        for blob, values in zip(top, batch, strict=True):
            blob.reshape(*values.shape)
            blob.data[...] = self.xp.asarray(values)

    # Data for all leaves.

    @property
    def in_sequence(self) -> bool:
        return self._no_bottoms  # where its data stands, only it knows

    @property
    def feeds_leaves(self) -> bool:
        return self._no_bottoms and is_train(self.phase) and self.context.leaves > 1

    @property
    def _reads(self) -> bool:
        return 0 in self.context.own_leaves

    def _announce(self, top: Sequence[Blob]) -> None:
        """Shape the tops as rank 0 says that the first batch will be."""
        if self.context.feeds is None:
            self.fail("its data is read for all leaves of a batch together, which a solver does")
        shapes = None
        if self._reads:
            self._call("reshape", [], self._faces(self._read))
            shapes = [blob.shape for blob in self._read]
        shapes = self.context.feeds.announce(self.name, shapes)
        samples = {shape[0] if shape else 1 for shape in shapes}
        self._cut = len(samples) == 1 and samples != {1}
        for blob, shape in zip(top, shapes, strict=True):
            blob.reshape(*([self.leaf_size(shape[0]), *shape[1:]] if self._cut else shape))

    def produce(self, leaves: int) -> list[list[Any]]:
        if not self._cut:
            return [self._run() for _ in range(leaves)]
        whole = self._run()
        size = self.leaf_size(len(whole[0]))
        return [[values[i * size : (i + 1) * size] for values in whole] for i in range(leaves)]

    def _run(self) -> list[Any]:
        faces = self._faces(self._read)
        self._call("reshape", [], faces)
        self._call("forward", [], faces)
        return [on_host(face.data).copy() for face in faces]

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if type(self.user).backward is PythonLayer.backward:
            self.fail(
                f"class {type(self.user).__name__} defines no backward; write one, or stop "
                f"gradients with propagate_down: false"
            )
        for blob, down in zip(bottom, propagate_down, strict=True):
            if down and not any(blob is other for other in top):
                blob.gradient.clear()  # a backward that writes nothing means zero
        self._call("backward", self._faces(top), list(propagate_down), self._faces(bottom))
