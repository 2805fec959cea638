{{- define "tern.name" -}}
{{- if contains "tern" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-tern" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}
{{- define "tern.selector" -}}
app.kubernetes.io/name: tern
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "tern.labels" -}}
{{ include "tern.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- /* A flag's value as a word: numbers come as floats, and 2000000 must not become 2e+06. */}}
{{- define "tern.word" -}}
{{- if kindIs "float64" . }}{{ if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}{{ else if or (kindIs "map" .) (kindIs "slice" .) }}{{ toJson . }}{{ else }}{{ . }}{{ end }}
{{- end }}
{{- /* Prometheus is told of the figures where it may read them: without a key. */}}
{{- define "tern.annotations" -}}
{{- $scrape := dict }}
{{- if or (not .Values.keys.secret) .Values.keys.metricsOpen }}
{{- $scrape = dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString (int64 .Values.port)) "prometheus.io/path" "/metrics" }}
{{- end }}
{{- merge (dict) .Values.podAnnotations $scrape | toYaml }}
{{- end }}
