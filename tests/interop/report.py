# SPDX-License-Identifier: BSD-2-Clause
"""docs/interop.md from the results of a run."""


def write(path, results, peer):
    raise NotImplementedError
