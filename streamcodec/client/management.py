"""Management: what both clients ask a server besides inference: states, documents, and Triton's extensions.

Each method is one request without tensors. Its answer is a JSON document, returned as it came, or only a status.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, TypedDict, Unpack

from streamcodec.client.caller import Caller, Waits
from streamcodec.client.calls import json_of, model_path
from streamcodec.client.common import Common
from streamcodec.client.connections.timeouts import Timeout, Times
from streamcodec.client.documents import DocumentT
from streamcodec.client.errors import ServerError
from streamcodec.client.exchange import ClientExchange
from streamcodec.client.extensions import QueryParams, load_parameters
from streamcodec.client.fields import Headers
from streamcodec.client.repeating.retries import ONCE, Retries
from streamcodec.engine.arguments import check_kind

_REPOSITORY: Final = "/v2/repository"
_SETTINGS: Final = "settings are values by name, as {'log_verbose_level': 1}"


class CallOptions(TypedDict, total=False):
    """Arguments that each of these methods takes by name, and `infer`, too."""

    headers: Headers | None
    """Fields for this request, in addition to the client's; those with the same names win."""
    query_params: QueryParams | None
    """Parameters of the URL, for servers and proxies that read some; a list is several values of one name."""
    timeout: float | Timeout | None
    """For this call; None for the client's own, `math.inf` for none."""
    total_timeout: float | None
    """Seconds for this call; None for the client's own limit, `math.inf` for none."""


