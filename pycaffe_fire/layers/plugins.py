"""Layer types from other packages: found by entry point, loaded when a net first names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from ..registry import Registry, near_names

C = TypeVar("C", bound=type)


class PluginRegistry(Registry[C]):
    """A registry of subclasses of `base` that installed packages extend through `group`.

    An entry point's name is the type, its value the class. A type that is registered already
    hides an entry point of that name; nothing is imported merely to list the names.
    """

    def __init__(self, what: str, error: type[Exception], group: str, base: type) -> None:
        super().__init__(what, error)
        self.group, self.base = group, base

    def register(self, *names: str) -> Callable[[C], C]:
        add = super().register(*names)

        def checked(item: C) -> C:
            if not (isinstance(item, type) and issubclass(item, self.base)):
                raise self.error(
                    f'{self.what} "{names[0]}" must be a class that inherits from '
                    f"{self.group}.{self.base.__name__}, got {item!r}"
                )
            return add(item)

        return checked

    def __getitem__(self, name: str) -> C:
        if not super().__contains__(name):
            offered = self._offered().get(name)
            if offered is not None:
                self.register(name)(self._loaded(offered))
        return super().__getitem__(name)

    def alternatives(self, name: str) -> str:
        """There are too many to list them all."""
        near = " or ".join(f'"{known}"' for known in near_names(name, self, 3))
        hint = f" (did you mean {near}?)" if near else ""
        return f"{hint}; pycaffe_fire.layer_type_list() lists all {len(list(self))}"

    def __contains__(self, name: str) -> bool:
        return super().__contains__(name) or name in self._offered()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*super().__iter__(), *self._offered()}))

    def registered(self) -> dict[str, C]:
        """What is known without loading anything: names to classes."""
        return dict(self._items)

    def _offered(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}

    def _loaded(self, point: EntryPoint) -> C:
        try:
            found: C = point.load()
        except Exception as error:
            package = f" of package {point.dist.name}" if point.dist else ""
            raise self.error(
                f'{self.what} "{point.name}" is entry point {point.value}{package}, which cannot '
                f"be loaded: {type(error).__name__}: {error}"
            ) from error
        return found
