"""What `down` finds of a cluster: mounts, cgroups, and what runtimes keep elsewhere."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from localcluster import cgroups, leftovers, mounts

MOUNTINFO = """\
22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:9 / /var/lib/numaserve/one/nodes/a/kubelet rw - tmpfs tmpfs rw
31 30 0:9 / /var/lib/numaserve/one/nodes/a/kubelet/pods/x/v\\040ol rw - tmpfs tmpfs rw
32 22 0:9 / /var/lib/numaserve/one-more/nodes/a/kubelet rw - tmpfs tmpfs rw
"""


def test_mounts_are_listed_deepest_first_and_of_this_cluster_only(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTINFO)
    assert mounts.below(Path("/var/lib/numaserve/one"), table) == [
        Path("/var/lib/numaserve/one/nodes/a/kubelet/pods/x/v ol"),
        Path("/var/lib/numaserve/one/nodes/a/kubelet"),
    ]


def version_one(root: Path) -> Path:
    for controller in ("cpuset", "pids"):
        (root / controller).mkdir(parents=True)
        (root / controller / "cgroup.procs").write_text("")
    for name, value in (("cpuset.cpus", "0-3\n"), ("cpuset.mems", "0\n")):
        (root / "cpuset" / name).write_text(value)
    (root / "cpu").symlink_to("cpuset")
    return root


def test_each_controller_of_version_one_is_a_hierarchy_and_an_alias_is_none(tmp_path: Path) -> None:
    root = version_one(tmp_path)
    assert cgroups.hierarchies(root) == [root / "cpuset", root / "pids"]


def test_the_unified_hierarchy_is_one(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu cpuset\n")
    assert cgroups.hierarchies(tmp_path) == [tmp_path]


def test_a_group_is_made_in_every_hierarchy(tmp_path: Path) -> None:
    root = version_one(tmp_path)
    cgroups.create("/one/node-a", root)
    assert (root / "pids" / "one" / "node-a").is_dir()
    assert (root / "cpuset" / "one" / "node-a").is_dir()


def test_an_empty_cpuset_of_version_one_is_filled_from_its_parent(tmp_path: Path) -> None:
    root = version_one(tmp_path)
    group = root / "cpuset" / "one"
    group.mkdir()  # the kernel makes the files of a new group, empty
    for name in ("cpuset.cpus", "cpuset.mems"):
        (group / name).write_text("\n")
    cgroups.create("/one", root)
    assert (group / "cpuset.cpus").read_text() == "0-3"
    assert (group / "cpuset.mems").read_text() == "0"


def test_version_two_hands_its_controllers_down(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    cgroups.create("/one", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
    assert (tmp_path / "one").is_dir()


def test_members_are_found_at_any_depth_and_never_the_asker(tmp_path: Path) -> None:
    root = version_one(tmp_path)
    deep = root / "pids" / "one" / "node-a" / "pod"
    deep.mkdir(parents=True)
    (deep / "cgroup.procs").write_text(f"41\n{os.getpid()}\n")
    (root / "pids" / "one" / "cgroup.procs").write_text("7\n")
    assert cgroups.members("/one", root) == [7, 41]


def test_addresses_of_our_pods_are_forgotten_and_those_of_others_kept(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    for name in ("one", "one-more"):
        (results / name).write_text(f'{{"sandbox": "{tmp_path}/run/{name}/node-a/netns/cni-1"}}')
    leftovers.remove_cni_results(tmp_path / "run" / "one", results)
    assert [file.name for file in results.iterdir()] == ["one-more"]


def test_the_socket_a_task_names_is_removed(tmp_path: Path) -> None:
    task = tmp_path / "run/node-a/state/io.containerd.runtime.v2.task/k8s.io/abc"
    task.mkdir(parents=True)
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    (task / "address").write_text(f"unix://{path}")
    leftovers.remove_shim_sockets(tmp_path / "run")
    assert not path.exists()
