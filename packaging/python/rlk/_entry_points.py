"""Vendors' wheels: an entry point of the group rlk.plugins names a package whose folder holds librlk_plugin_*.so. Nothing
of that package runs here: its folder is found by its spec alone."""
import importlib.machinery
import importlib.metadata
import os
import pathlib
import sys

GROUP = "rlk.plugins"
VARIABLE = "RLK_WHEEL_PLUGINS"  # for librlk, and for the processes that this one starts


def _folders(module):
    """The folders of a package, without importing it or its parents."""
    path = None
    for name in module.split("."):
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or not spec.submodule_search_locations:
            return []
        path = list(spec.submodule_search_locations)
    return path


def found():
    """[(entry point, file or None, what is wrong)] of every plugin that an installed wheel brings."""
    out = []
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda e: e.name):
        folders = _folders(entry.value.split(":")[0].strip())
        files = [str(f) for folder in folders for f in sorted(pathlib.Path(folder).glob("librlk_plugin_*.so"))]
        if not folders:
            out.append((entry.name, None, f"entry point {entry.name} = {entry.value}: there is no such package"))
        elif not files:
            out.append((entry.name, None, f"entry point {entry.name} = {entry.value}: no librlk_plugin_*.so in "
                                          + ", ".join(folders)))
        out += [(entry.name, file, "") for file in files]
    return out


def added_path(before):
    """The variable's value with the files of wheels behind what it says already."""
    known = [p for p in before.split(":") if p]
    return ":".join(known + [file for _, file, _ in found() if file is not None and file not in known])


def add_to_environment():
    """Plugins of wheels are looked for behind those that RLK_ADD_PLUGIN_PATH names, before the default folders."""
    before = os.environ.get(VARIABLE, "")
    after = added_path(before)
    if after != before:
        os.environ[VARIABLE] = after
    for _, file, wrong in found():
        if file is None:
            print(f"rlk: {wrong}; the plugin is passed over", file=sys.stderr)
