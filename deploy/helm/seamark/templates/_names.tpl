{{/* Names and labels. */}}

{{- define "seamark.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "seamark.fullname" -}}
{{- $name := include "seamark.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* The full name with a suffix, at most 63 characters: (list . "-metrics") */}}
{{- define "seamark.suffixed" -}}
{{- $suffix := index . 1 -}}
{{ include "seamark.fullname" (index . 0) | trunc (int (sub 63 (len $suffix))) | trimSuffix "-" }}{{ $suffix }}
{{- end }}

{{- define "seamark.deployment" -}}
{{- if .Values.deployment.name -}}{{ .Values.deployment.name }}
{{- else if and (eq .Values.mode "canary") (not .Values.fullnameOverride) -}}seamark
{{- else -}}{{ include "seamark.fullname" . }}
{{- end -}}
{{- end }}

{{/* Whether there is a Deployment, and what belongs to it. Mode node has a DaemonSet. */}}
{{- define "seamark.deploys" -}}
{{- if and .Values.deployment.enabled (ne .Values.mode "node") -}}true{{- end -}}
{{- end }}

{{- define "seamark.service" -}}
{{- if .Values.service.name -}}{{ .Values.service.name }}
{{- else if eq .Values.mode "canary" -}}{{ include "seamark.suffixed" (list . "-canary") }}
{{- else -}}{{ include "seamark.fullname" . }}
{{- end -}}
{{- end }}

{{- define "seamark.account" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "seamark.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- define "seamark.role" -}}
{{ .Values.clusterRole.nameOverride | default (include "seamark.fullname" .) }}
{{- end }}

{{/* The value of k8s-app, empty if the pods do not have the label. */}}
{{- define "seamark.k8sApp" -}}
{{- if and .Values.isClusterService (ne .Values.mode "canary") -}}
{{ .Values.k8sAppLabelOverride | default (ternary "node-local-dns" .Chart.Name (eq .Values.mode "node")) | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* For values of the chart coredns/coredns with templates. */}}
{{- define "coredns.fullname" -}}{{ include "seamark.fullname" . }}{{- end }}
{{- define "coredns.name" -}}{{ include "seamark.name" . }}{{- end }}
{{- define "coredns.k8sapplabel" -}}{{ include "seamark.k8sApp" . }}{{- end }}

{{- define "seamark.selector" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/name: {{ include "seamark.name" . | quote }}
{{- end }}

{{/* Labels of the pods: the selector's, k8s-app, and the custom ones. */}}
{{- define "seamark.podLabels" -}}
{{- $labels := include "seamark.podSelector" . | fromYaml -}}
{{- with include "seamark.k8sApp" . }}{{ $_ := set $labels "k8s-app" . }}{{ end -}}
{{ toYaml (merge $labels .Values.customLabels) }}
{{- end }}

{{- define "seamark.podSelector" -}}
{{ if .Values.deployment.selector }}{{ toYaml .Values.deployment.selector }}{{ else }}{{ include "seamark.selector" . }}{{ end }}
{{- end }}

{{/* Labels of all objects. */}}
{{- define "seamark.labels" -}}
{{- $labels := include "seamark.selector" . | fromYaml -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $labels "app.kubernetes.io/version" (.Chart.AppVersion | replace "+" "_") -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") | trunc 63) -}}
{{ toYaml (merge $labels .Values.customLabels) }}
{{- end }}

{{/* The metadata of an object: (dict "root" . "name" NAME "labels" MAP "annotations" MAP "namespace" NAMESPACE).
     A namespace "-" is for objects of the cluster. */}}
{{- define "seamark.metadata" -}}
{{- $root := .root -}}
name: {{ .name | quote }}
{{- if ne (.namespace | default "") "-" }}
namespace: {{ .namespace | default $root.Release.Namespace | quote }}
{{- end }}
labels:
  {{- toYaml (merge (dict) (.labels | default dict) (include "seamark.labels" $root | fromYaml)) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) $root.Values.customAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The flag of the directive admin, unless extraArgs have one. */}}
{{- define "seamark.adminArg" -}}
{{- if and .Values.admin.enabled (not (regexMatch "(^| )--?admin( |=|$)" (join " " .Values.extraArgs))) -}}
-admin=localhost:{{ ternary .Values.node.ports.admin .Values.admin.port (eq .Values.mode "node") }}
{{- end -}}
{{- end }}
