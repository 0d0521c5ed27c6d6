"""What the process of a Spark driver has of its pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from e2e.operators.spark_driver import write_files

CONTENT = {"conf-map": {"spark.properties": "spark.app.name=a\nspark.x.podTemplateFile=/opt/spark/pod-template/template.yml\n"}}
CONTENT["template-map"] = {"executor": "spec: {}"}


class _Maps:
    def get(self, path: str) -> dict[str, Any]:
        name = path.removeprefix("/api/v1/namespaces/team/configmaps/")
        return {"data": CONTENT[name]}


def test_files_of_a_driver_are_where_its_properties_say(tmp_path: Path):
    pod = {
        "metadata": {"namespace": "team"},
        "spec": {
            "volumes": [
                {"name": "conf", "configMap": {"name": "conf-map"}},
                {"name": "template", "configMap": {"name": "template-map", "items": [{"key": "executor", "path": "template.yml"}]}},
                {"name": "local", "emptyDir": {}},
            ],
            "containers": [
                {
                    "args": ["driver", "--properties-file", "/opt/spark/conf/spark.properties", "--class", "x"],
                    "volumeMounts": [
                        {"name": "local", "mountPath": "/var/data"},
                        {"name": "conf", "mountPath": "/opt/spark/conf"},
                        {"name": "template", "mountPath": "/opt/spark/pod-template"},
                    ],
                }
            ],
        },
    }
    properties = write_files(cast("Any", _Maps()), pod, tmp_path)
    read = dict(line.split("=", 1) for line in properties.read_text().splitlines())
    assert read["spark.app.name"] == "a"
    assert Path(read["spark.x.podTemplateFile"]).read_text() == "spec: {}"
