#!/bin/sh
# Has the API server store every object of kueue.x-k8s.io as v1beta2, and forget that any was stored as v1beta1.
#
# Each object is patched with nothing; the API server writes those that it has stored in another version. An object that is
# gone meanwhile is passed over. topogate's webhook, or Kueue's, must run: it converts what is read. Running it again changes
# nothing. It ends with a status other than 0 at the first object that could not be read or written: run it again.
# `--dry-run` writes nothing. Other arguments are given to kubectl, such as --context NAME.
set -eu

mode=
if [ "${1:-}" = --dry-run ]; then
    mode=--dry-run=server
    shift
fi

for plural in topologies resourceflavors admissionchecks provisioningrequestconfigs workloadpriorityclasses cohorts clusterqueues \
    localqueues workloads; do
    kind="$plural.v1beta2.kueue.x-k8s.io"
    crd="$plural.kueue.x-k8s.io"
    if [ -z "$(kubectl "$@" get crd "$crd" --ignore-not-found -o name)" ]; then
        continue
    fi
    # One list, and no pipe: a list that breaks off, or cannot be converted, ends the script.
    list=$(kubectl "$@" get "$kind" --all-namespaces --chunk-size=0 -o 'jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name} {end}')
    objects=0
    for each in $list; do
        namespace=${each%%/*}
        if ! answer=$(kubectl "$@" patch "$kind" "${each#*/}" ${namespace:+-n "$namespace"} --type=merge $mode -p '{}' 2>&1); then
            case $answer in
            *NotFound*) continue ;;
            esac
            echo "$answer" >&2
            exit 1
        fi
        objects=$((objects + 1))
    done
    kubectl "$@" patch crd "$crd" --subresource=status --type=merge $mode -p '{"status":{"storedVersions":["v1beta2"]}}' >/dev/null
    echo "$crd: $objects objects are stored as v1beta2"
done
