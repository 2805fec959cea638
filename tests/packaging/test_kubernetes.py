"""The manifests: probes, times and flags that fit the server; where kubernetes-validate is installed, Kubernetes' schemas."""

import re

import pytest
import yaml
from facts import ROOT, flags

MANIFESTS = ROOT / "packaging/kubernetes/tern.yaml"


def manifests():
    return {doc["kind"]: doc for doc in yaml.safe_load_all(MANIFESTS.read_text())}


def check_deployment(deployment, drain, loading):
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    words = dict(word.removeprefix("--").split("=", 1) for word in container["args"][1:])
    assert container["args"][0] == "serve" and set(words) <= set(flags())
    assert int(words["timeout-graceful-shutdown"]) == drain
    # A draining server is not killed, and gets no traffic: it is left out before its port closes.
    assert pod["terminationGracePeriodSeconds"] >= drain + int(container["lifecycle"]["preStop"]["exec"]["command"][1]) + 10
    ready = container["readinessProbe"]
    assert ready["exec"]["command"][:2] == ["tern", "health"] and ready["failureThreshold"] == 1
    assert ready["exec"]["command"][-1] == f"http://127.0.0.1:{words['port']}"
    # A loading server is not killed: liveness is asked for after the start only, and that may take long.
    start = container["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] == loading
    for probe in (start, container["livenessProbe"]):
        assert probe["httpGet"] == {"path": "/health", "port": "http"}
    assert container["ports"] == [{"name": "http", "containerPort": int(words["port"])}]
    # Not root, nothing may be written but /tmp.
    assert pod["securityContext"]["runAsNonRoot"] is True and container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {m["name"]: m for m in container["volumeMounts"]}
    assert all(m.get("readOnly") for name, m in mounts.items() if name != "tmp")
    assert set(mounts) == {v["name"] for v in pod["volumes"]}
    assert deployment["spec"]["selector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    return words, mounts, {v["name"]: v for v in pod["volumes"]}


def test_manifests():
    found = manifests()
    words, mounts, volumes = check_deployment(found["Deployment"], drain=300, loading=3600)
    secret = found["Secret"]
    assert volumes["keys"]["secret"]["secretName"] == secret["metadata"]["name"]
    assert words["api-key-file"].removeprefix(mounts["keys"]["mountPath"] + "/") in secret["stringData"]
    claim = found["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["models"]["persistentVolumeClaim"]["claimName"] == claim
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]


def test_the_metric_of_the_autoscaler_is_one_of_the_server():
    metric = manifests()["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert metric.replace("_", ":", 1) in (ROOT / "docs/grafana/alerts.yaml").read_text()
    assert metric in (ROOT / "docs/install.md").read_text()


def test_the_image_is_of_this_version():
    version = re.search(r'^version = "(.*)"', (ROOT / "python/pyproject.toml").read_text(), re.MULTILINE)[1]
    assert manifests()["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"] == f"tern:{version}"


def test_schemas_of_kubernetes():
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed: no schemas")
    for document in manifests().values():
        for version in ("1.25", "1.30"):
            validate.validate(document, version, strict=True)
