"""`numaserve models export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from numaserve_api.config import Output, Pooling, Scheme, Task
from numaserve_models.cli.common import console, guarded, progress

_FILE = {"exists": True, "dir_okay": False}


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(export)


def export(
    source: Annotated[
        str, typer.Argument(help="Model directory, owner/name@revision on a hub, ONNX file or OpenVINO IR (.xml).")
    ],
    out: Annotated[Path, typer.Option(help="Directory to create.")],
    task: Annotated[Task | None, typer.Option(help="What the model answers, where its files do not say.")] = None,
    output: Annotated[Output | None, typer.Option(help="Of an embedding: one vector, one a token, or sparse.")] = None,
    pooling: Annotated[
        Pooling | None, typer.Option(help="How its authors pool tokens, where its files do not say.")
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="Give vectors length one.")
    ] = None,
    head: Annotated[str | None, typer.Option(help="Output of a graph that has several.")] = None,
    adapter: Annotated[
        Path | None, typer.Option(help="LoRA adapter to merge in.", exists=True, file_okay=False)
    ] = None,
    labels: Annotated[str | None, typer.Option(help="Labels of a graph in order, with commas between them.")] = None,
    activation: Annotated[str | None, typer.Option(help="Of a graph's logits: softmax, sigmoid or none.")] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json, where it is not in the source.", **_FILE)
    ] = None,
    scheme: Annotated[
        Scheme, typer.Option(help="Weight format; `models quantize` has more to say about it.")
    ] = Scheme.NONE,
    max_tokens: Annotated[
        int | None, typer.Option(min=8, help="Longest text; above what was trained is recorded as such.")
    ] = None,
    positions: Annotated[int | None, typer.Option(min=8, help="Positions of a graph (512 if not given).")] = None,
    buckets: Annotated[str | None, typer.Option(help="Warm-up lengths, e.g. 64,256,1024.")] = None,
    switch: Annotated[
        str, typer.Option(help="Length above which sliding layers run block by block: auto, a number, or off.")
    ] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="Threads written into config_deploy.yaml.")] = 1,
    space: Annotated[str | None, typer.Option(help="Name of the embedding space, e.g. minilm@1.")] = None,
    deploy_source: Annotated[
        str, typer.Option(help="Source written into config_deploy.yaml.")
    ] = "pvc://models/artifact",
    samples: Annotated[Path | None, typer.Option(help="samples.jsonl of `models samples`.", **_FILE)] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python that comes with the model.")
    ] = False,
) -> None:
    """Export an encoder into a directory that numaserve can serve, once it agrees with its source."""

    def work() -> str:
        from numaserve_models.export import ExportRequest
        from numaserve_models.export import export as run
        from numaserve_models.texts import read_samples

        if trust_remote_code:
            _say_what_runs(source)
        request = ExportRequest(
            source, out, tokenizer=tokenizer, task=task, output=output, pooling=pooling, normalize=normalize, head=head,
            adapter=adapter, labels=tuple(labels.split(",")) if labels else (), activation=_activation(activation), scheme=scheme, max_tokens=max_tokens,
            positions=positions, buckets=_lengths(buckets), switch=_switch(switch), threads=threads, space=space,
            deploy_source=deploy_source, samples=tuple(read_samples(samples)) if samples else (),
            trust_remote_code=trust_remote_code,
        )  # fmt: skip
        with progress("exporting") as step:
            return run(request, step)

    digest = guarded(work)
    _tell(out)
    typer.echo(digest)


def _activation(word: str | None) -> str | None:
    if word not in (None, "softmax", "sigmoid", "none"):
        raise typer.BadParameter("softmax, sigmoid or none", param_hint="--activation")
    return word


def _switch(word: str) -> int | None:
    if word in ("auto", "off"):
        return None if word == "auto" else 0
    if not word.isdigit() or int(word) < 1:
        raise typer.BadParameter("auto, off, or a length in tokens", param_hint="--switch")
    return int(word)


def _lengths(words: str | None) -> tuple[int, ...] | None:
    try:
        found = tuple(int(word) for word in words.split(",")) if words else None
    except ValueError as error:
        raise typer.BadParameter("lengths with commas between them, e.g. 64,256", param_hint="--buckets") from error
    if found and (any(n < 1 for n in found) or list(found) != sorted(set(found))):
        raise typer.BadParameter("ascending lengths in tokens, e.g. 64,256", param_hint="--buckets")
    return found


def _say_what_runs(source: str) -> None:
    names = sorted(path.name for path in Path(source).glob("*.py")) if Path(source).is_dir() else []
    what = ", ".join(names) or "the Python files of its repository"
    console.print(f"[yellow]runs code of the model[/] with your rights: {what}", soft_wrap=True)


def _tell(out: Path) -> None:
    from numaserve_models.artifact import open_artifact

    facts = open_artifact(out).manifest
    model, told = facts.model, facts.provenance
    answer: Any = f"{len(model.labels)} labels" if model.labels else f"{model.dimensions[0]} components"
    kinds = list(dict.fromkeys(model.layers))
    both = f", block-local above {model.switch_tokens} tokens" if model.switch_tokens else ""
    console.print(f"[green]✓[/] {out}: {model.task.value}, {answer}, up to {model.max_tokens} tokens", soft_wrap=True)
    console.print(f"  layers: {', '.join(f'{model.layers.count(k)} x {k}' for k in kinds)}{both}", soft_wrap=True)
    for note in told.get("notes", []):
        console.print(f"  [yellow]note:[/] {note}", soft_wrap=True)