class Management:
    """The methods of a client, but for inference. All raise as `infer` does."""

    def __init__(self, common: Common, waits: Waits) -> None:
        """Make the calls of one client."""
        self._common = common
        self._waits = waits
        self._caller = Caller(common, waits)

    async def server_metadata(self, **options: Unpack[CallOptions]) -> dict[str, Any]:
        """Return the server's name, version and extensions; raises as `infer` does."""
        return await self._document(dict, "/v2", **options)

    async def model_metadata(
        self, model: str, version: str | None = None, **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        """Return a model's inputs, outputs and versions; raises as `infer` does."""
        return await self._document(dict, model_path(model, version), **options)

    async def model_config(
        self, model: str, version: str | None = None, **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        """Return a model's configuration; raises as `infer` does.

        Triton's *model configuration* extension.
        """
        return await self._document(dict, f"{model_path(model, version)}/config", **options)

    async def statistics(
        self, model: str | None = None, version: str | None = None, **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        """Return what a server has counted, as Triton's *statistics* extension has it; raises as `infer` does.

        Args:
            model: its name; None for all models.
            version: of the model; None for all versions.
            options: as for all calls.

        Returns:
            `model_stats`: an entry for each version of each model, with counts, and times in nanoseconds.
        """
        path = "/v2/models" if model is None else model_path(model, version)
        return await self._document(dict, f"{path}/stats", **options)

    async def repository_index(self, *, ready: bool = False, **options: Unpack[CallOptions]) -> list[dict[str, Any]]:
        """Return the models that a server knows, loaded or not; raises as `infer` does.

        Triton's *model repository* extension; so are `load` and `unload`.

        Args:
            ready: whether to leave out models that are not ready.
            options: as for all calls.

        Returns:
            `name`, `version`, `state` and `reason` of each.
        """
        return await self._document(list, "/v2/repository/index", {"ready": ready}, **options)

    async def load(
        self,
        model: str,
        *,
        config: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        """Have the server load a model, or load it again; raises as `infer` does.

        Args:
            model: its name.
            config: its configuration, as `model_config` returns it; None for that of the repository.
            files: content by path in the model's folder, as `1/model.onnx`. They replace the folder, and need a
                `config`. The request has them in base64.
            options: as for all calls. To load a large model takes long: `timeout` has to be longer.
        """
        if config is not None:
            check_kind(config, Mapping, "config is a mapping, as {'max_batch_size': 8}; json.loads makes one of text")
        parameters = load_parameters(
            None if config is None else json_of(config).decode(),
            {f"file:{path}": content for path, content in (files or {}).items()},
        )
        await self._ask(f"{model_path(model, within=_REPOSITORY)}/load", {"parameters": parameters}, **options)

    async def unload(self, model: str, *, dependents: bool = False, **options: Unpack[CallOptions]) -> None:
        """Have the server unload a model; raises as `infer` does.

        Args:
            model: its name.
            dependents: whether to unload the models that were loaded for it, as those of an ensemble.
            options: as for all calls.
        """
        parameters = {"unload_dependents": dependents}
        await self._ask(f"{model_path(model, within=_REPOSITORY)}/unload", {"parameters": parameters}, **options)

    async def trace_settings(
        self, model: str | None = None, settings: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        """Return the settings of a server's traces, and change some before; raises as `infer` does.

        Triton's *trace* extension.

        Args:
            model: its name; None for the settings of all models that have none of their own.
            settings: new values by name, as `{"trace_rate": "100"}`; a value of None clears a setting. None changes
                nothing.
            options: as for all calls.

        Returns:
            All settings, as they are now.
        """
        path = "/v2" if model is None else model_path(model)
        return await self._settings(f"{path}/trace/setting", settings, **options)

    async def log_settings(
        self, settings: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        """Return the settings of a server's log, and change some before; raises as `infer` does.

        Triton's *logging* extension.

        Args:
            settings: new values by name, as `{"log_verbose_level": 1}`; None changes nothing.
            options: as for all calls.

        Returns:
            All settings, as they are now.
        """
        return await self._settings("/v2/logging", settings, **options)

    async def is_server_live(self, **options: Unpack[CallOptions]) -> bool:
        """Tell whether the server answers; raises as `infer` does if there is none."""
        return await self._is_success("/v2/health/live", **options)

    async def is_server_ready(self, **options: Unpack[CallOptions]) -> bool:
        """Tell whether the server is ready for requests; raises as `infer` does if there is none."""
        return await self._is_success("/v2/health/ready", **options)

    async def is_model_ready(self, model: str, version: str | None = None, **options: Unpack[CallOptions]) -> bool:
        """Tell whether a model is ready for requests; raises as `infer` does if there is no server."""
        return await self._is_success(f"{model_path(model, version)}/ready", **options)

    async def _settings(
        self, path: str, settings: Mapping[str, Any] | None, **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        if settings is not None:
            check_kind(settings, Mapping, _SETTINGS)
        return await self._document(dict, path, settings, **options)

    async def _is_success(self, path: str, **options: Unpack[CallOptions]) -> bool:
        try:
            await self._ask(path, rule=ONCE, **options)
        except ServerError:
            return False
        return True

    async def _document(
        self, kind: type[DocumentT], path: str, body: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> DocumentT:
        """Return the document of an answer, which is an object or a list."""
        return await self._read(kind, *await self._ask(path, body, **options))

    async def _read(self, kind: type[DocumentT], exchange: ClientExchange, times: Times) -> DocumentT:
        if exchange.is_quick or not self._waits.shares_thread:
            return exchange.document(kind)
        return await self._waits.apart(partial(exchange.document, kind, in_thread=True), times.limit)

    async def _ask(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        rule: Retries | None = None,
        headers: Headers | None = None,
        query_params: QueryParams | None = None,
        timeout: float | Timeout | None = None,
        total_timeout: float | None = None,
    ) -> tuple[ClientExchange, Times]:
        """Send a request, with a JSON object if it has a body; return it with its answer and its times.

        It is made again as the client does it; for a state, which is to be told as it is, there is another rule.
        """
        times = self._common.times(timeout, total_timeout)
        exchange = self._common.calls.document(path, body, headers=headers, query_params=query_params)
        return await self._caller.call(exchange, times, rule or self._common.retries), times
