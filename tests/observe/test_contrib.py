"""The alert rules and the Grafana dashboard in contrib load, and use only series and labels that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from detent.cli.main import VERBS
from detent.observe.metrics.series import BY_NAME

ROOT = Path(__file__).parents[2]
RULES = ROOT / "contrib/prometheus/detent.rules.yml"
BOARD = ROOT / "contrib/grafana/detent.json"
PANELS = ("bargauge", "stat", "table", "timeseries")
needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool")


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(BOARD.read_text())["panels"]
    return found


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def unknown_in(query: str) -> set[str]:
    """The series and labels of a query that do not exist."""
    names = {*re.findall(r"detent_\w+", query)}
    series = {name: re.sub(r"_(bucket|count|sum)$", "", name) for name in names}
    unknown = {name for name, one in series.items() if one not in BY_NAME}
    labels = {"le", "instance"} | {
        label for one in series.values() if one in BY_NAME for label in BY_NAME[one].labels
    }
    used = {*re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', query)}
    for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query):
        used |= {label.strip() for label in group.split(",")}
    return unknown | (used - labels)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_uses_what_exists_and_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert unknown_in(rule["expr"]) == set()
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "action"}
    assert {*re.findall(r"`detent (\w+)", rule["annotations"]["action"])} <= VERBS.keys()


def test_every_query_of_the_dashboard_uses_what_exists() -> None:
    assert {query: unknown for query in queries() if (unknown := unknown_in(query))} == {}


def test_rules_and_dashboard_use_every_series() -> None:
    text = RULES.read_text() + BOARD.read_text()
    assert [name for name in BY_NAME if name not in text] == ["detent_jobs_omitted"]


def test_an_unknown_series_or_label_is_found() -> None:
    assert unknown_in('sum by (job) (rate(detent_fire_total{node="a"}[5m]))') == {
        "detent_fire_total",
        "node",
        "job",
    }


def test_the_panels_are_valid_and_do_not_overlap() -> None:
    found = panels()
    assert len({panel["id"] for panel in found}) == len(found)
    for panel in found:
        assert panel["type"] in PANELS and panel["title"] and panel["targets"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert [target["refId"] for target in panel["targets"]] == [*"ABC"][: len(panel["targets"])]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    for one, other in combinations([panel["gridPos"] for panel in found], 2):
        assert (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )


def promtool(*words: str | Path) -> None:
    ended = subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@needs_promtool
def test_prometheus_accepts_the_rules_and_fires_them_as_the_scenes_say() -> None:
    promtool("check", "rules", RULES)
    promtool("test", "rules", Path(__file__).with_name("detent_rules_test.yml"))


@needs_promtool
def test_prometheus_can_parse_every_query_of_the_dashboard(tmp_path: Path) -> None:
    plain = [query.replace("$__rate_interval", "5m").replace("$app", ".*") for query in queries()]
    made = [{"record": f"q:{number}", "expr": query} for number, query in enumerate(plain)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "q", "rules": made}]}))
    promtool("check", "rules", tmp_path / "rules.yml")
