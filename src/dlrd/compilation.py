"""Compiled programs that outlive the process."""

import os
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache as jax_cache


def compilation_cache(folder: str | Path | None = None) -> Path:
    """Keeps what jax compiles from now on in a folder, so that the next process starts hot.

    A first fit spends most of its time compiling. A process that makes this call finds the programs of
    earlier ones, as long as the model, its data, its shapes and the version of jax are the same. It is jax's
    own cache, for all that jax compiles in this process; dlrd never turns it on by itself.

    Args:
        folder: where; `~/.cache/dlrd` if not given. It may be deleted at any time.

    Returns:
        The folder.

    Example:
        >>> import dlrd
        >>> folder = dlrd.compilation_cache()  # doctest: +SKIP
    """
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dlrd"
    path = default if folder is None else Path(folder).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise ValueError(f"folder must be one, got the file {path}")
    path.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    # All programs: most of a fit's take less than the second below which jax would not keep them.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax_cache.reset_cache()  # or else jax goes on with the folder of its first program
    return path
