{{/* Fails with an explanation if values contradict each other or cannot work. */}}
{{- define "seamark.checks" -}}
{{- include "seamark.checkRejected" . -}}
{{- include "seamark.checkImage" . -}}
{{- include "seamark.checkMode" . -}}
{{- include "seamark.checkNode" . -}}
{{- include "seamark.checkServers" . -}}
{{- range $key := list "k8s-app" -}}
{{- if hasKey $.Values.customLabels $key -}}
{{- fail (printf "customLabels.%s: kubeadm takes every Deployment with this label for a DNS add-on; set k8sAppLabelOverride, which labels pods and Services" $key) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.hpa.enabled .Values.autoscaler.enabled -}}
{{- fail "hpa.enabled and autoscaler.enabled: two autoscalers would set the number of pods in turn; enable one" -}}
{{- end -}}
{{- if and .Values.hpa.enabled (gt (int .Values.hpa.minReplicas) (int .Values.hpa.maxReplicas)) -}}
{{- fail (printf "hpa.maxReplicas: %d is less than hpa.minReplicas, which is %d" (int .Values.hpa.maxReplicas) (int .Values.hpa.minReplicas)) -}}
{{- end -}}
{{- if and .Values.podDisruptionBudget.enabled (hasKey .Values.podDisruptionBudget "minAvailable") (hasKey .Values.podDisruptionBudget "maxUnavailable") -}}
{{- fail "podDisruptionBudget: minAvailable and maxUnavailable exclude each other; set one" -}}
{{- end -}}
{{- end }}

{{- define "seamark.checkRejected" -}}
{{- range $key, $text := .Files.Get "coredns-values.yaml" | fromYaml -}}
{{- if hasPrefix "rejected: " $text -}}
{{- $value := $.Values -}}
{{- range splitList "." $key -}}
{{- $value = ternary (get ($value | default dict) .) nil (kindIs "map" ($value | default dict)) -}}
{{- end -}}
{{- if $value -}}{{- fail (printf "%s: %s" $key (trimPrefix "rejected: " $text)) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "seamark.checkImage" -}}
{{- $image := .Values.image.repository -}}
{{- if not $image -}}
{{- fail "image.repository: set it to the image in your registry, such as registry.example/seamark: there is no published image; docs/how-to/image.md describes how to build and push it" -}}
{{- end -}}
{{- if regexMatch "(^|/)coredns(/|$)" $image -}}
{{- fail (printf "image.repository: %s is an image of CoreDNS; set it to the image of Seamark in your registry" $image) -}}
{{- end -}}
{{- if not (regexMatch "^([^/]+[.:][^/]*|localhost)/" $image) -}}
{{- fail (printf "image.repository: %s has no registry, so it would be pulled from a stranger's account; begin with the host of your registry, such as registry.example/seamark" $image) -}}
{{- end -}}
{{- end }}

{{- define "seamark.checkMode" -}}
{{- $sources := list -}}
{{- range $key := list "servers" "corefile" "existingConfigMap" -}}
{{- if index $.Values $key -}}{{- $sources = append $sources $key -}}{{- end -}}
{{- end -}}
{{- if gt (len $sources) 1 -}}
{{- fail (printf "%s: each is a Corefile; set one" (join " and " $sources)) -}}
{{- end -}}
{{- if and .Values.extraConfig (not .Values.servers) -}}
{{- fail "extraConfig: needs servers; a Corefile in corefile or in a ConfigMap has its own import lines" -}}
{{- end -}}
{{- if eq .Values.mode "kube-dns" -}}
{{- range $key := list "servers" "corefile" "existingConfigMap" "zoneFiles" -}}
{{- if index $.Values $key -}}
{{- fail (printf "%s: mode kube-dns has no Corefile: flags are in kubeDNS.args, and stub domains in the ConfigMap %s; use mode cluster for a Corefile" $key $.Values.kubeDNS.configMap) -}}
{{- end -}}
{{- end -}}
{{- else if .Values.kubeDNS.args -}}
{{- fail (printf "kubeDNS.args: they are flags of kube-dns, which mode %s does not run; set mode to kube-dns, or use extraArgs" .Values.mode) -}}
{{- end -}}
{{- if and .Values.zoneFiles (include "seamark.foreignConfig" .) -}}
{{- fail (printf "zoneFiles: they are keys of the ConfigMap with the Corefile, but %s is not the chart's; add them there" (include "seamark.foreignConfig" .)) -}}
{{- end -}}
{{- if eq .Values.mode "canary" -}}
{{- if .Values.k8sAppLabelOverride -}}
{{- fail "k8sAppLabelOverride: pods of a canary have no label k8s-app, so that no query reaches them; the command seamark canary adds it when they shall receive queries" -}}
{{- end -}}
{{- if hasKey .Values.deployment.selector "k8s-app" -}}
{{- fail "deployment.selector.k8s-app: pods of a canary have no label k8s-app, so that no query reaches them" -}}
{{- end -}}
{{- range $key := list "clusterIP" "clusterIPs" -}}
{{- if index $.Values.service $key -}}
{{- fail (printf "service.%s: the Service of a canary gets an address of its own; the Service kube-dns of the running DNS keeps the clusterDNS address" $key) -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.service.name "kube-dns" -}}
{{- fail "service.name: kube-dns is the Service of the running DNS, which a canary does not change; leave it empty" -}}
{{- end -}}
{{- end -}}
{{- if gt (len (include "seamark.deployment" .)) 63 -}}
{{- fail "deployment.name: more than 63 characters" -}}
{{- end -}}
{{- end }}

{{- define "seamark.checkServers" -}}
{{- $unsupported := splitList " " "route53 azure clouddns nomad" -}}
{{- $ports := dict -}}
{{- range $i, $server := .Values.servers -}}
{{- range $j, $plugin := .plugins -}}
{{- if has $plugin.name $unsupported -}}
{{- fail (printf "servers[%d].plugins[%d].name: Seamark does not have the directive %s" $i $j $plugin.name) -}}
{{- end -}}
{{- end -}}
{{- $port := toString (int (.port | default 53)) -}}
{{- $service := toString (int (.servicePort | default $port)) -}}
{{- if and (hasKey $ports $port) (ne (get $ports $port) $service) -}}
{{- fail (printf "servers[%d].servicePort: port %s already has the servicePort %s" $i $port (get $ports $port)) -}}
{{- end -}}
{{- if and (not (hasKey $ports $port)) (has $service (values $ports)) -}}
{{- fail (printf "servers[%d].servicePort: %s is already the port of another server block" $i $service) -}}
{{- end -}}
{{- $_ := set $ports $port $service -}}
{{- end -}}
{{- if ne .Values.mode "kube-dns" -}}
{{- range $probe, $directive := dict "livenessProbe" "health" "readinessProbe" "ready" -}}
{{- if and (index $.Values $probe).enabled (not (include "seamark.has" (list $ $directive))) -}}
{{- fail (printf "%s.enabled: the Corefile lacks the directive %s, so that the probe would fail; add it to a server block, or set %s.enabled to false" $probe $directive $probe) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
