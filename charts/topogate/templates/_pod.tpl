{{/* A Deployment's spec: root, component, process (its values), args (a list), and optionally ports, probes, volumes, mounts, checksum */}}
{{- define "topogate.deploymentSpec" -}}
{{- $p := .process -}}
{{- $labels := mustMergeOverwrite (deepCopy .root.Values.commonLabels) (deepCopy $p.podLabels) (include "topogate.selectorLabels" . | fromYaml) -}}
{{- $annotations := mustMergeOverwrite (deepCopy .root.Values.commonAnnotations) (deepCopy $p.podAnnotations) (default dict .checksum) -}}
replicas: {{ $p.replicas }}
revisionHistoryLimit: 3
{{- /* The default's rollingUpdate would stay beside another type, and the API server refuses both. */}}
strategy: {{- (eq $p.strategy.type "Recreate") | ternary (omit $p.strategy "rollingUpdate") $p.strategy | toYaml | nindent 2 }}
selector:
  matchLabels: {{- include "topogate.selectorLabels" . | nindent 4 }}
template:
  metadata:
    labels: {{- toYaml $labels | nindent 6 }}
    {{- with $annotations }}
    annotations: {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    serviceAccountName: {{ include "topogate.serviceAccount" . }}
    automountServiceAccountToken: true
    enableServiceLinks: false
    terminationGracePeriodSeconds: {{ $p.terminationGracePeriodSeconds }}
    {{- if .root.Values.priorityClass.create }}
    priorityClassName: {{ include "topogate.priorityClass" .root }}
    {{- else if $p.priorityClassName }}
    priorityClassName: {{ $p.priorityClassName }}
    {{- end }}
    {{- if $p.hostNetwork }}
    hostNetwork: true
    {{- end }}
    {{- with $p.dnsPolicy | default (ternary "ClusterFirstWithHostNet" "" $p.hostNetwork) }}
    dnsPolicy: {{ . }}
    {{- end }}
    {{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" }}
    {{- with index $p $field }}
    {{ $field }}: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- end }}
    topologySpreadConstraints:
    {{- with $p.topologySpreadConstraints }}
      {{- toYaml . | nindent 6 }}
    {{- else }}
      {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
      - topologyKey: {{ $key }}
        maxSkew: 1
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels: {{- include "topogate.selectorLabels" $ | nindent 12 }}
      {{- end }}
    {{- end }}
    securityContext: {{- toYaml $p.podSecurityContext | nindent 6 }}
    containers:
      - name: {{ .component }}
        image: {{ include "topogate.image" (dict "root" .root "image" $p.image) | quote }}
        imagePullPolicy: {{ $p.image.pullPolicy }}
        command: [python, -m, {{ .component }}]
        args:
          {{- toYaml (concat .args $p.extraArgs) | nindent 10 }}
        {{- with $p.extraEnv }}
        env: {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- with .container }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        resources: {{- toYaml $p.resources | nindent 10 }}
        securityContext: {{- toYaml $p.containerSecurityContext | nindent 10 }}
        {{- with concat (default list .mounts) $p.extraVolumeMounts }}
        volumeMounts: {{- toYaml . | nindent 10 }}
        {{- end }}
    {{- with concat (default list .volumes) $p.extraVolumes }}
    volumes: {{- toYaml . | nindent 6 }}
    {{- end }}
{{- end -}}

{{/* ServiceAccount and PodDisruptionBudget of one process: root, component, process */}}
{{- define "topogate.beside" -}}
{{- $account := (index .root.Values .component).serviceAccount -}}
{{- if $account.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "topogate.metadata" (dict "root" .root "component" .component "name" (include "topogate.serviceAccount" .) "annotations" $account.annotations) | nindent 2 }}
# The pods ask for their tokens themselves; what else runs by this account gets none.
automountServiceAccountToken: false
{{- end }}
{{- /* With one replica `minAvailable: 1` would keep its node from ever being drained. */}}
{{- if and .process.podDisruptionBudget.enabled (or (ne (int .process.replicas) 1) (hasKey .process.podDisruptionBudget "maxUnavailable")) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "topogate.metadata" (dict "root" .root "component" .component) | nindent 2 }}
spec:
  {{- if hasKey .process.podDisruptionBudget "maxUnavailable" }}
  maxUnavailable: {{ .process.podDisruptionBudget.maxUnavailable }}
  {{- else }}
  minAvailable: {{ .process.podDisruptionBudget.minAvailable }}
  {{- end }}
  # A pod that is not ready, since its node is gone for instance, must not keep a node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "topogate.selectorLabels" . | nindent 6 }}
{{- end }}
{{- end -}}
