{{- /* Labels of every object; `name` tells which part it belongs to. */ -}}
{{- define "fairlead.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: fairlead
app.kubernetes.io/managed-by: {{ .root.Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "fairlead.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* Whether agents enforce policies, which they are sent on guard's connection: "yes" or nothing. */ -}}
{{- define "fairlead.enforces" -}}
{{- if eq .Values.policy.enforce "always" -}}
{{- if not .Values.components.guard -}}
{{- fail "policy.enforce: agents are sent policies on the connection of components.guard; turn that on, or set policy.enforce to never" -}}
{{- end -}}
yes
{{- else if and (eq .Values.policy.enforce "auto") .Values.components.net .Values.components.guard -}}
yes
{{- end -}}
{{- end }}

{{- /* Whether agents have a WireGuard interface of their own. */ -}}
{{- define "fairlead.wireguard" -}}
{{- if and .Values.mesh.wireguard .Values.components.mesh -}}
yes
{{- else if eq (include "fairlead.encrypts" .) "yes" -}}
yes
{{- end -}}
{{- end }}

{{- /* Whether agents encrypt packets between nodes of this cluster. */ -}}
{{- define "fairlead.encrypts" -}}
{{- if not (eq .Values.net.encryption "none") -}}
{{- if not .Values.components.net -}}
{{- fail "net.encryption: the pod network is encrypted by components.net; turn that on, or set net.encryption to none" -}}
{{- end -}}
yes
{{- end -}}
{{- end }}

{{- /* Whether pods may use egresses: with the pod network of components.net, or beside another plugin, whose networks are told. */ -}}
{{- define "fairlead.egress" -}}
{{- if .Values.net.egress -}}
{{- if and (not .Values.components.net) (not .Values.net.podNetworks) -}}
{{- fail "net.egress: without components.net another CNI plugin connects the pods; say in net.podNetworks where it takes their addresses from, or set net.egress to false" -}}
{{- end -}}
{{- if and .Values.components.net .Values.net.podNetworks -}}
{{- fail "net.podNetworks: the pods of components.net have addresses of net.pools; take net.podNetworks out" -}}
{{- end -}}
yes
{{- else if .Values.net.podNetworks -}}
{{- fail "net.podNetworks: they are for net.egress beside another CNI plugin; set net.egress to true, or take them out" -}}
{{- end -}}
{{- end }}

{{- /* Settings as flags, in the order of their names. `flags` has those that the chart gives itself. */ -}}
{{- define "fairlead.settings" -}}
{{- $flags := .flags -}}
{{- $of := .of -}}
{{- range $key, $value := .settings }}
{{- if hasKey $flags $key }}
{{- fail (printf "%s.settings: %s is set by the chart itself; take it out" $of $key) }}
{{- end }}
{{- $flag := replace "." "-" $key }}
{{- if or (kindIs "string" $value) (kindIs "bool" $value) }}
- {{ printf "--%s=%s" $flag ($value | toString) | quote }}
{{- else }}
- {{ printf "--%s=%d" $flag (int $value) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A role of the controller over the cluster is bound to its service account. */ -}}
{{- define "fairlead.controllerBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "fairlead.labels" (dict "root" .root "name" "fairlead-controller") | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .role }}
subjects:
- kind: ServiceAccount
  name: fairlead-controller
  namespace: {{ .root.Release.Namespace }}
{{- end }}
