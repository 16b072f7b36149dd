"""The arithmetic of other processors on this machine: numpy, BLAS and the C library with older instructions.

``python -m tests.support.processors COMMAND...`` runs a command as an old processor would.
"""

import hashlib
import math
import os
import platform
import sys

import numpy as np

_OLDEST = {"x86_64": "Prescott", "AMD64": "Prescott", "aarch64": "ARMV8", "arm64": "ARMV8"}


def old_processor() -> dict[str, str]:
    """Return environment variables by which a process computes as an old processor does: the nearest to other kinds.

    numpy refuses names of instructions that it does not know, so it is asked for those that it found.
    """
    features = " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", []))
    tunables = "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F" if platform.machine() in ("x86_64", "AMD64") else ""
    variables = kernels(_OLDEST.get(platform.machine(), "")) | {
        "NPY_DISABLE_CPU_FEATURES": features,
        "GLIBC_TUNABLES": tunables,
    }
    return {name: value for name, value in variables.items() if value}


def kernels(name: str) -> dict[str, str]:
    """Return the variable by which BLAS and LAPACK have the kernels of a processor, as `Haswell`."""
    return {"OPENBLAS_CORETYPE": name}


def arithmetic() -> str:
    """Return a digest of products, norms and functions of this process: it tells kinds of processors apart."""
    numbers = np.random.default_rng(1).normal(size=999)
    products = numbers[:900].reshape(30, 30) @ numbers[99:].reshape(30, 30)
    words = [products.tobytes(), np.exp(numbers).tobytes()]
    words += [np.linalg.norm(numbers[:size]).tobytes() for size in range(2, 300)]
    words += [repr([math.expm1(x), math.erfc(x), math.sin(x)]).encode() for x in numbers.tolist()]
    return hashlib.sha256(b"".join(words)).hexdigest()


if __name__ == "__main__":
    os.execvpe(sys.argv[1], sys.argv[1:], os.environ | old_processor())
