#!/bin/sh
# Has the API server store every object of kueue.x-k8s.io as v1beta2, and forget that any was stored as v1beta1.
#
# Each object is read as v1beta2 and written back as it is; the API server writes only those that it has stored in another
# version. topogate's webhook, or Kueue's, must run: it converts what is read. Running it again changes nothing. It ends with
# a status other than 0 at the first kind that could not be migrated, since an object has changed meanwhile: run it again.
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
    objects=$(kubectl "$@" get "$kind" --all-namespaces -o name | wc -l)
    if [ "$objects" -gt 0 ]; then
        kubectl "$@" get "$kind" --all-namespaces -o json | kubectl "$@" replace $mode -f - >/dev/null
    fi
    kubectl "$@" patch crd "$crd" --subresource=status --type=merge $mode -p '{"status":{"storedVersions":["v1beta2"]}}' >/dev/null
    echo "$crd: $objects objects are stored as v1beta2"
done
