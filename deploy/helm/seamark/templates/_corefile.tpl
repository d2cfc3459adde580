{{/* A parameter as text: YAML numbers are floats, which would print as 1e+06. */}}
{{- define "seamark.word" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) -}}{{ printf "%.0f" . }}{{- else -}}{{ . }}{{- end -}}
{{- end }}

{{/* The Corefile that the values have; empty if it is in a ConfigMap that the chart does not create. */}}
{{- define "seamark.corefile" -}}
{{- if ne .Values.mode "kube-dns" -}}
{{- if .Values.corefile -}}
{{ .Values.corefile }}
{{- else if .Values.servers -}}
{{- range $name, $directive := .Values.extraConfig }}
{{ $name }}{{ with $directive }}{{ with .parameters }} {{ include "seamark.word" . }}{{ end }}{{ end }}
{{- end }}
{{- range .Values.servers }}
{{- $port := include "seamark.word" (.port | default 53) }}
{{- $zones := list }}
{{- range .zones | default (list (dict "zone" ".")) }}
{{- $zones = append $zones (printf "%s%s:%s" (.scheme | default "") (.zone | default ".") $port) }}
{{- end }}
{{ join " " $zones }} {
{{- range .plugins }}
    {{ .name }}{{ if not (kindIs "invalid" .parameters) }} {{ include "seamark.word" .parameters }}{{ end }}{{ if .configBlock }} {
        {{- .configBlock | trim | nindent 8 }}
    }{{ end }}
{{- end }}
}
{{- end }}
{{- else if include "seamark.foreignConfig" . -}}
{{- else if eq .Values.mode "node" -}}
{{ include "seamark.nodeCorefile" . }}
{{- else -}}
.:53 {
    errors
    health {
        lameduck 5s
    }
    ready
    kubernetes {{ .Values.clusterDomain }} in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
        max_concurrent 1000
    }
    cache 30 {
        disable success {{ .Values.clusterDomain }}
        disable denial {{ .Values.clusterDomain }}
    }
    loop
    reload
    loadbalance
}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The name of a ConfigMap with the Corefile that the chart does not create, or nothing. */}}
{{- define "seamark.foreignConfig" -}}
{{- if not (or .Values.corefile .Values.servers (eq .Values.mode "kube-dns")) -}}
{{- if .Values.existingConfigMap -}}{{ .Values.existingConfigMap }}
{{- else if .Values.deployment.skipConfig -}}{{ include "seamark.fullname" . }}
{{- else if eq .Values.mode "canary" -}}coredns
{{- end -}}
{{- else if .Values.deployment.skipConfig -}}{{ include "seamark.fullname" . }}
{{- end -}}
{{- end }}

{{/* The Corefile without comments, for what depends on its directives. That of a ConfigMap
     is read from the cluster, which helm template does not do. */}}
{{- define "seamark.directives" -}}
{{- $text := include "seamark.corefile" . -}}
{{- if and (not $text) (ne .Values.mode "kube-dns") -}}
{{- $map := lookup "v1" "ConfigMap" .Release.Namespace (include "seamark.foreignConfig" .) -}}
{{- $text = dig "data" "Corefile" "" ($map | default dict) -}}
{{- end -}}
{{ regexReplaceAll "(?m)(^|\\s)#.*$" $text "" }}
{{- end }}

{{/* The ports of the pods, as a YAML list: port, name, servicePort, nodePort, hostPort. */}}
{{- define "seamark.dnsPorts" -}}
{{- $ports := list -}}
{{- $seen := dict -}}
{{- range .Values.servers -}}
{{- $port := int (.port | default 53) -}}
{{- if not (hasKey $seen (toString $port)) -}}
{{- $_ := set $seen (toString $port) true -}}
{{- $ports = append $ports (dict "port" $port "servicePort" (int (.servicePort | default $port)) "nodePort" (int .nodePort) "hostPort" (int .hostPort)) -}}
{{- end -}}
{{- end -}}
{{- if not $ports -}}
{{- $port := ternary (int .Values.ports.dns) 53 (ne .Values.mode "kube-dns") -}}
{{- $ports = list (dict "port" $port "servicePort" 53 "nodePort" 0 "hostPort" 0) -}}
{{- end -}}
{{- $single := eq (len $ports) 1 -}}
{{- range $i, $p := $ports -}}
{{- $suffix := ternary "" (printf "-%d" $p.port) (or $single (eq $p.port 53)) -}}
{{- $_ := set $p "udp" (printf "dns%s" $suffix) -}}
{{- $_ := set $p "tcp" (printf "dns-tcp%s" $suffix) -}}
{{- end -}}
{{ toYaml $ports }}
{{- end }}

{{/* The port at which a plugin of servers serves HTTP: (list . "prometheus" 9153) */}}
{{- define "seamark.pluginPort" -}}
{{- $root := index . 0 -}}{{- $plugin := index . 1 -}}{{- $port := index . 2 -}}
{{- range $root.Values.servers -}}
{{- range .plugins -}}
{{- if eq .name $plugin -}}
{{- $at := regexFind ":\\d+$" (toString (.parameters | default "") | trim) -}}
{{- if $at -}}{{- $port = trimPrefix ":" $at -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ $port }}
{{- end }}

{{- define "seamark.metricsPort" -}}
{{- if eq .Values.mode "kube-dns" -}}10055{{- else if eq .Values.mode "node" -}}{{ .Values.node.ports.metrics }}{{- else -}}{{ include "seamark.pluginPort" (list . "prometheus" .Values.ports.metrics) }}{{- end -}}
{{- end }}

{{/* Whether the Corefile has a directive: (list . "ready"). True if the chart cannot know. */}}
{{- define "seamark.has" -}}
{{- $text := include "seamark.directives" (index . 0) -}}
{{- if or (not $text) (regexMatch "(?m)(^|\\s)import\\s" $text) (regexMatch (printf "(?m)^\\s*%s(\\s|$)" (index . 1)) $text) -}}true{{- end -}}
{{- end }}
