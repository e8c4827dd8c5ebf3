# SPDX-License-Identifier: Apache-2.0
"""Groups of real Redis servers that fail over by themselves."""

import re
import subprocess
import time

import support
from support import eventually, free_port


class Sentinels:
    """A master, a replica and three Sentinels that watch them."""

    NAME = "chaos"

    def __init__(self, down_after_ms):
        self.folder = support.Folder()
        self.servers = []
        self.sentinels = []
        try:
            self.start(down_after_ms)
        except BaseException:
            self.remove()
            raise

    def start(self, down_after_ms):
        self.master = support.Redis()
        self.servers.append(self.master)
        self.replica = support.Redis("--replicaof", "127.0.0.1", str(self.master.port),
                                     "--repl-diskless-sync-delay", "0")
        self.servers.append(self.replica)
        eventually(lambda: "connected" in self.replica.cli("role").split(), "the replica follows")
        for number in range(3):
            config = self.folder.write(f"sentinel-{number}.conf", f"""
sentinel monitor {self.NAME} 127.0.0.1 {self.master.port} 2
sentinel down-after-milliseconds {self.NAME} {down_after_ms}
sentinel failover-timeout {self.NAME} 10000
""")
            port = free_port()
            sentinel = support.Process(["redis-server", config, "--sentinel", "--port", str(port),
                                        "--bind", "127.0.0.1", "--dir", str(self.folder)])
            sentinel.port = port
            self.sentinels.append(sentinel)
        for sentinel in self.sentinels:
            eventually(lambda port=sentinel.port: self.knows_all(port), "the Sentinels agree")

    def knows_all(self, port):
        words = redis_cli(port, "sentinel", "master", self.NAME).split("\n")
        known = dict(zip(words[::2], words[1::2]))
        return known.get("num-slaves") == "1" and known.get("num-other-sentinels") == "2"

    def master_port(self):
        address = redis_cli(self.sentinels[0].port, "sentinel", "get-master-addr-by-name",
                            self.NAME).split()
        return int(address[1]) if len(address) == 2 else None

    @property
    def uri(self):
        addresses = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis-sentinel://{addresses}/{self.NAME}"

    def remove(self):
        for process in self.sentinels + self.servers:
            process.remove()
        self.folder.remove()


class Cluster:
    """Three masters, each with a replica."""

    MASTERS = 3

    def __init__(self, node_timeout_ms):
        self.nodes = []
        try:
            self.start(node_timeout_ms)
        except BaseException:
            self.remove()
            raise

    def start(self, node_timeout_ms):
        for _ in range(2 * self.MASTERS):
            bus = free_port()
            node = support.Redis("--cluster-enabled", "yes", "--cluster-port", str(bus),
                                 "--cluster-node-timeout", str(node_timeout_ms),
                                 "--cluster-replica-validity-factor", "0",
                                 "--cluster-allow-replica-migration", "no",
                                 "--repl-diskless-sync-delay", "0")
            node.bus = bus
            self.nodes.append(node)
        first = self.nodes[0]
        for number, node in enumerate(self.nodes):
            node.cli("cluster", "set-config-epoch", str(number + 1))
            if number < self.MASTERS:
                node.cli("cluster", "addslotsrange", str(self.first_slot(number)),
                         str(self.first_slot(number + 1) - 1))
            if node is not first:
                node.cli("cluster", "meet", "127.0.0.1", str(first.port), str(first.bus))
        for number, replica in enumerate(self.nodes[self.MASTERS:]):
            master = self.id_of(self.nodes[number])
            eventually(lambda r=replica, m=master:
                       r.cli("cluster", "replicate", m).strip() == "OK", "a replica's master")
        eventually(self.is_well, "the cluster is up")

    def is_well(self):
        return all(self.sees_all(node) for node in self.nodes if node.running())

    def sees_all(self, node):
        info = node.cli("cluster", "info")
        role = node.cli("role").split()
        return ("cluster_state:ok" in info and "cluster_slots_ok:16384" in info
                and f"cluster_known_nodes:{len(self.nodes)}" in info
                and (role[0] == "master" or "connected" in role))

    @staticmethod
    def wait_for_master(replica):
        eventually(lambda: replica.cli("role").startswith("master"), "a replica takes over")

    def first_owner(self, slot):
        """The number of the master that had the slot at first."""
        return next(number for number in range(self.MASTERS)
                    if slot < self.first_slot(number + 1))

    def first_slot(self, number):
        return 16384 * number // self.MASTERS

    @staticmethod
    def id_of(node):
        return node.cli("cluster", "myid").strip()

    def move_slots(self, origin, destination, count):
        """As an operator would; returns how long it took."""
        eventually(self.agree, "the nodes agree about the slots")
        begun = time.monotonic()
        done = subprocess.run(
            ["redis-cli", "--cluster", "reshard", f"127.0.0.1:{self.nodes[0].port}",
             "--cluster-from", self.id_of(origin), "--cluster-to", self.id_of(destination),
             "--cluster-slots", str(count), "--cluster-yes"],
            capture_output=True, text=True, check=False, timeout=support.PATIENCE)
        if done.returncode != 0 or len(re.findall("Moving slot", done.stdout)) < count:
            raise AssertionError(f"redis-cli --cluster reshard: {done.stdout[-500:]}{done.stderr}")
        return time.monotonic() - begun

    def agree(self):
        check = subprocess.run(
            ["redis-cli", "--cluster", "check", f"127.0.0.1:{self.nodes[0].port}"],
            capture_output=True, text=True, check=False, timeout=support.PATIENCE)
        return "All nodes agree about slots configuration" in check.stdout

    @property
    def uri(self):
        addresses = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:self.MASTERS])
        return f"redis://{addresses}"

    def remove(self):
        for node in self.nodes:
            node.remove()


def redis_cli(port, *command):
    return subprocess.run(["redis-cli", "-p", str(port), *command], capture_output=True, text=True,
                          check=False, timeout=support.PATIENCE).stdout
