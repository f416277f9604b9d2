"""The order of the modules: each imports only what stands below it."""

import ast
import pathlib

import optax_varynorm

PACKAGE = pathlib.Path(optax_varynorm.__file__).parent
# From the ground up. A folder or module may import those before it, and itself.
ORDER = (
    {
        "_arguments",
        "_empty",
        "counts",
        "_batches",
        "_in_place",
        "_blocks",
        "_float64",
        "_sequences",
    },
    {"_precision", "kernels"},
    {"norms"},
    {"learners"},
    {"domains", "coin_betting"},
    {"norm_library", "certificates"},
    {"ftrl", "checking", "complaints"},
    {"reductions", "averaging"},
    {"optimizers", "two_calls"},
    {"linear_optimizers", "sparse_rounds", "playing"},
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("optax_varynorm"):
            if node.module == "optax_varynorm":
                yield from (alias.name for alias in node.names)
            else:
                yield part_of(node.module)


def test_modules_import_upward_only():
    for path in PACKAGE.rglob("*.py"):
        here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for there in imports_of(path) if here in RANK else ():
            assert there in RANK, f"{path} imports {there}, which stands above"
            assert RANK[there] <= RANK[here], f"{path} imports {there}, which stands above"
