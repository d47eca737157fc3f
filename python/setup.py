"""The tag of the wheel: any Python 3, and the platform of the libraries that make_wheel.sh puts into it."""

from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution


class Carrier(Distribution):
    def has_ext_modules(self):
        return (Path(__file__).parent / "trireme" / "lib").is_dir()


class Wheel(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(distclass=Carrier, cmdclass={"bdist_wheel": Wheel})
