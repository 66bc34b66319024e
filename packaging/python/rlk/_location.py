"""Where this package keeps what is not Python: librlk, the prober, plugins, the command, headers, CMake files."""
import os
import pathlib

# Beside this file as it was imported: a build folder has links to these sources.
PREFIX = pathlib.Path(os.path.abspath(__file__)).parent / "prefix"


def library():
    path = PREFIX / "lib" / "librlk.so.0"
    if not path.exists():
        raise ImportError(f"rlk: {path} is missing. Install the wheel (pip install rlk-*.whl); a source folder alone has "
                          "no library")
    return str(path)


def torch_library():
    """librlk_torch, the kernels of rlk.torch."""
    return str(PREFIX / "lib" / "librlk_torch.so")


def command():
    """The rlk-plugins of this package."""
    return str(PREFIX / "bin" / "rlk-plugins")


def _developed(path, what):
    if not path.exists():
        raise FileNotFoundError(f"rlk: {path} is missing: {what} are in the wheel, not in a build folder")
    return str(path)


def include():
    """The folder of the C and C++ headers, for a compiler's -I."""
    return _developed(PREFIX / "include", "headers")


def cmake_dir():
    """The folder of the CMake package, for -Drlk_DIR=..."""
    return _developed(PREFIX / "lib" / "cmake" / "rlk", "CMake files")
