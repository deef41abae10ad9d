{{- define "numaserve.labels" -}}
app.kubernetes.io/name: numaserve-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "numaserve.selector" -}}
app.kubernetes.io/name: numaserve-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
