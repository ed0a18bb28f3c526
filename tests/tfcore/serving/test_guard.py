"""Which requests a page of another site caused."""

import pytest
from starlette.datastructures import Headers

from tfcore.serving.guard import foreign_host, host_of, of_another_site


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"),
        ("Flights.Example:8501", "flights.example"),
        ("[::1]:80", "::1"),
        ("10.0.0.7:8501", "10.0.0.7"),
        ("a/b", None),
        ("me@here", None),
        ("here:x", None),
        ("", None),
    ],
)
def test_the_name_of_a_host_header_stands_without_its_port(header, host):
    assert host_of(header) == host


def test_an_address_cannot_be_rebound_and_a_name_must_be_known():
    def foreign(host):
        return foreign_host(Headers({"host": host}), ("localhost", "flights.example"))

    assert not foreign("localhost:8501") and not foreign("FLIGHTS.example")
    assert foreign("evil.example") and foreign("flights.example.evil.example") and foreign("")
    assert not foreign("10.0.0.7:8501") and not foreign("[fd00::1]:8501") and foreign("10.0.0.7.evil.example")
    assert foreign_host(Headers({}), ("localhost",)) and foreign_host(
        Headers(raw=[(b"host", b"localhost"), (b"host", b"localhost")]), ("localhost",)
    )


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        ({"origin": "http://localhost:8501"}, False),
        ({"origin": "https://localhost:8501"}, False),
        ({"origin": "ftp://localhost:8501"}, True),
        ({"origin": "http://localhost:3000"}, True),
        ({"origin": "http://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-origin", "origin": "http://localhost:8501"}, False),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"}, True),
    ],
)
def test_a_page_of_another_site_cannot_post(headers, refused):
    assert of_another_site("POST", Headers({"host": "localhost:8501"} | headers)) is refused


def test_a_link_is_followed_and_a_proxys_page_may_ask_where_it_is_named():
    link = Headers({"host": "localhost:8501", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
    assert not of_another_site("GET", link)
    proxied = Headers({"host": "10.0.0.7:8501", "origin": "https://flights.example"})
    assert of_another_site("POST", proxied)
    assert not of_another_site("POST", proxied, names=("flights.example",))
