{{/* The template of mode node, which seamark node reads as Corefile.base. */}}
{{- define "seamark.nodeCorefile" -}}
{{- $n := .Values.node -}}
{{- $replicas := printf "%s.%s.svc.%s" $n.replicasService.name .Release.Namespace (trimSuffix "." .Values.clusterDomain) -}}
.:53 {
    bind __PILLAR__LOCAL__DNS__
    errors
    health __PILLAR__LOCAL__DNS__:{{ $n.ports.health }}
    ready __PILLAR__LOCAL__DNS__:{{ $n.ports.ready }}
    prometheus :{{ $n.ports.metrics }}
{{- if ne $n.source "forward" }}
    metadata
{{- if eq $n.source "services" }}
    # ClusterIPs are answered here as soon as they change; names of endpoints, and all
    # names until the objects have been received, by the replicas below.
{{- else }}
    # All names of the cluster are answered here as soon as they change.
{{- end }}
    kubernetes {{ .Values.clusterDomain }} in-addr.arpa ip6.arpa {
{{- if eq $n.source "services" }}
        only services
{{- end }}
        pods verified
        node
{{- if eq $n.source "everything" }}
        fallthrough in-addr.arpa ip6.arpa
{{- end }}
        ttl 30
    }
{{- end }}
    cache {
        success 9984 30
        denial 9984 5
        # Popular names are refreshed before they expire, and expired answers are
        # used while no DNS server can be reached.
        prefetch 5 30s
        serve_stale 1h verify
    }
{{- if ne $n.source "everything" }}
    # All replicas of the cluster's DNS, by the name of a headless Service. Its
    # ClusterIP looks the name up, and answers while no replica is known.
{{- range list .Values.clusterDomain "in-addr.arpa" "ip6.arpa" }}
    forward {{ . }} {{ $replicas }} {
        resolver __PILLAR__CLUSTER__DNS__
        fallback __PILLAR__CLUSTER__DNS__
        prefer_tcp
        attempts 4
    }
{{- end }}
{{- end }}
    forward . __PILLAR__UPSTREAM__SERVERS__
    loop
    # A new pod takes over the sockets and the cache of the old one on the node.
    handover /run/seamark-node/handover.sock {
        remain
    }
}
{{- end }}

{{/* Whether the node reads objects of the API server. */}}
{{- define "seamark.nodeWatches" -}}
{{- if include "seamark.has" (list . "kubernetes") -}}true{{- end -}}
{{- end }}

{{- define "seamark.checkNode" -}}
{{- $n := .Values.node -}}
{{- if ne .Values.mode "node" -}}
{{- if $n.clusterIPs -}}
{{- fail (printf "node.clusterIPs: mode %s has no cache on the nodes; set mode to node" .Values.mode) -}}
{{- end -}}
{{- else -}}
{{- $defaults := dict "replicaCount" 2 "serviceType" "ClusterIP" "isClusterService" true
    "resources" (dict "limits" (dict "memory" "170Mi") "requests" (dict "cpu" "100m" "memory" "70Mi"))
    "rollingUpdate" (dict "maxUnavailable" 1 "maxSurge" "25%")
    "podSecurityContext" (dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault"))
    "securityContext" (dict "allowPrivilegeEscalation" false "capabilities" (dict "add" (list "NET_BIND_SERVICE") "drop" (list "ALL")) "readOnlyRootFilesystem" true)
    "topologySpreadConstraints" list "servers" list "zoneFiles" list "podDisruptionBudget" (dict "enabled" true) -}}
{{- range $key, $default := $defaults -}}
{{- if ne (toJson (index $.Values $key)) (toJson $default) -}}
{{- fail (printf "%s: it has no effect in mode node, which runs a DaemonSet in the network of the nodes%s" $key (get (dict "resources" "; set node.resources" "rollingUpdate" "; set node.rollingUpdate" "servers" "; set corefile to a template" "zoneFiles" "; set extraVolumes") $key)) -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := .Values.service -}}
{{- if $value -}}
{{- fail (printf "service.%s: mode node has no such Service; see node.clusterIPs, node.upstreamService and node.replicasService" $key) -}}
{{- end -}}
{{- end -}}
{{- range $key, $on := dict "hpa" .Values.hpa.enabled "autoscaler" .Values.autoscaler.enabled "networkPolicy" .Values.networkPolicy.enabled "prometheus.service" .Values.prometheus.service.enabled "prometheus.monitor" .Values.prometheus.monitor.enabled -}}
{{- if $on -}}
{{- fail (printf "%s.enabled: it has no effect in mode node%s" $key (ternary "; set prometheus.podMonitor.enabled" "" (hasPrefix "prometheus." $key))) -}}
{{- end -}}
{{- end -}}
{{- if and (not (hasPrefix "169.254." $n.localIP)) (has $n.capture (list "auto" "tcx" "clsact")) -}}
{{- fail (printf "node.localIP: with node.capture %s the kubelet's probes need an address that is not captured, in 169.254.0.0/16, and %s is not; set another address, or node.capture to address" $n.capture $n.localIP) -}}
{{- end -}}
{{- if and (has $n.capture (list "tcx" "clsact")) (not $n.clusterIPs) -}}
{{- fail (printf "node.capture: %s captures queries to node.clusterIPs, which is empty; set it to the ClusterIPs of the Service kube-dns, or node.capture to address" $n.capture) -}}
{{- end -}}
{{- $pods := include "seamark.podLabels" . | fromYaml -}}
{{- $selected := true -}}
{{- range $key, $value := $n.selector -}}
{{- if ne (toString (get $pods $key)) $value -}}{{- $selected = false -}}{{- end -}}
{{- end -}}
{{- if $selected -}}
{{- fail "node.selector: it selects the pods of this release, so that the nodes would forward queries to themselves; it has to select the cluster's DNS servers" -}}
{{- end -}}
{{- if and (ne (toString $n.rollingUpdate.maxSurge) "0") (not (include "seamark.has" (list . "handover"))) -}}
{{- fail "node.rollingUpdate.maxSurge: the Corefile lacks the directive handover, so that a new pod would find the ports in use; add it, or set maxSurge to 0 and maxUnavailable to 10%" -}}
{{- end -}}
{{- end -}}
{{- end }}
