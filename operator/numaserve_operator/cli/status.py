"""`numaserve status`: revisions, pods, cores and gates of one resource at a glance."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.tree import Tree

from numaserve_api import names
from numaserve_operator.domain.errors import OperatorError
from numaserve_operator.kube.api import Api
from numaserve_operator.kube.gateway import Gateway

_COLOURS = {"True": "green", "False": "red", "Unknown": "yellow"}
Json = dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(status)


def status(
    name: Annotated[str, typer.Argument(help="Name of the EncoderDeployment.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n")] = "default",
    kubeconfig: Annotated[str | None, typer.Option(envvar="KUBECONFIG")] = None,
) -> None:
    """Show conditions, revisions, pods with their cores, and what the gates measured."""
    console = Console()
    try:
        raw = asyncio.run(_read(namespace, name, kubeconfig))
    except OperatorError as error:
        console.print(f"[red]error:[/] {error}", soft_wrap=True)
        raise typer.Exit(2) from error
    if raw is None:
        console.print(f"[red]error:[/] there is no {names.KIND} {name} in namespace {namespace}")
        raise typer.Exit(1)
    console.print(picture(raw))


async def _read(namespace: str, name: str, kubeconfig: str | None) -> Json | None:
    api = await Api.connect(kubeconfig)
    try:
        return await Gateway(api).parent(namespace, name)
    finally:
        await api.close()


def picture(raw: Json) -> Group:
    """The resource's status as text to print."""
    told = raw.get("status") or {}
    title = f"[bold]{raw['metadata']['namespace']}/{raw['metadata']['name']}[/]  {(told.get('rollout') or {}).get('phase', '')}"
    return Group(title, _conditions(told), _revisions(told), _gates(told))


def _conditions(told: Json) -> Table:
    table = Table("condition", "status", "reason", "message", box=None, pad_edge=False)
    for condition in told.get("conditions") or ():
        colour = _COLOURS.get(condition["status"], "white")
        if condition["type"] == "Stalled":
            colour = {"True": "red", "False": "green"}.get(condition["status"], colour)
        table.add_row(
            condition["type"], f"[{colour}]{condition['status']}[/]", condition["reason"], condition.get("message", "")
        )
    return table


def _revisions(told: Json) -> Tree:
    tree = Tree("revisions")
    roles = {told.get("stableRevision"): "stable", told.get("candidateRevision"): "candidate"}
    pods = told.get("placement") or ()
    outcomes = {h["revision"]: h for h in told.get("history") or ()}
    shown = [r for r in roles if r] + [r for r in outcomes if r not in roles]
    for revision in shown:
        what = roles.get(revision) or outcomes[revision]["outcome"]
        branch = tree.add(f"{revision} [dim]{what}[/]")
        for pod in (p for p in pods if p["revision"] == revision):
            pinned = "pinned" if pod.get("pinned") else "not pinned"
            branch.add(
                f"{pod['pod']} on {pod['node']}: CPUs {pod.get('cpuset', '?')}, NUMA {pod.get('numaNodes', '?')}, {pinned}"
            )
    return tree


def _gates(told: Json) -> Table:
    table = Table("gate", "value", "threshold", "noise floor", "passed", box=None, pad_edge=False)
    for gate in (told.get("rollout") or {}).get("gates") or ():
        mark = "[green]yes[/]" if gate["passed"] else "[red]no[/]"
        cells = [str(gate.get(key, "–")) for key in ("value", "threshold", "noiseFloor")]
        table.add_row(gate["name"], *cells, mark)
    return table
