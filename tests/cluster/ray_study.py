"""A study on two nodes of Ray, left and joined, one node removed in the middle: the same bits.

``python tests/cluster/ray_study.py`` starts both nodes on this machine, one core each, and stops
them. Nothing listens beyond this machine.
"""

import os
from functools import partial

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every address is the loopback's
    "RAY_DISABLE_IMPORT_WARNING": "1",
}

from ray.cluster_utils import Cluster
from small_study import check_equal, leave_and_join, refuse, trial

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}


def main():
    with trial() as folder:
        cluster = Cluster(initialize_head=True, head_node_args=NODE)
        try:
            second, name = cluster.add_node(**NODE), f"ray:{cluster.address}"
            refuse(folder, "--on", "ray:127.0.0.1:1")
            refuse(folder, "--on", name, "train.threads=2")
            refuse(folder, "--on", name, "train.precision=float32", "--device", "cuda")
            on, there = ["--on", name, "--out", "there"], folder / "there" / "cluster"
            remove = partial(cluster.remove_node, second, allow_graceful=False)
            leave_and_join(folder, on, lambda: print((there / "progress.txt").read_text()), remove)
            print((there / "tasks.json").read_text())
        finally:
            cluster.shutdown()
        check_equal(folder)


if __name__ == "__main__":
    main()
