"""Puts models/, which lies beside the package in a checkout, inside it in a wheel."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithModels(build_py):
    """Editable installs find models/ where it is."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "pycaffe_fire" / "models"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree("models", target)


setup(cmdclass={"build_py": BuildWithModels})
