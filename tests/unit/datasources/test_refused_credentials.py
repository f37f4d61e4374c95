"""If S3 refuses the credentials, the last line of a short traceback says why."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from checkpoint_store.errors import StoreAccessError
from datasources.cowstate_source import CowStateDataSource

pytestmark = pytest.mark.process
REASON = "The AWS Access Key Id you provided does not exist in our records."


class Refusing(BaseHTTPRequestHandler):
    """A server that refuses as S3 does; the answer to HEAD has no body."""

    def refuse(self) -> None:
        code = f"<Code>InvalidAccessKeyId</Code><Message>{REASON}</Message>"
        body = f"<?xml version='1.0'?><Error>{code}</Error>".encode()
        self.send_response(403)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = refuse  # noqa: N815

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def options() -> Iterator[dict[str, str]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    client = {
        "endpoint_url": f"http://127.0.0.1:{server.server_port}",
        "client_kwargs": {"region_name": "us-east-1"},
        "key": "AKIAEXAMPLE",
        "secret": "wJalrXUtnFEMI",
    }
    yield {
        "path": "s3://bucket/table",
        "keys": "id",
        "storageOptions": json.dumps(client),
        "storeRetrySeconds": "1",
    }
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_table_says_why_its_store_refuses(options: dict[str, str]) -> None:
    schema = StructType([StructField("id", LongType())])
    without_keys = {name: text for name, text in options.items() if name != "keys"}
    for call in (
        lambda: CowStateDataSource(options).writer(schema, overwrite=False),
        lambda: CowStateDataSource(options).streamWriter(schema, overwrite=False),
        lambda: CowStateDataSource(without_keys).schema(),
        lambda: CowStateDataSource(without_keys).reader(schema),
    ):
        with pytest.raises(StoreAccessError) as caught:
            call()
        shown = traceback.format_exception(caught.value)
        assert len("".join(shown).splitlines()) < 15
        assert f"s3://bucket/table: PermissionError: {REASON} Make it usable for" in shown[-1]
