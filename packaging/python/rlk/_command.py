"""The console script rlk-plugins: the program of this package, with the plugins of installed wheels in its search."""
import os
import sys

from rlk import _entry_points, _location


def main():
    _entry_points.add_to_environment()
    program = _location.command()
    try:
        os.execv(program, ["rlk-plugins", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"rlk-plugins: cannot run {program}: {error.strerror}")
