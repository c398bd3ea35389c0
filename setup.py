"""Compile the CPU kernels, and put models/, which is beside the package, inside it in a wheel."""

import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools" / "packaging"))

from fire_backend import NATIVE, native_build, platform  # noqa: E402


class BuildPackage(build_py):
    """An editable install finds models/ where it is, and has its kernels beside their sources."""

    def run(self) -> None:
        super().run()
        self._compile_kernels()
        if not self.editable_mode:
            target = Path(self.build_lib) / "pycaffe_fire" / "models"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree("models", target)

    def _compile_kernels(self) -> None:
        build = native_build()
        try:
            if self.editable_mode:
                build.update()
            elif platform():
                target = build.PLATFORMS[platform()]
                build.build(Path(self.build_lib) / NATIVE, target, build.ZIG)
            else:
                build.build(Path(self.build_lib) / NATIVE)
        except build.NoCompiler as error:
            self.warn(f"the CPU kernels are not compiled, so slower NumPy ops will serve: {error}")


class NativeDistribution(Distribution):
    """A distribution for one platform, because of its kernels."""

    def has_ext_modules(self) -> bool:
        return True


class PlatformWheel(bdist_wheel):
    """The kernels depend on the platform, but not on the version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", platform() or super().get_tag()[2]


setup(
    cmdclass={"build_py": BuildPackage, "bdist_wheel": PlatformWheel},
    distclass=NativeDistribution,
)
