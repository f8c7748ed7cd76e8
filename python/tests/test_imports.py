"""The modules of the package import each other in one direction."""

import ast
import pathlib
import unittest

SOURCES = pathlib.Path(__file__).parent.parent / "attune"


def imports(path):
    """The modules of the package that a module imports, anywhere in its text."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "attune":
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attune."):
            names.add(node.module.removeprefix("attune."))
        elif isinstance(node, ast.Import):
            names.update(a.name.removeprefix("attune.") for a in node.names if a.name.startswith("attune."))
    return names


class Imports(unittest.TestCase):
    def test_no_circle(self):
        graph = {path.stem: imports(path) for path in SOURCES.glob("*.py")}
        self.assertIn("_operators", graph)
        self.assertNotIn("_call", graph, "that is the name of the compiled module")
        while graph:
            leaves = {name for name, of in graph.items() if not of & graph.keys()}
            self.assertTrue(leaves, f"these import each other: {sorted(graph)}")
            graph = {name: of for name, of in graph.items() if name not in leaves}
