"""Mistakes in a configuration file: place, value and what would be accepted; all are told at once, and nothing else is raised."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.api.files.configuration_file import build_configuration, read_configuration
from core.api.files.configuration_wire import ConfigurationFile
from core.api.files.mistakes import InvalidFile
from core.model.configuration import Configuration
from tests.api.configuring import (
    NEW,
    Json,
    as_text,
    build_file,
    configurations,
    list_mistakes,
    list_mistakes_of_blocks,
    odd_values,
    write_file,
)

# --- mistakes, one at a time ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ({"waitForPodReady": {}}, "waitForPodReady: unknown key; did you mean waitForPodsReady?"),
        ({"WaitForPodsReady": {}}, "WaitForPodsReady: unknown key; did you mean waitForPodsReady?"),
        ({"wait_for_pods_ready": {}}, "wait_for_pods_ready: unknown key; did you mean waitForPodsReady?"),
        ({"requeuingStrategy": {}}, "requeuingStrategy: unknown key; did you mean waitForPodsReady.requeuingStrategy?"),
        ({"baseDelay": "1s"}, "baseDelay: unknown key; did you mean topogate.secondPass.baseDelay?"),
        (
            {"topogate": {"q": 1}},
            "topogate.q: unknown key; "
            "nodeReplacement, nominateNodes, placementProfile, podGroups, reserveDaemonSets, secondPass are known here",
        ),
        (
            {"resources": {"transformations": [{"input": "cpu", "output": {}}]}},
            "resources.transformations[0].output: unknown key; did you mean outputs?",
        ),
        (
            {"waitForPodsReady": {"requeuingStrategy": {"timestamp": "Evicton"}}},
            'waitForPodsReady.requeuingStrategy.timestamp: "Evicton" is not accepted; use Eviction or Creation',
        ),
        (
            {"waitForPodsReady": {"timeout": 300}},
            'waitForPodsReady.timeout: 300 is not accepted; a duration such as "5m", "1h30m" or "300ms" is expected',
        ),
        (
            {"waitForPodsReady": {"timeout": "5 min"}},
            'waitForPodsReady.timeout: "5 min" is not accepted; a duration such as "5m", "1h30m" or "300ms" is expected',
        ),
        ({"waitForPodsReady": {"timeout": "0s"}}, 'waitForPodsReady.timeout: "0s" is not accepted; more than 0s is expected'),
        (
            {"waitForPodsReady": {"recoveryTimeout": "-1s"}},
            'waitForPodsReady.recoveryTimeout: "-1s" is not accepted; 0s or more is expected',
        ),
        ({"waitForPodsReady": {"enable": "yes"}}, 'waitForPodsReady.enable: "yes" is not accepted; true or false is expected'),
        (
            {"waitForPodsReady": {"blockAdmission": True, "blockAdmissionScope": "Queue"}},
            'waitForPodsReady.blockAdmissionScope: "Queue" is not accepted; use Cluster, Cohort or ClusterQueue',
        ),
        (
            {"waitForPodsReady": {"blockAdmissionScope": "Cohort"}},
            'waitForPodsReady.blockAdmissionScope: "Cohort" is not accepted; '
            "it needs blockAdmission: true beside it; set that or leave this out",
        ),
        (
            {"waitForPodsReady": {"requeuingStrategy": {"backoffLimitCount": -1}}},
            "waitForPodsReady.requeuingStrategy.backoffLimitCount: -1 is not accepted; 0 or more is expected",
        ),
        (
            {"waitForPodsReady": {"requeuingStrategy": {"backoffMaxSeconds": 2**31}}},
            "waitForPodsReady.requeuingStrategy.backoffMaxSeconds: 2147483648 is not accepted; 2147483647 or less is expected",
        ),
        (
            {"waitForPodsReady": {"requeuingStrategy": {"backoffBaseSeconds": 1.5}}},
            "waitForPodsReady.requeuingStrategy.backoffBaseSeconds: 1.5 is not accepted; a whole number is expected",
        ),
        *(
            (
                {"metrics": {"bindAddress": bad}},
                f"metrics.bindAddress: {shown} is not accepted; "
                'an address such as ":8080" or "127.0.0.1:8080" is expected, or "0" for none',
            )
            for bad, shown in (
                ("8080", '"8080"'),
                (8080, "8080"),
                (0, "0"),
                (":0", '":0"'),
                (":65536", '":65536"'),
                (":https", '":https"'),
                ("::1:8080", '"::1:8080"'),
                ("[x]:80", '"[x]:80"'),
                ("[::1:80", '"[::1:80"'),
                ("http://a:80", '"http://a:80"'),
            )
        ),
        ({"health": {"bindAddress": ":1"}}, "health.bindAddress: unknown key; did you mean healthProbeBindAddress?"),
        ({"webhook": {"port": 0}}, "webhook.port: 0 is not accepted; 1 or more is expected"),
        ({"waitForPodsReady": []}, "waitForPodsReady: a list is not accepted; an object is expected"),
        ({"featureGates": ["MultiKueue"]}, "featureGates: a list is not accepted; an object is expected"),
        (
            {"fairSharing": {"preemptionStrategies": "LessThanInitialShare"}},
            'fairSharing.preemptionStrategies: "LessThanInitialShare" is not accepted; a list is expected',
        ),
        (
            {"fairSharing": {"preemptionStrategies": ["LessThanFinalShare"]}},
            'fairSharing.preemptionStrategies[0]: "LessThanFinalShare" is not accepted; '
            "use LessThanOrEqualToFinalShare or LessThanInitialShare",
        ),
        (
            {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"] * 2}},
            "fairSharing.preemptionStrategies[1]: LessThanInitialShare is given twice; leave one out",
        ),
        *(
            ({"resources": {"deviceClassMappings": mappings}}, f"resources.deviceClassMappings{said}")
            for mappings, said in (
                ([{"name": "a"}], "[0].deviceClassNames: it is missing; it has to be given"),
                (
                    [{"name": "pods", "deviceClassNames": ["c"]}],
                    '[0].name: "pods" is not accepted; devices need a resource of their own, such as example.com/gpus',
                ),
                (
                    [{"name": "a", "deviceClassNames": ["c d"]}],
                    '[0].deviceClassNames[0]: "c d" is not accepted; the name of a DeviceClass such as gpu.example.com is expected',
                ),
                (
                    [{"name": "a", "deviceClassNames": ["c"]}, {"name": "b", "deviceClassNames": ["c"]}],
                    "[1].deviceClassNames[0]: c counts as a already; leave one out",
                ),
                ([{"name": "a", "deviceClassNames": ["c", "c"]}], "[0].deviceClassNames[1]: c counts as a already; leave one out"),
                (
                    [{"name": "a", "deviceClassNames": ["c"]}, {"name": "a", "deviceClassNames": ["d"]}],
                    "[1].name: a has a mapping already; put all its classes there",
                ),
            )
        ),
        (
            {"resources": {"transformations": [{"strategy": "Retain"}]}},
            "resources.transformations[0].input: it is missing; it has to be given",
        ),
        (
            {"resources": {"transformations": [{"input": "cpu"}, {"input": "cpu"}]}},
            "resources.transformations[1].input: cpu is transformed already; leave one out",
        ),
        (
            {"resources": {"transformations": [{"input": "cpu", "outputs": {"example.com/x": "5 Gi"}}]}},
            'resources.transformations[0].outputs[example.com/x]: "5 Gi" is not accepted; '
            'a quantity such as 4, "500m" or "5Gi" is expected',
        ),
        (
            {"resources": {"transformations": [{"input": "cpu", "outputs": {"memory": "16Ei"}}]}},
            'resources.transformations[0].outputs.memory: "16Ei" is not accepted; a quantity such as 4, "500m" or "5Gi" is expected',
        ),
        (
            {"resources": {"transformations": [{"input": "a b"}]}},
            'resources.transformations[0].input: "a b" is not accepted; the name of a resource such as nvidia.com/gpu is expected',
        ),
        (
            {"resources": {"excludeResourcePrefixes": [""]}},
            'resources.excludeResourcePrefixes[0]: "" is not accepted; '
            "the beginning of a resource's name such as example.com/ is expected",
        ),
        (
            {"integrations": {"frameworks": ["batch/jobs"]}},
            'integrations.frameworks[0]: "batch/jobs" is not accepted; did you mean batch/job?',
        ),
        (
            {"integrations": {"externalFrameworks": ["Foo"]}},
            'integrations.externalFrameworks[0]: "Foo" is not accepted; Kind.version.group such as Foo.v1.example.com is expected',
        ),
        ({"integrations": {"labelKeysToCopy": [None]}}, "integrations.labelKeysToCopy[0]: null is not accepted; text is expected"),
        (
            {"leaderElection": {"leaseDuration": "7s"}},
            "leaderElection.leaseDuration: 7s is too short: must exceed renewDeadline (7s)",
        ),
        (
            {"leaderElection": {"renewDeadline": "1m"}},
            "leaderElection.leaseDuration: 10s is too short: must exceed renewDeadline (60s)",
        ),
        (
            {"topogate": {"secondPass": {"baseDelay": "6m"}}},
            "topogate.secondPass.timeout: 300s is too short: must be at least baseDelay (360s)",
        ),
        (
            {"topogate": {"nodeReplacement": {"requeue": {"base": "11m"}}}},
            "topogate.nodeReplacement.requeue.limit: 600s is too short: must be at least base (660s)",
        ),
        (
            {"topogate": {"placementProfile": "kept"}},
            'topogate.placementProfile: "kept" is not accepted; use kep, compact, best-fit, least-free or balanced',
        ),
        ({"namespace": "Kueue"}, 'namespace: "Kueue" is not accepted; the name of a namespace is expected'),
        ({"namespace": "a\n"}, 'namespace: "a\\n" is not accepted; the name of a namespace is expected'),
        ({"clientConnection": {"qps": "many"}}, 'clientConnection.qps: "many" is not accepted; a number is expected'),
        (
            {"managedJobsNamespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            'managedJobsNamespaceSelector.matchExpressions[0].operator: "Is" is not accepted; use In, NotIn, Exists or DoesNotExist',
        ),
        ({1: 2}, "[1]: a key that is text is expected; put it into quotes"),
        (
            {"controller": {"groupKindConcurrency": {5: 5}}},
            "controller.groupKindConcurrency[5]: a key that is text is expected; put it into quotes",
        ),
    ],
)
def test_configuration_mistake_names_field_value_and_accepted_values(blocks: dict[Any, Any], said: str):
    assert list_mistakes(as_text({**build_file(), **blocks})) == [said]


def test_values_in_messages_are_short_and_in_one_line():
    (line,) = list_mistakes_of_blocks(namespace="x" * 5000)
    assert len(line) < 200
    (line,) = list_mistakes_of_blocks(**{"a\u2028b" * 100: 1})
    assert line.startswith("[a\\u2028b")
    (line,) = list_mistakes(as_text(build_file()) + "waitForPodsReady: {requeuingStrategy: {backoffMaxSeconds: 0x" + "f" * 9000 + "}}")
    assert "a number of 36000 bits is not accepted" in line


# --- the document -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("# nothing\n", "the file is empty"),
        ("a: [", "YAML syntax error: expected the node content, but found '<stream end>' in line 1, column 5"),
        ("a: 1\n b: 2", "YAML syntax error: mapping values are not allowed here in line 2, column 3"),
        ("a: 1\n---\nb: 1", "YAML syntax error: but found another document in line 2, column 1"),
        ("a: !!python/object:os.system x", "YAML syntax error: could not determine a constructor for the tag"),
        ("a: !!timestamp x", "YAML syntax error: AttributeError: "),
        ("a: !!bool x", "YAML syntax error: KeyError: 'x'"),
        ("? [a]\n: b", "YAML syntax error: found unhashable key"),
        (b"\xff\xfe\x00", "YAML syntax error: "),
        (b"a: \x80", "YAML syntax error: "),
        ("a: " + "9" * 5000, "YAML syntax error: ValueError: "),
        ("{" * 5000, "it is nested too deeply"),
        ("- 1", "a list is not accepted; an object is expected"),
        ("text", '"text" is not accepted; an object is expected'),
        ("#" * (1 << 20) + "\n", "the file is larger than 1 MiB; a configuration is expected"),
        ('{"\\ud800": 1}', "[\\ud800]: text without half characters is expected"),
        ('{"a": ["\\ud800"]}', "a[0]: text without half characters is expected"),
    ],
)
def test_text_that_is_no_configuration_document_is_refused(text: str | bytes, said: str):
    (line,) = list_mistakes(text)
    assert line.startswith(said)


def test_configuration_of_another_kind_or_version_is_refused_with_the_accepted_ones():
    assert list_mistakes("{}") == [
        "apiVersion: it is missing; use config.kueue.x-k8s.io/v1beta2 or config.kueue.x-k8s.io/v1beta1",
        "kind: it is missing; use Configuration",
    ]
    assert list_mistakes("apiVersion: v1\nkind: ConfigMap") == [
        'apiVersion: "v1" is not accepted; use config.kueue.x-k8s.io/v1beta2 or config.kueue.x-k8s.io/v1beta1',
        'kind: "ConfigMap" is not accepted; use Configuration',
    ]


def test_duplicate_keys_of_a_configuration_are_reported_with_other_mistakes():
    text = as_text(build_file()) + "namespace: a\nnamespace: b\nresources:\n  transformations:\n  - {input: cpu, input: pods, x: 1}\n"
    assert list_mistakes(text) == [
        "namespace: it is given twice, in lines 3 and 4; leave one out",
        "resources.transformations[0].input: it is given twice, in lines 7 and 7; leave one out",
        "resources.transformations[0].x: unknown key; input, multiplyBy, outputs, strategy are known here",
    ]


def test_a_document_that_holds_itself_is_judged_all_the_same():
    head = as_text(build_file())
    (line,) = list_mistakes(head + "topogate: {placementProfile: &a [*a]}")
    assert line == "topogate.placementProfile: a list is not accepted; use kep, compact, best-fit, least-free or balanced"
    assert list_mistakes(head + "topogate: &a {secondPass: *a}")


def test_aliases_that_multiply_cost_nothing():
    bomb = "\n".join(f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 9)}]" for level in range(1, 30))
    assert len(list_mistakes(as_text(build_file()) + "x0: &x0 [a]\n" + bomb)) == 30


# --- all at once, and nothing else ------------------------------------------------------------------------

WRONG = {
    ("waitForPodsReady", "timeout"): 5,
    ("waitForPodsReady", "enable"): "no",
    ("waitForPodsReady", "blockAdmissionScope"): "Cohort",
    ("waitForPodsReady", "requeuingStrategy", "timestamp"): "now",
    ("waitForPodsReady", "requeuingStrategy", "backoff"): 1,
    ("featureGates", "TASBalancedPlacement"): "on",
    ("featureGates", "TASProfileBestFitt"): None,
    ("fairSharing", "preemptionStrategies"): {},
    ("resources", "excludeResourcePrefixes"): [1],
    ("integrations", "frameworks"): ["jobs"],
    ("leaderElection", "leaderElect"): 1,
    ("leaderElection", "leaseDuration"): "1s",
    ("topogate", "secondPass", "timeout"): "1s",
    ("topogate", "nominateNodes"): "yes",
    ("topogate", "placementProfile"): 1,
    ("namespace",): "A",
    ("kin",): "Configuration",
    ("controller", "concurrency"): 5,
}


@given(st.sets(st.sampled_from(sorted(WRONG)), min_size=1))
def test_all_mistakes_of_a_configuration_are_reported_at_once(places: set[tuple[str, ...]]):
    file: Json = build_file()
    for place in places:
        inner = file
        for key in place[:-1]:
            inner = inner.setdefault(key, {})
        inner[place[-1]] = WRONG[place]
    if ("waitForPodsReady", "blockAdmissionScope") in places:
        file["waitForPodsReady"]["blockAdmission"] = False
    told = [line.split(": ")[0].split("[")[0] for line in list_mistakes(as_text(file))]
    assert sorted(told) == sorted(".".join(place) for place in places)


def read_or_refused(value: object) -> Configuration | InvalidFile:
    """Nothing else than these two may come of a file; a refusal says something, one mistake a line."""
    try:
        return build_configuration(ConfigurationFile.read(value)) if not isinstance(value, str | bytes) else read_configuration(value)
    except InvalidFile as error:
        refusal = error
    lines = str(refusal).split("\n")
    assert lines == [str(mistake) for mistake in refusal.mistakes]
    assert all(line and line.isprintable() for line in lines)
    return refusal


@given(odd_values)
def test_any_value_is_a_configuration_or_refused(value: Any):
    read_or_refused(value)
    if isinstance(value, dict):
        read_or_refused({**build_file(), **value})


@given(configurations(), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_file_with_something_odd_in_it_is_read_or_refused(values: Configuration, data: st.DataObject):
    file = write_file(values, NEW)
    inner: Any = file
    key = data.draw(st.sampled_from(sorted(inner)))
    while isinstance(inner[key], dict) and inner[key] and data.draw(st.booleans()):
        inner = inner[key]
        key = data.draw(st.sampled_from(sorted(inner)))
    inner[key] = data.draw(odd_values)
    read_or_refused(file)


@given(st.text() | st.binary() | odd_values.map(lambda value: yaml.safe_dump(value, allow_unicode=True)))
def test_any_text_is_a_configuration_or_refused(text: str | bytes):
    read_or_refused(text)
