"""``varynorm bench``: how fast a round is on this machine."""

import json
import statistics
import time
from typing import Annotated

import jax
import jax.numpy as jnp
import rich.console
import rich.table
import typer

import optax_varynorm as vn
from optax_varynorm.cli.app import app, notes
from optax_varynorm.racing import linear

# Those of O(d) a round go on where a d x d matrix would take minutes.
OF_VECTORS = ("fixed_norm", "diagonal", "diagonal_scale_invariant")
OF_MATRICES = ("varynorm", "full_matrix", "full_matrix_adagrad", "scale_invariant")
ROUNDS = 512
TURNS = 5


def rounds_per_second(name: str, dimension: int) -> float:
    """Of a linear model at the optimizer's defaults, on drawn rows; the median of some turns."""
    rows = jax.random.normal(jax.random.key(0), (ROUNDS, dimension)) / jnp.sqrt(dimension)
    stream = (rows, jnp.roll(rows, -1, axis=0), (jnp.arange(ROUNDS) % 2).astype(rows.dtype))
    play_round, carry = linear.rounds(getattr(vn, name)(), dimension)
    program = (
        jax.jit(lambda *start: jax.lax.scan(play_round, *start)).lower(carry, stream).compile()
    )
    speeds = []
    for _ in range(TURNS):
        began = time.perf_counter()
        jax.block_until_ready(program(carry, stream))
        speeds.append(ROUNDS / (time.perf_counter() - began))
    return statistics.median(speeds)


@app.command()
def bench(
    sizes: Annotated[str, typer.Option(help="Numbers of parameters, with commas between.")] = (
        "16,128,512"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """A short table of speeds: rounds a second of linear models on this machine.

    The full suite, with ratios to memory limits and to other libraries, is `make bench` and
    `make bench-throughput` in the repository.

    [bold]Example[/bold]

    [cyan]varynorm bench --sizes 16,128[/cyan]
    """
    try:
        dimensions = [int(size) for size in sizes.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"--sizes needs whole numbers with commas between, not {sizes!r}."
        ) from error
    if min(dimensions) < 1:
        raise typer.BadParameter(f"--sizes needs numbers of at least one, not {sizes!r}.")
    speeds = {}
    with notes().status("") as status:
        for name in (*OF_MATRICES, *OF_VECTORS):
            status.update(name)
            speeds[name] = {d: rounds_per_second(name, d) for d in dimensions}
    if as_json:
        typer.echo(json.dumps({"rounds_per_second": speeds}))
        return
    table = rich.table.Table("rounds a second", title=f"{jax.devices()[0].device_kind}, float32")
    for d in dimensions:
        table.add_column(f"d = {d}", justify="right")
    for name, by_size in speeds.items():
        table.add_row(name, *(f"{speed:,.0f}" for speed in by_size.values()))
    rich.console.Console().print(table)
