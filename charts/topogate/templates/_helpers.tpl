{{/* Names are cut so that what is appended (-reconciler, -webhook-ca, ...) still makes a DNS label of at most 63 characters. */}}
{{- define "topogate.name" -}}
{{- $name := regexReplaceAll "[^a-z0-9-]" (default .Chart.Name .Values.nameOverride | lower) "-" | trunc 40 -}}
{{- regexReplaceAll "^[^a-z]*" $name "" | trimSuffix "-" | default .Chart.Name -}}
{{- end -}}

{{/* A Service's name begins with a letter and has no dot, which a release's name may. */}}
{{- define "topogate.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := .Values.fullnameOverride | default (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) -}}
{{- $full = regexReplaceAll "[^a-z0-9-]" (lower $full) "-" -}}
{{- if not (regexMatch "^[a-z]" $full) }}{{ $full = printf "t-%s" $full }}{{ end -}}
{{- if gt (len $full) 40 }}{{ $full = printf "%s-%s" ($full | trunc 31 | trimSuffix "-") (sha256sum $full | trunc 8) }}{{ end -}}
{{- $full | trimSuffix "-" -}}
{{- end -}}

{{- define "topogate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "topogate.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name | trunc 63 | trimSuffix "-" | trimSuffix "." }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* metadata of an object: root, component, and optionally name, namespaced, labels, annotations */}}
{{- define "topogate.metadata" -}}
{{- $labels := dict "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $labels "app.kubernetes.io/version" (.root.Chart.AppVersion | toString) -}}
{{- $own := include "topogate.selectorLabels" . | fromYaml -}}
{{- $labels = mustMergeOverwrite $labels (deepCopy .root.Values.commonLabels) (deepCopy (default dict .labels)) $own -}}
{{- $metadata := dict "name" (default (printf "%s-%s" (include "topogate.fullname" .root) .component) .name) "labels" $labels -}}
{{- if ne .namespaced false }}{{ $_ := set $metadata "namespace" .root.Release.Namespace }}{{ end -}}
{{- with mustMergeOverwrite (deepCopy .root.Values.commonAnnotations) (deepCopy (default dict .annotations)) }}
{{- $_ := set $metadata "annotations" . }}
{{- end -}}
{{- toYaml $metadata -}}
{{- end -}}

{{/* An object of the cluster that came from a file: object, root, component, annotations. */}}
{{- define "topogate.generated" -}}
{{- $more := dict "root" .root "component" .component "namespaced" false "name" .object.metadata.name -}}
{{- $_ := set $more "labels" .object.metadata.labels -}}
{{- $_ := set $more "annotations" (mustMergeOverwrite (dict) (default dict .object.metadata.annotations) (default dict .annotations)) -}}
{{- $_ := set .object "metadata" (include "topogate.metadata" $more | fromYaml) -}}
{{- toYaml .object -}}
{{- end -}}

{{/* Conditions of topogate and of the values, a list: own, more. API servers refuse two of one name. */}}
{{- define "topogate.matchConditions" -}}
{{- $all := concat (default list .own) (default list .more) -}}
{{- $names := list -}}
{{- range $all -}}
{{- if has .name $names }}{{ fail (printf "webhooks.matchConditions: the name %q is used twice or by topogate itself; name it differently" .name) }}{{ end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{- define "topogate.serviceAccount" -}}
{{- $account := (index .root.Values .component).serviceAccount -}}
{{- $own := $account.create | ternary (printf "%s-%s" (include "topogate.fullname" .root) .component) "default" -}}
{{- default $own $account.name -}}
{{- end -}}

{{- define "topogate.priorityClass" -}}
{{- default (include "topogate.fullname" .) .Values.priorityClass.name -}}
{{- end -}}

{{/* Lays one dictionary over another, in place: base, over. Sprig's merges leave out what is false, 0 or empty. */}}
{{- define "topogate.lay" -}}
{{- range $key, $value := .over -}}
{{- if and (kindIs "map" $value) (kindIs "map" (index $.base $key)) -}}
{{- include "topogate.lay" (dict "base" (index $.base $key) "over" $value) -}}
{{- else -}}
{{- $_ := set $.base $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Values of one process as YAML: its own block, and over it what controllerManager has. */}}
{{- define "topogate.process" -}}
{{- $values := deepCopy (index .root.Values .component) -}}
{{- $shared := pick .root.Values "image" "imagePullSecrets" "podSecurityContext" "containerSecurityContext" -}}
{{- $peer := .root.Values.controllerManager -}}
{{- range $over := list (deepCopy $shared) (deepCopy (omit $peer "manager" "featureGates")) (deepCopy (default dict $peer.manager)) -}}
{{- include "topogate.lay" (dict "base" $values "over" $over) -}}
{{- end -}}
{{- toYaml $values -}}
{{- end -}}

{{- define "topogate.image" -}}
{{- $path := ternary (printf "%s/%s" .image.registry .image.repository) .image.repository (ne .image.registry "") -}}
{{- if .image.digest }}{{ printf "%s@%s" $path .image.digest }}{{ else }}{{ printf "%s:%s" $path (default .root.Chart.AppVersion .image.tag) }}{{ end -}}
{{- end -}}

{{- define "topogate.certMode" -}}
{{- ternary "cert-manager" .Values.certs.mode .Values.enableCertManager -}}
{{- end -}}

{{- define "topogate.certSecret" -}}
{{- $mode := include "topogate.certMode" . -}}
{{- /* Two names, so that neither rotation takes the other's Secret for its own when certs.mode changes. */ -}}
{{- if eq $mode "provided" }}{{ .Values.certs.existingSecret }}{{ else }}{{ include "topogate.fullname" . }}-webhook-cert{{ ternary "s" "" (eq $mode "own") }}{{ end -}}
{{- end -}}

{{/* Feature gates of the values by name, as YAML. */}}
{{- define "topogate.featureGates" -}}
{{- $gates := deepCopy .Values.reconciler.featureGates -}}
{{- range default list .Values.controllerManager.featureGates }}{{ $_ := set $gates .name .enabled }}{{ end -}}
{{- toYaml $gates -}}
{{- end -}}

{{/* Flags of both processes that say what is sent to a collector, as YAML; values of an older chart that are kept over an upgrade lack some. */}}
{{- define "topogate.telemetryArgs" -}}
{{- $args := list -}}
{{- range $flag, $value := dict "otlp-endpoint" "otlpEndpoint" "otlp-protocol" "otlpProtocol" "trace-ratio" "traceRatio" "trace-slow" "traceSlowSeconds" -}}
{{- $said := get $.Values.telemetry $value -}}
{{- if ne (toString $said) "" }}{{ $args = append $args (printf "--%s=%v" $flag $said) }}{{ end -}}
{{- end -}}
{{- $args | toYaml -}}
{{- end -}}

{{/* Names that the webhook is called by, the one that API servers use first, as YAML; and that of the visibility API, where it is served. */}}
{{- define "topogate.certNames" -}}
{{- $name := printf "%s-webhook.%s.svc" (include "topogate.fullname" .) .Release.Namespace -}}
{{- $names := list $name (printf "%s.%s" $name .Values.kubernetesClusterDomain) -}}
{{- if .Values.visibility.enabled }}{{ $names = append $names (printf "%s-visibility.%s.svc" (include "topogate.fullname" .) .Release.Namespace) }}{{ end -}}
{{- $names | toYaml -}}
{{- end -}}

{{/* certs.mode own: whose caBundle the webhook keeps right, KIND/NAME each, as YAML. */}}
{{- define "topogate.certConfigurations" -}}
{{- $found := list -}}
{{- if .Values.webhooks.enabled -}}
{{- range $phase := list "mutating" "validating" -}}
{{- $configuration := $.Files.Get (printf "files/webhooks/%s.yaml" $phase) | fromYaml -}}
{{- $found = append $found (printf "%s/%s" $phase $configuration.metadata.name) -}}
{{- end -}}
{{- end -}}
{{- if .Values.crds.install -}}
{{- range $path, $_ := .Files.Glob "files/crds/*.yaml" -}}
{{- $crd := $.Files.Get $path | fromYaml -}}
{{- if eq $crd.spec.conversion.strategy "Webhook" }}{{ $found = append $found (printf "crd/%s" $crd.metadata.name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if .Values.visibility.enabled }}{{ $found = append $found "apiservice/v1beta2.visibility.kueue.x-k8s.io" }}{{ end -}}
{{- concat $found .Values.certs.configurations | uniq | toYaml -}}
{{- end -}}

{{- define "topogate.caBundle" -}}
{{- with .Values.certs.caBundle }}{{ contains "-----BEGIN" . | ternary (b64enc .) . | nospace }}{{ end -}}
{{- end -}}

{{/* Annotations by which cert-manager puts its CA into what they stand on. */}}
{{- define "topogate.caInjection" -}}
{{- if eq (include "topogate.certMode" .) "cert-manager" -}}
cert-manager.io/inject-ca-from: {{ printf "%s/%s-webhook" .Release.Namespace (include "topogate.fullname" .) }}
{{- end -}}
{{- end -}}

{{/* clientConfig of one path: where the webhook is, and the CA where we know it. Where somebody else writes it, not even an empty one: an
upgrade would take it away. */}}
{{- define "topogate.clientConfig" -}}
{{- $service := dict "namespace" .root.Release.Namespace "name" (printf "%s-webhook" (include "topogate.fullname" .root)) -}}
{{- $_ := set $service "port" (index .root.Values.webhookService.ports 0).port -}}
{{- $_ := set $service "path" .path -}}
{{- $config := dict "service" $service -}}
{{- if eq (include "topogate.certMode" .root) "provided" }}{{ $_ := set $config "caBundle" (include "topogate.caBundle" .root) }}{{ end -}}
{{- toYaml $config -}}
{{- end -}}
