"""`streamling --preview-server`: serves previews until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamling.cli.failure import render
from streamling.cli.options import Common, settings_of

if TYPE_CHECKING:
    from streamling.web.preview import PreviewServer

log = logging.getLogger(__name__)


def serve(port: int, common: Common) -> int:
    """Serve until SIGINT or SIGTERM."""
    from streamling.engine.preparation import check
    from streamling.engine.preview import preview_settings
    from streamling.errors import SETTING_INVALID, UserError
    from streamling.spec.settings.environment_only import variable_of
    from streamling.web.preview import PreviewServer, Tools

    loaded = settings_of(common)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    limits = loaded.settings.runtime
    if not (limits.admin_api_is_local or limits.admin_api_token):  # pipelines may run code
        message = f"{variable_of('admin_api_host')} is '{limits.admin_api_host}': other machines could run pipelines"
        raise UserError(SETTING_INVALID, message, hint=f"set {variable_of('admin_api_token')}")
    settings = preview_settings(loaded.settings)
    command = [sys.executable, "-m", "streamling.cli.main", "preview"]
    command += ["--config", common.config] if common.config else []
    tools = Tools(lambda text: check(text, settings, probe=True), render, command)
    family = socket.AF_INET6 if ":" in limits.admin_api_host else socket.AF_INET
    try:
        listener = socket.create_server((limits.admin_api_host, port), family=family)
    except OSError as error:
        message = f"the preview server cannot listen on {limits.admin_api_host}:{port}: {error.strerror}"
        hint = "choose another port with --preview-server-port"
        raise UserError(SETTING_INVALID, message, hint=hint, cause=error) from error
    with listener:
        host = f"[{limits.admin_api_host}]" if ":" in limits.admin_api_host else limits.admin_api_host
        log.info("the preview server listens on http://%s:%d", host, listener.getsockname()[1])
        asyncio.run(_serve(PreviewServer(settings, tools), listener))
    return 0


async def _serve(server: PreviewServer, listener: socket.socket) -> None:
    import uvicorn

    class _WithoutSignals(uvicorn.Server):
        """uvicorn would raise the signals again after it has ended, and the exit code would not be 0."""

        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            yield

    config = uvicorn.Config(
        server.app(),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    web = _WithoutSignals(config)

    def stop() -> None:
        server.terminate()  # so that its stream ends by itself
        web.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        await web.serve([listener])
    finally:
        await server.close()
