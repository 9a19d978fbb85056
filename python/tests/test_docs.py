"""Examples in documents run, and the stubs name all that exists."""

import ast
import doctest
import importlib
import inspect
import pathlib
import re

import pytest
import softfault

PACKAGE = pathlib.Path(softfault.__file__).parent
README = pathlib.Path(__file__).parent.parent / "README.md"


@pytest.mark.parametrize("name", ["softfault", "softfault._engine", "softfault._pages", "softfault._arrays", "softfault.aio"])
def test_examples_of_docstrings(name):
    module = importlib.import_module(name)
    tried = doctest.testmod(module)
    assert tried.attempted > 0 and tried.failed == 0


def test_examples_of_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.M | re.S)
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)


def stubs():
    return ast.parse((PACKAGE / "__init__.pyi").read_text())


def test_stubs_name_all_public_names():
    seen = set()
    for node in stubs().body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            seen.add(node.name)
            thing = getattr(softfault, node.name)
            for member in getattr(node, "body", []):
                if isinstance(node, ast.ClassDef) and isinstance(member, ast.FunctionDef):
                    assert hasattr(thing, member.name), f"{node.name}.{member.name}"
    assert seen >= set(softfault.__all__)
    assert not missing_constants()


def missing_constants():
    """Constants of the module that the stubs do not have."""
    stated = {node.target.id for node in stubs().body if isinstance(node, ast.AnnAssign)}
    return {name for name in vars(softfault) if name.isupper() and not name.startswith(("_", "IS_"))} - stated


@pytest.mark.parametrize("name", ["mmap", "Engine", "array", "memmap"])
def test_stubs_name_all_public_members(name):
    declared = {
        member.name
        for node in stubs().body
        if isinstance(node, ast.ClassDef) and node.name == name
        for member in node.body
        if isinstance(member, ast.FunctionDef)
    }
    kinds = getattr(softfault, name).__mro__
    ours = [kind for kind in kinds if kind.__module__.startswith("softfault")]
    # Methods of numpy's classes are in its own stubs.
    others = {member for kind in kinds if kind not in ours for member in vars(kind)}
    public = {member for kind in ours for member in vars(kind) if not member.startswith("_")} - others
    assert public <= declared, f"not in the stubs: {public - declared}"


def test_all_public_names_have_a_docstring():
    for name in softfault.__all__:
        assert inspect.getdoc(getattr(softfault, name)), name
    for name, member in vars(softfault.mmap).items():
        if not name.startswith("_"):
            assert member.__doc__, f"mmap.{name}"
