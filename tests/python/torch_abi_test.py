"""librlk_torch uses the stable C ABIs of torch and of Python: what the file asks of the linker, and each function it finds by
name beside its own declaration. The one that it finds beside them, before torch 2.14, has its types in its name."""
import os
import pathlib
import re
import subprocess
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FUNCTIONS = ROOT / "packaging/python/torch/shim_functions.inc"
OLDEST = "0x020a000000000000"  # 2.10


def lines_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.fixture(scope="module")
def library():
    from rlk import _location
    return _location.torch_library()


def test_the_library_links_nothing_of_torch(library):
    needed = [line.split("[")[1].rstrip("]") for line in lines_of("readelf", "-d", library) if "(NEEDED)" in line]
    assert "librlk.so.0" in needed
    assert [name for name in needed if not re.match(r"lib(rlk|stdc\+\+|gcc_s|c|m|dl|pthread)\.so", name)
            and not name.startswith("ld-linux")] == []
    symbols = lines_of("nm", "-D", "-C", library)
    undefined = [line.split(" U ")[1] for line in symbols if " U " in line]
    assert undefined and [name for name in undefined if re.search(r"\b(at|c10|torch)::|^(aoti_)?torch_|^Py", name)] == []
    assert {line.split()[-1] for line in symbols if " T " in line} == {
        "rlk_torch_callable", "rlk_torch_error", "rlk_torch_node", "rlk_torch_open", "rlk_torch_operator_address",
        "rlk_torch_register", "rlk_torch_reloaded"}


PROGRAM = """
#include <torch/csrc/stable/c/shim.h>
#include <type_traits>
#define F(name, result, parameters) static_assert(std::is_same_v<decltype(&::name), result(*) parameters>, #name);
#define F_OPTIONAL(name, result, parameters, since) F(name, result, parameters)
#include "shim_functions.inc"
"""


def compiled(tmp_path, text, version):
    """What the compiler says against it, with torch's headers as an extension for that torch sees them."""
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    source = tmp_path / "abi.cpp"
    source.write_text(text)
    include = pathlib.Path(torch.__file__).parent / "include"
    return subprocess.run([os.environ.get("RLK_TEST_CXX", "c++"), "-std=c++20", "-fsyntax-only", "-DUSE_CUDA",
                           f"-DTORCH_TARGET_VERSION={version}ULL", f"-I{include}", f"-I{FUNCTIONS.parent}", str(source)],
                          capture_output=True, text=True).stderr


def test_every_function_is_torchs_as_torch_2_10_declares_it(tmp_path):
    plain = re.sub(r"#define F_OPTIONAL.*", "#define F_OPTIONAL(name, result, parameters, since)", PROGRAM)
    assert compiled(tmp_path, plain, OLDEST) == ""
    # The check can fail: another type, and a function that torch 2.10 does not have.
    assert "aoti_torch_get_dim" in compiled(
        tmp_path, plain + "F(aoti_torch_get_dim, int32_t, (AtenTensorOpaque*, int32_t*))", OLDEST)
    assert "torch_stream_native_handle" in compiled(tmp_path, PROGRAM, OLDEST)


def test_functions_of_later_torches_are_as_those_declare_them(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    optional = re.findall(r"F_OPTIONAL\(.*?(\d+\.\d+)\)$", FUNCTIONS.read_text(), re.MULTILINE)
    newest = max(tuple(map(int, since.split("."))) for since in optional)
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < newest:
        pytest.skip(f"torch {torch.__version__} is older than {newest}")
    assert compiled(tmp_path, PROGRAM, f"0x{newest[0]:02x}{newest[1]:02x}000000000000") == ""


PYTHON = """
#include <stddef.h>
#define Py_LIMITED_API 0x030a0000
#include <Python.h>
#undef PyCMethod_New
#include <type_traits>
#define F(name, result, parameters) static_assert(std::is_same_v<decltype(&::name), result(*) parameters>, #name);
#include "python_functions.inc"
static_assert(sizeof(PyMethodDef) == 32 && offsetof(PyMethodDef, ml_meth) == 8 && offsetof(PyMethodDef, ml_flags) == 16);
static_assert(METH_FASTCALL == 0x80);
"""


def test_every_function_of_python_is_of_its_limited_api(tmp_path):
    include = pathlib.Path(sysconfig.get_paths()["include"])
    if not (include / "Python.h").is_file():
        pytest.skip("Python's headers are not installed here")
    source = tmp_path / "python.cpp"
    for more, expected in (("", None), ("F(Py_DecRef, int, (PyObject*))", "Py_DecRef")):
        source.write_text(PYTHON + more)
        said = subprocess.run([os.environ.get("RLK_TEST_CXX", "c++"), "-std=c++20", "-fsyntax-only", f"-I{include}",
                               f"-I{FUNCTIONS.parent}", str(source)], capture_output=True, text=True).stderr
        assert said == "" if expected is None else expected in said


def test_the_kernels_are_the_librarys():
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    from rlk import _torch_library
    import rlk.torch
    assert rlk.torch.served_by == _torch_library.served_by
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 10):
        assert rlk.torch.served_by.startswith("librlk_torch on the stable ABI")


def test_calls_go_around_the_dispatcher_where_torch_lets_them():
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    import rlk.torch
    from rlk import _torch_library
    from rlk._gradients import functions
    can = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 10)
    assert {f.direct is not None for f in functions.values() if f.pure} == {can}
    assert all((f.whole is _torch_library.unknown) == (f.direct is None) for f in functions.values())
    assert all(f.direct is None for f in functions.values() if not f.pure)


def test_python_describes_operators_as_the_library_reads_them(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed here")
    from rlk._torch_library import REQUEST, Description, Python
    import ctypes
    lines = [f'static_assert(offsetof(rlk_torch_operator, {name}) == {getattr(Description, name).offset}, "{name}");'
             for name, _ in Description._fields_]
    lines += [f'static_assert(offsetof(rlk_torch_python, {name}) == {getattr(Python, name).offset}, "{name}");'
              for name, _ in Python._fields_]
    lines += [f'static_assert(sizeof(rlk_torch_python) == {ctypes.sizeof(Python)}, "size");',
              f'static_assert(sizeof(rlk_torch_operator) == {ctypes.sizeof(Description)}, "size");',
              f'static_assert(sizeof(rlk_torch_request) == {REQUEST.size} && offsetof(rlk_torch_request, places) == 16);']
    text = "#include <cstddef>\n#include <rlk_torch.h>\n" + "\n".join(lines)
    folders = (f"-I{ROOT / folder}" for folder in ("loader/api/include", "plugin_api/include"))
    source = tmp_path / "description.cpp"
    source.write_text(text)
    result = subprocess.run([os.environ.get("RLK_TEST_CXX", "c++"), "-std=c++20", "-fsyntax-only", f"-I{FUNCTIONS.parent}",
                             *folders, str(source)], capture_output=True, text=True)
    assert result.stderr == ""
