"""An S3 server on this machine for tests: moto over HTTP, during a `with` block."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock
from uuid import uuid4

import s3fs
from fsspec.asyn import get_loop
from moto import settings
from moto.server import ThreadedMotoServer


@dataclass(slots=True)
class S3Server:
    """A running S3 server: its URL, and options to open a store on the server."""

    server: ThreadedMotoServer

    @property
    def endpoint(self) -> str:
        """The server's URL."""
        host, port = self.server.get_host_and_port()
        return f"http://{host}:{port}"

    @property
    def storage_options(self) -> dict[str, Any]:
        """Options for open_object_store."""
        return {
            "key": "test",
            "secret": "test",
            "endpoint_url": self.endpoint,
            "client_kwargs": {"region_name": "us-east-1"},
        }

    def new_bucket(self) -> str:
        """Create a bucket and return its URL."""
        bucket = f"bucket-{uuid4().hex[:12]}"
        s3fs.S3FileSystem(**self.storage_options).call_s3("create_bucket", Bucket=bucket)
        return f"s3://{bucket}"

    @contextmanager
    def away(self) -> Iterator[None]:
        """Refuse connections during a `with` block. Afterwards all objects are there again."""
        host, port = self.server.get_host_and_port()
        self.server.stop()
        try:
            yield
        finally:
            self.server = ThreadedMotoServer(ip_address=host, port=port, verbose=False)
            self.server.start()

    @contextmanager
    def counting(self, request_ms: float = 0) -> Iterator[Counter[str]]:
        """Count requests during a `with` block: listings as "list", others by their HTTP method. A
        request takes `request_ms` milliseconds more."""
        requests = Counter[str]()
        wsgi_server: Any = self.server._server
        application = wsgi_server.app

        def counted(environment: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            is_listing = "list-type" in environment.get("QUERY_STRING", "")
            requests["list" if is_listing else environment["REQUEST_METHOD"].lower()] += 1
            time.sleep(request_ms / 1000)
            answer: Iterable[bytes] = application(environment, start_response)
            return answer

        wsgi_server.app = counted
        try:
            yield requests
        finally:
            wsgi_server.app = application

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Reject every access key during a `with` block."""
        with mock.patch.object(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0.0):
            yield


@contextmanager
def moto_s3() -> Iterator[S3Server]:
    """Start a server on a free port. Afterwards stop the server and close every client."""
    resolvers = ThreadPoolExecutor(4)
    get_loop().set_default_executor(resolvers)
    s3 = S3Server(ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False))
    s3.server.start()
    try:
        yield s3
    finally:
        close_clients()
        s3.server.stop()
        # fsspec's event loop outlives the tests, but the threads of its host look-ups need not.
        # Later tests may look up hosts in new threads, which have the same names as the loop's own
        # threads.
        get_loop().set_default_executor(ThreadPoolExecutor(4, "asyncio"))
        resolvers.shutdown()


def close_clients() -> None:
    """Close the connections of all S3 clients of this process, and forget the clients."""
    for filesystem in list(s3fs.S3FileSystem._cache.values()):
        if filesystem._s3 is not None:
            s3fs.S3FileSystem.close_session(filesystem.loop, filesystem._s3)
    s3fs.S3FileSystem.clear_instance_cache()
