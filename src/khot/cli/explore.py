"""The command `khot explore`."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from typing import Annotated

import typer

from khot.cli._failures import FAILED, REFUSED

__all__ = ["app", "explore", "main"]

app = typer.Typer(add_completion=False)

_EXTRA = 'khot: this command needs an extra: pip install "khot[explore]"'


def main(arguments: Sequence[str]) -> None:
    """The command."""
    app(args=list(arguments), prog_name="khot explore")


@app.command()
def explore(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Open an interactive page, served locally: drag scores, k and temperature; operators side by side."""
    try:
        import uvicorn

        from khot.explore.server import application, listen

        served = application()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "plotly"):
            raise
        typer.echo(_EXTRA, err=True)
        raise typer.Exit(FAILED) from None
    try:
        found = listen(port)
    except OSError as error:
        typer.echo(f"khot: --port {port} cannot be used: {error.strerror}", err=True)
        raise typer.Exit(REFUSED) from None
    url = f"http://127.0.0.1:{found.getsockname()[1]}/"
    typer.echo(f"The explorer is at {url}; Ctrl-C ends it.")
    if browser:
        webbrowser.open(url)
    uvicorn.Server(uvicorn.Config(served, log_level="warning", access_log=False)).run(sockets=[found])
