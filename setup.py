"""Builds the distribution; everything it says about the project stands in setup.cfg."""

from setuptools import setup

setup()
