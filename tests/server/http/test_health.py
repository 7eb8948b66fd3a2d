"""Alive, ready, counted."""

import asyncio
from pathlib import Path

from server.serve import listen, url_of
from tests.server.http.site import Site, open_site


async def test_a_started_server_is_alive_and_ready_without_a_credential(site: Site) -> None:
    async with site.http.get("/healthz") as response:
        assert response.status == 200
        assert (await response.json())["status"] == "ok"
    async with site.http.get("/readyz") as response:
        body = await response.json()
        assert (response.status, body["status"]) == (200, "ready")
        assert body["checks"]["store"] == {"ok": True}
        assert body["checks"]["model"]["ok"] is True


async def test_a_model_that_cannot_be_reached_makes_it_unready_with_the_reason(
    sqlite_url: str, tmp_path: Path
) -> None:
    with listen("127.0.0.1", 0) as taken:
        nobody = url_of(taken)
    model = {"MODEL_BASE_URL": nobody, "MODEL": "m", "MODEL_API_KEY": "sk-secret-123456"}
    async with open_site(sqlite_url, tmp_path, **model) as site:
        async with site.http.get("/readyz") as response:
            body = await response.json()
            assert (response.status, body["status"]) == (503, "not_ready")
            assert body["checks"]["store"] == {"ok": True}
            assert body["checks"]["model"]["reason"]
            assert "sk-secret" not in await response.text()
        async with site.http.get("/healthz") as response:
            assert response.status == 200


async def test_metrics_are_in_prometheus_form(site: Site) -> None:
    async with site.http.get("/metrics") as response:
        assert response.headers["content-type"].startswith("text/plain; version=")
        assert "# TYPE headway_runs_total counter" in await response.text()


async def test_a_hundred_probes_at_once_are_all_answered(site: Site) -> None:
    async def probe() -> int:
        async with site.http.get("/readyz") as response:
            return response.status

    assert set(await asyncio.gather(*(probe() for _ in range(100)))) == {200}
