"""Cores: how many this process may use, by its CPU affinity and the quota of its control group."""

import math
import os
import sys
from pathlib import Path

from callboard.lib.control_group import CGROUPS, OURS, cpu_quota


def cores(cgroups: Path = CGROUPS, ours: Path = OURS) -> int:
    """Return how many cores this process may keep busy; a part of a core counts as one."""
    found = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = cpu_quota(cgroups, ours)
    return found if quota is None else max(1, min(found, math.ceil(quota)))
