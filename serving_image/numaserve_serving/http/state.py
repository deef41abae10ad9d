"""What both ports share: where the server stands, and its engine once there is one."""

from __future__ import annotations

from dataclasses import dataclass, field

from numaserve_api.config import ConfigDeploy
from numaserve_api.probe import PlacementReport
from numaserve_serving.engine.engine import Engine
from numaserve_serving.engine.startup import Loaded
from numaserve_serving.http.metrics import Metrics
from numaserve_serving.system.placement import Roots, read_placement


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this server is, from its environment."""

    name: str = "model"
    revision: str = "local"
    token_digest: str = ""
    cpus: int | None = None


@dataclass
class ServerState:
    """Mutable state of one server process."""

    config: ConfigDeploy
    identity: Identity
    metrics: Metrics = field(default_factory=Metrics)
    step: str = "starting"
    loaded: Loaded | None = None
    engine: Engine | None = None
    draining: bool = False
    in_flight: int = 0
    connections: int = 0
    requests_total: int = 0
    roots: Roots = field(default_factory=Roots)

    @property
    def ready(self) -> bool:
        """Whether users' requests may come: loaded, the worker makes progress, not draining."""
        return self.engine is not None and self.engine.healthy and not self.draining

    @property
    def alive(self) -> bool:
        """Whether restarting would not help: still loading, or the worker lives."""
        return self.engine is None or self.engine.healthy

    @property
    def space(self) -> str:
        """Embedding space: as the config names it, else as the artifact does."""
        if self.config.model.space:
            return self.config.model.space
        return self.loaded.artifact.manifest.model.space if self.loaded else ""

    @property
    def dimensions(self) -> list[int]:
        """Sizes a caller may ask for; the first is the default."""
        facts = self.loaded.artifact.manifest.model.dimensions if self.loaded else []
        return list(self.config.model.dimensions or facts)

    def report(self) -> PlacementReport:
        """What the probe port tells of cores, model and load."""
        placement = read_placement(self.roots)
        facts = self.loaded.facts if self.loaded else None
        return PlacementReport(
            revision=self.identity.revision,
            artifact=self.loaded.artifact.digest if self.loaded else "",
            space=self.space,
            ready=self.ready,
            draining=self.draining,
            cpuset=placement.cpuset,
            online=placement.online,
            numa_nodes=list(placement.numa_nodes),
            physical_cores=placement.physical_cores,
            shared_sibling_cores=placement.shared_sibling_cores,
            cpus_requested=self.identity.cpus,
            threads_requested=self.config.threads,
            threads=facts.threads if facts else self.config.threads,
            cgroup_version=placement.cgroup_version,
            quota_cpus=placement.quota_cpus,
            throttled_periods=placement.throttled_periods,
            mems_allowed=placement.mems_allowed,
            isa=list(placement.isa),
            precision=facts.precision if facts else "",
            fingerprint=facts.fingerprint if facts else "",
            cpu_model=placement.cpu_model,
            in_flight=self.in_flight,
            open_connections=self.connections,
            requests_total=self.requests_total,
        )
