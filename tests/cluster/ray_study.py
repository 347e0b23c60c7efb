"""A study on two nodes of Ray: left and joined, a run, the command, a node and the head lost.

``python tests/cluster/ray_study.py`` starts both nodes on this machine, one core each, and stops
them. Nothing listens beyond this machine.
"""

import os
import shutil
from functools import partial

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every address is the loopback's
    "RAY_DISABLE_IMPORT_WARNING": "1",
}

from ray.cluster_utils import Cluster
from ray.job_submission import JobSubmissionClient
from small_study import Command, check_equal, leave_and_join, refuse, trial

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}
HEAD = NODE | {"include_dashboard": True}  # which takes jobs


def main():
    with trial() as folder:
        cluster = Cluster(initialize_head=True, head_node_args=HEAD)
        try:
            second, name = cluster.add_node(**NODE), f"ray:{cluster.address}"
            refuse(folder, "--on", "ray:127.0.0.1:1")
            refuse(folder, "--on", name, "train.threads=2")
            refuse(folder, "--on", name, "train.precision=float32", "--device", "cuda")
            on = ["--on", name, "--out", "there"]
            remove = partial(cluster.remove_node, second, allow_graceful=False)
            leave_and_join(folder, on, lambda: show(cluster), remove)
            check_equal(folder)
            shutil.rmtree(folder / "there")
            last = Command(folder, *on)
            last.wait_for(r"^\[1/")
            last.wait_for(": on ", 2)
            print("# the head is lost", flush=True)
        finally:
            cluster.shutdown()
        assert last.wait() == 3
        cluster = Cluster(initialize_head=True, head_node_args=HEAD)
        try:
            cluster.add_node(**NODE)
            on = ["--on", f"ray:{cluster.address}", "--out", "there"]
            assert Command(folder, *on).wait() == 0
        finally:
            cluster.shutdown()
        check_equal(folder)


def show(cluster):
    for job in JobSubmissionClient(f"http://{cluster.head_node.webui_url}").list_jobs():
        print(f"{job.metadata['run']}: {job.status}", flush=True)


if __name__ == "__main__":
    main()
