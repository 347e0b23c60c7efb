"""A study on two nodes of Ray, left and joined, one node removed in the middle: the same bits.

``python tests/cluster/ray_study.py`` starts both nodes on this machine, one core each, and stops
them. Nothing listens beyond this machine.
"""

import os
import tempfile
from functools import partial
from pathlib import Path

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every address is the loopback's
    "RAY_DISABLE_IMPORT_WARNING": "1",
}

from ray.cluster_utils import Cluster
from small_study import Command, check_equal, leave_and_join, refuse, write_text

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write_text(folder / "river.txt")
        assert Command(folder, "--out", "here", is_quiet=True).wait() == 0
        cluster = Cluster(initialize_head=True, head_node_args=NODE)
        try:
            second = cluster.add_node(**NODE)
            name = f"ray:{cluster.address}"
            refuse(folder, "--on", "ray:127.0.0.1:1")
            refuse(folder, "--on", name, "train.threads=2")
            refuse(folder, "--on", name, "train.precision=float32", "--device", "cuda")
            on = ["--on", name, "--out", "there"]
            progress = folder / "there" / "cluster" / "progress.txt"
            remove = partial(cluster.remove_node, second, allow_graceful=False)
            leave_and_join(folder, on, lambda: print(progress.read_text(), flush=True), remove)
            print((folder / "there" / "cluster" / "tasks.json").read_text())
        finally:
            cluster.shutdown()
        check_equal(folder, "here", "there")


if __name__ == "__main__":
    main()
