"""What handler transforms and webhook sinks may say about their endpoint."""

from __future__ import annotations

import pytest

from streamling.spec.pipeline.endpoint import Endpoint
from support.node_samples import node, problem, problems

HANDLER = "type: handler\nfrom: s\nprimary_key: id\n"


def endpoint(fields: str) -> Endpoint:
    options = node("transform", HANDLER + fields).options
    assert isinstance(options, Endpoint)
    return options


def refused(fields: str) -> tuple[str, int, str]:
    return problem("transform", HANDLER + fields)


def test_an_endpoint_gets_lists_of_plain_rows_unless_told_otherwise() -> None:
    options = endpoint("url: http://localhost:8080/rows?x=1")
    assert (options.headers, options.secret_name) == ({}, None)
    assert (options.one_row_per_request, options.payload_version) == (False, 0)


@pytest.mark.parametrize(
    "url",
    ["ftp://host/x", "example.com/x", "https://", "http://[::1", "http://host:99999/", "'http://a b'", "''", "HTTP//x"],
)
def test_an_address_must_be_a_complete_url(url: str) -> None:
    assert refused(f"url: {url}")[:2] == ("INVALID_VALUE", 6)


def test_an_address_with_credentials_is_not_repeated() -> None:
    assert "pa55" not in refused("url: https://me:pa55@host/a b")[2]


@pytest.mark.parametrize("name", ["A B", "a:", "é", '""'])
def test_a_header_needs_a_name_that_http_allows(name: str) -> None:
    code, line, message = refused(
        f"url: http://h\nheaders:\n  Good: x\n  {name if name[0] == chr(34) else repr(name)}: x"
    )
    assert (code, line) == ("INVALID_VALUE", 9) and "name" in message


@pytest.mark.parametrize("value", ['"s3cr3t\\r\\nX: y"', '"s3cr3t\\0"', "s3cr3té"])
def test_a_header_needs_a_value_that_http_allows_and_it_is_never_printed(value: str) -> None:
    code, line, message = refused(f"url: http://h\nheaders: {{Token: {value}}}")
    assert (code, line) == ("INVALID_VALUE", 7)
    assert "'headers.Token'" in message and "s3cr3t" not in message


def test_a_header_stands_once_whatever_its_case() -> None:
    code, line, message = refused("url: http://h\nheaders:\n  Accept: a\n  accept: b")
    assert (code, line) == ("INVALID_VALUE", 9) and "'Accept'" in message


def test_a_header_of_another_yaml_type_is_refused_without_showing_it() -> None:
    code, _, message = refused("url: http://h\nheaders: {Token: 12345}")
    assert code == "WRONG_TYPE" and "12345" not in message


def test_headers_do_not_show_in_what_is_printed_of_a_node() -> None:
    options = endpoint("url: http://h\nheaders: {Token: s3cr3t}")
    assert "s3cr3t" not in repr(options) + str(options.model_dump())
    assert options.headers["Token"].reveal() == "s3cr3t"


@pytest.mark.parametrize(
    ("version", "code"), [("2", "INVALID_VALUE"), ("'1'", "WRONG_TYPE"), ("true", "WRONG_TYPE"), ("1.0", "WRONG_TYPE")]
)
def test_there_are_two_versions_of_the_payload(version: str, code: str) -> None:
    assert endpoint("url: http://h\npayload_version: 1").payload_version == 1
    found = refused(f"url: http://h\npayload_version: {version}")
    assert found[:2] == (code, 7) and "0" in found[2] and "1" in found[2]


def test_a_handler_needs_an_address_an_input_and_a_key() -> None:
    found = problems("transform", "type: handler")
    assert [p.code for p in found] == ["MISSING_FIELD"] * 3
    assert {p.message.rsplit("'", 2)[1] for p in found} == {"from", "url", "primary_key"}


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "content-Encoding"])
def test_headers_that_follow_from_the_body_cannot_be_set(name: str) -> None:
    code, line, message = refused(f"url: http://h\nheaders: {{{name}: x}}")
    assert (code, line) == ("INVALID_VALUE", 7) and name in message


@pytest.mark.parametrize(
    "field",
    ["max_requests_per_second: 0", "max_requests_per_second: .inf", "sign_with: ''", "compression: zstd"],
)
def test_limits_signatures_and_compression_have_bounds(field: str) -> None:
    assert refused(f"url: http://h\n{field}")[:2] == ("INVALID_VALUE", 7)
    options = endpoint("url: http://h\nmax_requests_per_second: 0.5\nsign_with: key\ncompression: gzip")
    assert (options.max_requests_per_second, options.sign_with, options.compression) == (0.5, "key", "gzip")
