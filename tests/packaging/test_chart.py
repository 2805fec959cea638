"""The Helm chart: its values and flags; where helm is installed, what it renders, and with kubernetes-validate its schemas."""

import json
import re
import shutil
import subprocess

import jsonschema
import pytest
import yaml
from facts import ROOT, flags
from test_kubernetes import check_deployment, manifests

CHART = ROOT / "packaging/helm/tern"
MINE = (
    "keys.secret=mine,model.volume.persistentVolumeClaim.claimName=models,flags.max-model-len=2000000",
    "autoscaling.enabled=true,drainSeconds=60,loadingSeconds=600,port=9000",
    "runtimeClassName=nvidia,resources.limits.nvidia\\.com/gpu=1,env[0].name=FD_MODEL_SOURCE,env[0].value=MODELSCOPE",
)


def values():
    return yaml.safe_load((CHART / "values.yaml").read_text())


def schema():
    return json.loads((CHART / "values.schema.json").read_text())


def template(*settings):
    if shutil.which("helm") is None:
        pytest.skip("helm is not installed: the chart is not rendered")
    command = ["helm", "template", "tern", str(CHART), *(word for pair in settings for word in ("--set", pair))]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def rendered(*settings):
    done = template(*settings)
    assert done.returncode == 0, done.stderr
    return {doc["kind"]: doc for doc in yaml.safe_load_all(done.stdout) if doc}


def text_of_templates():
    return "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))


def test_the_metric_is_that_of_the_manifests():
    metric = manifests()["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert metric == values()["autoscaling"]["metric"]


def test_every_value_is_used_and_every_used_value_exists():
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", text_of_templates()))
    for path in used:
        place = values()
        for name in path.split("."):
            assert name in place, path
            place = place[name]
    for name, value in values().items():
        names = [f"{name}.{inner}" for inner in value] if name not in used and isinstance(value, dict) else [name]
        assert set(names) <= used, names


def test_a_value_that_the_chart_does_not_know_is_refused():
    check = jsonschema.Draft7Validator(schema())
    assert not list(check.iter_errors(values()))
    faults = (
        ("replica", 2), ("drainSeconds", "long"), ("port", 80), ("image", {**values()["image"], "tags": "1"}),
        ("flags", {"port": 9000}), ("flags", {"--max-model-len": 1}), ("autoscaling", {"enabled": True}),
    )  # fmt: skip
    for name, value in faults:
        assert list(check.iter_errors({**values(), name: value})), name


def test_flags_of_the_templates_exist_and_cannot_be_given_twice():
    text = (CHART / "templates/deployment.yaml").read_text()
    named = set(re.findall(r"--([a-z-]+)=(?!%)", text)) | set(re.findall(r'"--([a-z-]+)=%s" \.', text))
    commented = re.findall(r"^#   ([a-z-]+): ", (CHART / "values.yaml").read_text(), re.MULTILINE)
    assert {"model", "port", "timeout-graceful-shutdown", "api-key-file"} <= named <= set(flags())
    assert "max-model-len" in commented and set(commented) <= set(flags())
    refused = set(schema()["properties"]["flags"]["propertyNames"]["not"]["enum"])
    assert named <= refused <= set(flags())


def test_every_block_of_the_templates_ends():
    for path in (CHART / "templates").iterdir():
        text = path.read_text()
        opened = len(re.findall(r"\{\{-? *(?:if|with|range|define) ", text))
        assert opened == len(re.findall(r"\{\{-? *end *-?\}\}", text)), path.name


def test_versions_agree():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.*)"', (ROOT / "python/pyproject.toml").read_text(), re.MULTILINE)[1]
    assert chart["appVersion"] == version and chart["name"] == CHART.name


def test_the_chart_renders():
    found = rendered()
    words, mounts, _ = check_deployment(found["Deployment"], drain=300, loading=3600)
    assert "api-key-file" not in words and set(mounts) == {"tmp"} and "HorizontalPodAutoscaler" not in found
    assert found["Deployment"]["spec"]["replicas"] == 1
    notes = found["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert notes == {"prometheus.io/path": "/metrics", "prometheus.io/port": "8000", "prometheus.io/scrape": "true"}


def test_its_values_arrive():
    found = rendered(*MINE)
    words, mounts, volumes = check_deployment(found["Deployment"], drain=60, loading=600)
    assert words["api-key-file"] == "/etc/tern-keys/keys" and words["max-model-len"] == "2000000"
    assert volumes["keys"]["secret"] == {"secretName": "mine", "defaultMode": 0o440}
    assert mounts["models"]["mountPath"] == "/models"
    assert "replicas" not in found["Deployment"]["spec"]
    scaler = found["HorizontalPodAutoscaler"]["spec"]
    assert scaler["metrics"][0]["pods"]["target"]["averageValue"] == "4"
    assert scaler["scaleTargetRef"]["name"] == found["Deployment"]["metadata"]["name"]
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert pod["runtimeClassName"] == "nvidia" and pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1}
    assert pod["containers"][0]["env"] == [{"name": "FD_MODEL_SOURCE", "value": "MODELSCOPE"}]
    hidden = rendered("keys.secret=mine,keys.metricsOpen=false,podAnnotations.mine=yes")
    assert hidden["Deployment"]["spec"]["template"]["metadata"]["annotations"] == {"mine": "yes"}


def test_helm_refuses_what_the_schema_refuses():
    done = template("replica=2")
    assert done.returncode != 0 and "replica" in done.stderr


def test_schemas_of_kubernetes():
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed: no schemas")
    for settings in ((), MINE):
        for document in rendered(*settings).values():
            for version in ("1.25", "1.34"):
                validate.validate(document, version, strict=True)
