"""`python -m localcluster`: the local cluster's commands."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from localcluster import binaries, images
from localcluster.cluster import Cluster
from localcluster.errors import ClusterError
from localcluster.targets import Target, target_of

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
console = Console(stderr=True, highlight=False)
# What follows belongs to the other program, `--` and `--help` included.
PASS_THROUGH = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}


@app.callback()
def choose(
    kind: Annotated[
        str, typer.Option("--cluster", envvar="CLUSTER", help="local, kind, or current (your own kubeconfig).")
    ] = "local",
) -> None:
    """A Kubernetes cluster to try numaserve on."""
    os.environ["CLUSTER"] = kind


@contextmanager
def shown_step(title: str) -> Iterator[None]:
    """A spinner in a terminal, a line with the seconds it took otherwise."""
    begin = time.monotonic()
    if console.is_terminal:
        with console.status(f"{title} …"):
            yield
    else:
        yield
    console.print(f"  [green]✓[/] {title} [dim]{time.monotonic() - begin:.1f} s[/]")


def cluster() -> Target:
    """The cluster that CLUSTER and NUMASERVE_CLUSTER name, with steps shown."""
    return target_of(shown_step)


def local_cluster() -> Cluster:
    """The local cluster, for what only that has."""
    target = cluster()
    if not isinstance(target, Cluster):
        raise ClusterError(
            f"CLUSTER={os.environ['CLUSTER']} has no kubeconfig of ours: this works on the local cluster"
        )
    return target


@app.command()
def up() -> None:
    """Start the cluster; a healthy one is left as it is."""
    cluster().up()


@app.command()
def down() -> None:
    """Remove everything the cluster made; safe to run twice."""
    cluster().down()


@app.command()
def status() -> None:
    """List the components with their process ids, and the nodes. Exit code 1 when something is wrong or absent."""
    lines = list(cluster().status())
    for name, state in lines:
        print(f"{name:28} {state}")
    if not lines:
        console.print("the cluster is not there: start it with `up`")
    if not lines or any(state.startswith("dead") or state == "NotReady" for _, state in lines):
        raise typer.Exit(1)


@app.command("binaries")
def build_binaries() -> None:
    """Build Kubernetes and helm into the cache."""
    with shown_step(f"Kubernetes {binaries.KUBERNETES_VERSION}"):
        binaries.kubernetes()
    with shown_step(f"helm {binaries.HELM_VERSION}"):
        binaries.helm()


@app.command("build-images")
def build_images() -> None:
    """Build the operator and serving images; unchanged ones are kept."""
    with shown_step("images"):
        references = images.build_all()
    for name, reference in references.items():
        print(f"{name} {reference}")


@app.command("load-images")
def load_images(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="serving, operator; all by default.")
    ] = None,
) -> None:
    """Build images and bring them to the nodes; print the references the cluster knows them by."""
    references = images.build_all(names or ())
    with shown_step("images into the nodes"):
        target = cluster()
        loaded = target.load_images(references)
    digests = target.by_digest(loaded) if isinstance(target, Cluster) else {}
    for name, reference in loaded.items():
        print(f"{name} {reference} {digests.get(name, '')}".rstrip())


@app.command()
def kubeconfig() -> None:
    """Print the path of the administrator's kubeconfig."""
    print(local_cluster().kubeconfig)


@app.command()
def volume(
    name: str,
    namespace: Annotated[str, typer.Option()] = "default",
    source: Annotated[Path | None, typer.Option("--from", help="Folder copied into the volume.")] = None,
) -> None:
    """Make a PersistentVolume with a bound claim NAME, optionally filled from a folder."""
    cluster().volume(name, namespace, source)


@app.command("exec", context_settings=PASS_THROUGH)
def execute(context: typer.Context) -> None:
    """Run a command inside the cluster's network, kubectl and helm on PATH."""
    words = context.args[1:] if context.args[:1] == ["--"] else context.args
    if not words:
        raise ClusterError("exec: say what to run, as in `exec -- kubectl get nodes`")
    raise typer.Exit(cluster().execute(words))


@app.command(context_settings=PASS_THROUGH)
def kubectl(context: typer.Context) -> None:
    """Run kubectl as the cluster's administrator."""
    raise typer.Exit(cluster().execute(["kubectl", *context.args]))


def main() -> None:
    """Run the command; a failure is one message and exit code 1."""
    try:
        app()
    except ClusterError as error:
        console.print("[red]error:[/]", end=" ")
        console.print(str(error), markup=False, soft_wrap=True)  # logs hold brackets that are no markup
        sys.exit(1)
