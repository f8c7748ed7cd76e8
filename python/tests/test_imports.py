"""The modules of the package import each other in one direction."""

import ast
import pathlib
import unittest

PACKAGES = pathlib.Path(__file__).parent.parent


def imports(path, package):
    """The modules of the package that a module imports, anywhere in its text."""
    names, prefix = set(), package + "."
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(prefix):
            names.add(node.module.removeprefix(prefix))
        elif isinstance(node, ast.Import):
            names.update(a.name.removeprefix(prefix) for a in node.names if a.name.startswith(prefix))
    return names


class Imports(unittest.TestCase):
    def test_no_circle(self):
        for package, module in (("attune", "_operators"), ("attune_sim", "_triton")):
            graph = {path.stem: imports(path, package) for path in (PACKAGES / package).glob("*.py")}
            self.assertIn(module, graph)
            self.assertNotIn("_call", graph, "that is the name of the compiled module")
            self.check(graph)

    def check(self, graph):
        while graph:
            leaves = {name for name, of in graph.items() if not of & graph.keys()}
            self.assertTrue(leaves, f"these import each other: {sorted(graph)}")
            graph = {name: of for name, of in graph.items() if name not in leaves}
