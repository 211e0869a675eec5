"""The page of the streams, in a browser: health over time, names that are no markup, the token."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from served_network import Client, client_of, npy, pixels

from fenchel.serve.engine import Engine
from fenchel.serve.service import Service

TOKEN = "a-token-of-some-length"
NPY = {"Content-Type": "application/x-npy", "Authorization": f"Bearer {TOKEN}"}
FAULTS = (Path(__file__).parents[1] / "page_faults.js").read_text(encoding="utf-8")


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """The address of an application that a real server runs in a thread."""
    uvicorn = pytest.importorskip("uvicorn", reason="needs uvicorn: pip install 'fenchel[serve]'")
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def client(service: Service, engines: Callable[..., Engine]) -> Client:
    closed = replace(service, token=TOKEN)
    return client_of(closed, engines(closed))


@pytest.mark.parametrize("width", [1100, 390])
def test_the_page_shows_the_streams_and_their_health_over_time(
    client: Client, browser: Any, width: int
) -> None:
    for name in ("north", "south"):
        for seed in range(6):
            body = npy(pixels(30, seed=seed))
            assert client("POST", f"/v1/streams/{name}/predict", body, headers=NPY).status == 200
    complaints: list[str] = []
    with listening(client.app) as address:
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.on("pageerror", lambda error: complaints.append(str(error)))
        hosts: set[str] = set()
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        page.goto(address)
        page.fill("#secret", TOKEN)
        page.click("#token button")
        page.wait_for_selector("#streams tbody tr:nth-child(2)")
        rows = page.locator("#streams tbody tr")
        names = rows.locator("td button").all_text_contents()
        assert names == ["south", "north"]  # what was used last comes first
        assert "2 streams, 1 of 2 replicas answer" in page.text_content("#said")
        assert rows.first.locator(".verdict").text_content() == "healthy"
        assert rows.first.locator("td").nth(3).text_content() == "6"
        assert rows.first.locator("svg rect").count() == 6
        assert rows.first.locator("svg path.line").count() == 1
        page.click("text=north")
        page.wait_for_selector("#course:not([hidden])")
        assert page.text_content("#course h2") == "north"
        assert page.locator("#course .chart").count() == 4
        assert "batch 6" in page.text_content("#course")
        # What happens while the page is open appears by itself, and the focus stays.
        client("POST", "/v1/streams/west/predict", npy(pixels()), headers=NPY)
        page.wait_for_selector("text=west")
        assert page.evaluate("document.activeElement.textContent") == "north"
        assert not page.locator("#token").is_visible()
        assert page.evaluate(FAULTS) == []
        page.close()
        assert hosts == {address.split("/")[2]}
    assert complaints == []


def test_the_page_says_so_when_there_is_nothing_and_asks_for_the_token_again(
    client: Client, browser: Any
) -> None:
    with listening(client.app) as address:
        page = browser.new_page()
        page.goto(address)
        page.fill("#secret", "wrong")
        page.click("#token button")
        page.wait_for_timeout(300)
        assert page.locator("#token").is_visible()
        page.fill("#secret", TOKEN)
        page.click("#token button")
        page.wait_for_selector("#empty:not([hidden])")
        page.goto(f"{address}/docs")
        assert "/v1/streams/{name}/predict" in page.text_content("main")
        assert page.evaluate(FAULTS) == []
        page.close()


def test_the_page_holds_no_data(client: Client) -> None:
    client("POST", "/v1/streams/secret-place/predict", npy(pixels()), headers=NPY)
    page = client("GET", "/").body.decode()
    assert "secret-place" not in page
    assert "connect-src 'self'" in page
    assert json.dumps(TOKEN) not in page
