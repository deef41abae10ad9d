"""`python -m localcluster`: the local cluster's commands."""

from __future__ import annotations

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

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
console = Console(stderr=True, highlight=False)
PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True}


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


def cluster() -> Cluster:
    """The cluster NUMASERVE_CLUSTER names, with steps shown."""
    return Cluster(step=shown_step)


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
    """List the components and their process ids."""
    for name, state in cluster().status():
        print(f"{name:28} {state}")


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
def load_images() -> None:
    """Build and import the images into every node."""
    references = images.build_all()
    with shown_step("images into the nodes"):
        cluster().load_images(references)


@app.command()
def kubeconfig() -> None:
    """Print the path of the administrator's kubeconfig."""
    print(cluster().kubeconfig)


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
    raise typer.Exit(cluster().execute(context.args))


@app.command(context_settings=PASS_THROUGH)
def kubectl(context: typer.Context) -> None:
    """Run kubectl as the cluster's administrator."""
    raise typer.Exit(cluster().execute(["kubectl", *context.args]))


def main() -> None:
    """Run the command; a failure is one message and exit code 1."""
    try:
        app()
    except ClusterError as error:
        console.print(f"[red]error:[/] {error}", markup=True, soft_wrap=True)
        sys.exit(1)
