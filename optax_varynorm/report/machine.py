"""What a reader needs to make a page again."""

import importlib.metadata
import os
import platform

import jax

PACKAGES = ("optax-varynorm", "jax", "jaxlib", "optax", "numpy")


def how_it_was_made(command: str, seconds: float) -> dict[str, str]:
    """The command, how long it took, versions and machine."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    device = jax.devices()[0]
    return {
        "command": command,
        "time": f"{seconds:.0f} seconds",
        "versions": ", ".join([f"Python {platform.python_version()}", *versions]),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{device.platform} ({device.device_kind})",
    }
